//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// part is a part of a volume.
type part struct {
	Offset int64 `json:"byte_offset"`
	Size   int64 `json:"size_bytes"`
}

const volumePath = "/dev/volume"

var (
	// firstParts are what the volume has in the first backup: 40 MiB.
	firstParts = []part{{0, 24 * mib}, {64 * mib, 16 * mib}}
	// changedParts are written then: 3 MiB and 64 KiB, partly where nothing was.
	changedParts = []part{{4 * mib, mib}, {63 * mib, 2 * mib}, {100 * mib, 64 << 10}}
)

// full writes to the volume and backs it up.
func (b *backups) full(ctx context.Context) error {
	pod, err := b.run(ctx, "block.yaml")
	if err != nil {
		return err
	}
	b.at = pod.Spec.NodeName
	if err := b.fill(ctx, "block-1", firstParts); err != nil {
		return err
	}
	if err := b.follow(ctx, fullBlock); err != nil {
		return err
	}
	if err := b.startClient(ctx, "client", b.at); err != nil {
		return err
	}
	return b.wantReported(ctx, firstParts, "-s=block-1")
}

// incremental changes the volume and backs up what has changed.
func (b *backups) incremental(ctx context.Context) error {
	if err := b.fill(ctx, "block-2", changedParts); err != nil {
		return err
	}
	if err := b.follow(ctx, incrementalBlock); err != nil {
		return err
	}
	return b.wantReported(ctx, changedParts, "-s=block-2", "-p=block-1")
}

// restored compares what the backups were made of, and a clone of the backup, with what the volume had.
func (b *backups) restored(ctx context.Context) error {
	claim := newClaim(claimOptions{name: "block-restored", class: b.env.classes["ext4"], size: 128 * mib, from: "block-backup"})
	claim["spec"].(map[string]any)["volumeMode"] = "Block"
	if err := b.Create(ctx, claim); err != nil {
		return err
	}
	for _, c := range []struct{ claim, snapshot string }{{"block-1", "block-1"}, {"block-restored", "block-2"}} {
		if err := b.Create(ctx, devicePod(c.claim, c.claim, volumePath)); err != nil {
			return err
		}
		if _, err := b.UntilReady(ctx, c.claim, patience); err != nil {
			return err
		}
		got, err := b.sumOfDevice(ctx, c.claim)
		if err != nil {
			return err
		}
		if got != b.sums[c.snapshot] {
			return fmt.Errorf("claim %s has the checksum %s, want %s, that of the volume at the snapshot %s", c.claim, got, b.sums[c.snapshot], c.snapshot)
		}
		if err := b.end(ctx, c.claim); err != nil {
			return err
		}
	}
	return nil
}

// fill writes random data to parts of the volume, and remembers the checksum of all of it.
func (b *backups) fill(ctx context.Context, snapshot string, parts []part) error {
	const unit = 64 << 10
	var script strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&script, "dd if=/dev/urandom of=%s bs=%d seek=%d count=%d conv=notrunc,fsync 2>/dev/null; ", volumePath, unit, p.Offset/unit, p.Size/unit)
	}
	if _, err := b.Exec(ctx, "block", "", script.String()); err != nil {
		return err
	}
	var err error
	b.sums[snapshot], err = b.sumOfDevice(ctx, "block")
	return err
}

// sumOfDevice returns the checksum of all that the device of a pod has.
func (b *backups) sumOfDevice(ctx context.Context, pod string) (string, error) {
	text, err := b.Exec(ctx, pod, "", "sha256sum "+volumePath)
	if err != nil {
		return "", err
	}
	return checksum(text)
}

// startClient starts a pod on a node that can ask the sidecar by the account of the backup.
func (b *backups) startClient(ctx context.Context, name, node string) error {
	err := b.Create(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"serviceAccountName": "changed-blocks", "automountServiceAccountToken": true, "terminationGracePeriodSeconds": 1,
			"nodeSelector": map[string]any{hostname: node}, "hostAliases": []any{b.host}, "dnsPolicy": "Default",
			"containers": []any{map[string]any{"name": "main", "image": toolsImage, "command": []string{"sleep", "1000000"}}},
		},
	})
	if err != nil {
		return err
	}
	_, err = b.UntilReady(ctx, name, patience)
	return err
}

// list asks the sidecar for the parts of a snapshot, by a pod of startClient.
func (b *backups) list(ctx context.Context, pod string, flags ...string) ([]part, error) {
	text, err := b.ExecArgs(ctx, pod, "", append([]string{"/snapshot-metadata-lister", "-n=" + b.Namespace, "-o=json"}, flags...)...)
	if err != nil {
		return nil, err
	}
	var records []struct {
		Parts []part `json:"block_metadata"`
	}
	if err := json.Unmarshal([]byte(text), &records); err != nil {
		return nil, fmt.Errorf("read what the lister printed: %w", err)
	}
	var all []part
	for _, r := range records {
		all = append(all, r.Parts...)
	}
	return all, nil
}

// wantReported checks that parts are reported whole, and little else: at most a fifth more.
func (b *backups) wantReported(ctx context.Context, written []part, flags ...string) error {
	got, err := b.list(ctx, "client", flags...)
	if err != nil {
		return err
	}
	if missed := uncovered(written, got); len(missed) > 0 {
		return fmt.Errorf("%q reports %v, and misses %v of what was written", flags, got, missed)
	}
	if all, most := bytesOf(got), bytesOf(written)/5*6; all > most {
		return fmt.Errorf("%q reports %d bytes, want at most %d: %v", flags, all, most, got)
	}
	b.Log("%q reports %d bytes in %d parts; %d were written", flags, bytesOf(got), len(got), bytesOf(written))
	return nil
}

func bytesOf(parts []part) int64 {
	var n int64
	for _, p := range parts {
		n += p.Size
	}
	return n
}

// uncovered returns the beginnings of what is in no reported part. Those are in order.
func uncovered(written, reported []part) []int64 {
	var missed []int64
	for _, w := range written {
		at, end := w.Offset, w.Offset+w.Size
		for _, r := range reported {
			if r.Offset <= at && at < r.Offset+r.Size {
				at = r.Offset + r.Size
			}
		}
		if at < end {
			missed = append(missed, at)
		}
	}
	return missed
}

// scatter writes 4 KiB to every second 4 KiB of the volume, so that there is much to report. It writes to the loop device itself, which all
// nodes of this machine share.
func (b *backups) scatter(ctx context.Context) error {
	claim, volume, err := b.bound(ctx, "block")
	if err != nil {
		return err
	}
	image := volume.Spec.CSI.VolumeHandle[strings.LastIndex(volume.Spec.CSI.VolumeHandle, "/")+1:] + ".img"
	found, err := loops(func(file string) bool { return filepath.Base(file) == image })
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the volume's file %s is behind the devices %v, want one", image, found)
	}
	for device := range found {
		return writeScattered(device, claim.Bytes())
	}
	return nil
}

func writeScattered(device string, size int64) (err error) {
	const unit = 4 << 10
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data := make([]byte, unit)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	for at := range size / unit / 2 {
		if _, err := file.WriteAt(data, at*2*unit); err != nil {
			return err
		}
	}
	return file.Sync()
}
