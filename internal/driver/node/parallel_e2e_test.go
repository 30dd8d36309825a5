//go:build e2e

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var eventually = expect.Eventually

// P2: while mkfs of one volume hangs the others proceed, that volume answers Aborted, reads are served, the RPC may end,
// and the same call later finishes the job.
func TestASlowFormatBlocksOnlyItsVolume(t *testing.T) {
	dir := t.TempDir()
	entered, gate := filepath.Join(dir, "entered"), filepath.Join(dir, "gate")
	sh(t, "mkfifo", gate)
	// The wrapper of mkfs.xfs waits until the test writes to the gate.
	wrap(t, `touch `+entered+"\nread -r line < "+gate+"\n"+`exec "$real" "$@"`, "mkfs.xfs")
	m := newMachine(t, machineConfig{})
	slow, quick := m.newVolume("xfs", sizeFor("xfs")), m.newVolume("ext4", 32*mib)
	open := sync.OnceFunc(func() {
		if err := os.WriteFile(gate, []byte("go\n"), 0o600); err != nil {
			t.Error(err)
		}
	})
	defer open()

	call, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- slow.stage(call) }()
	eventually(t, "mkfs runs", func() bool { _, err := os.Stat(entered); return err == nil })

	quick.ok(quick.stage, quick.publish)
	quick.gone()
	for what, err := range map[string]error{
		"a second stage": slow.stage(t.Context()),
		"unstage":        slow.unstage(t.Context()),
		"publish":        slow.publish(t.Context()),
		"expand":         second(slow.expand(t.Context(), nil)),
	} {
		wantCode(t, what+" while mkfs runs", err, codes.Aborted)
	}
	_, err := slow.usage(t.Context(), slow.staging)
	wantCode(t, "stats while mkfs runs", err, codes.NotFound)

	cancel()
	wantCode(t, "stage whose caller left", <-done, codes.Canceled)
	wantCode(t, "stage after the caller left", slow.stage(t.Context()), codes.Aborted)
	if got := mountsBelow(t, slow.staging); len(got) > 0 {
		t.Errorf("mounted while mkfs runs: %v", got)
	}
	open()
	eventually(t, "the same call finishes the job", func() bool {
		err := slow.stage(t.Context())
		if err != nil && status.Code(err) != codes.Aborted {
			t.Fatalf("stage = %v, want OK or Aborted", err)
		}
		return err == nil
	})
	slow.ok(slow.publish)
	slow.gone()
}

func second[T any](_ T, err error) error { return err }

// TestManyVolumesAtOnce: lives of different volumes on one machine do not get into one another's way.
func TestManyVolumesAtOnce(t *testing.T) {
	m := newMachine(t, machineConfig{})
	var volumes []*volume
	for range 6 {
		volumes = append(volumes, m.newVolume("ext4", 32*mib))
	}
	var wg sync.WaitGroup
	for i, v := range volumes {
		wg.Go(func() {
			for range 3 {
				for _, step := range []func(context.Context) error{v.stage, v.publish, v.unpublish, v.unstage} {
					// Another program's look at a loop device may hold it for a moment; kubelet tries again too.
					err := step(t.Context())
					for range 20 {
						if status.Code(err) != codes.Aborted {
							break
						}
						err = step(t.Context())
					}
					if err != nil {
						t.Errorf("volume %d: %v", i, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if loops := loopsBelow(m.dir); len(loops) > 0 {
		t.Errorf("%v are left", loops)
	}
}

// P3: a canary in every secret, in context keys for tokens is in no log line at the highest verbosity, no error, no
// metric and no argument of a program.
func TestSecretsNeverShow(t *testing.T) {
	const canary = "canary-7f3a9c"
	argv := filepath.Join(t.TempDir(), "argv")
	wrap(t, `echo "$0 $@" >> `+argv+"\nenv >> "+argv+"\n"+`exec "$real" "$@"`,
		"mkfs.ext4", "blkid", "e2fsck", "mount", "umount", "mkfs.xfs", "xfs_growfs")
	var log drivertest.Log
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), &log, zapcore.DebugLevel)
	m := newMachine(t, machineConfig{log: zap.New(core)})
	v := m.newVolume("ext4", 32*mib)
	secrets := map[string]string{"passphrase": canary, canary: "x"}
	tokens := map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": canary, "token": canary}
	var said []string
	try := func(err error) {
		said = append(said, fmt.Sprint(err))
	}
	for _, id := range []string{v.id, anyGoodID, ""} {
		for _, c := range []*csi.VolumeCapability{
			v.capability, nil, mountCapability("ext4", oneNode, "x\x00"+canary), mountCapability("ext4", oneNode, "password="+canary),
			mountCapability("ext4", oneNode, "commit="+canary, `context="`+canary), mountCapability(canary, oneNode),
		} {
			for _, extra := range [][2]string{
				{}, {"device-name", canary}, {"device-name", "/" + canary}, {"serial", "/" + canary}, {"size", canary}, {"content", canary},
				{"mkfs-options", canary}, {"mkfs-options", "--" + canary}, {"mkfs-options", "-E " + canary}, {"mkfs-options", "-L " + canary + "/"},
				{"format-non-zero", canary},
			} {
				volumeContext := map[string]string{"token": canary}
				maps.Copy(volumeContext, v.context)
				maps.Copy(volumeContext, tokens)
				if extra[0] != "" {
					volumeContext[names.Driver+"/"+extra[0]] = extra[1]
				}
				_, err := m.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
					VolumeId: id, StagingTargetPath: v.staging, VolumeCapability: c, Secrets: secrets, VolumeContext: volumeContext, PublishContext: tokens,
				})
				try(err)
				_, err = m.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
					VolumeId: id, StagingTargetPath: v.staging, TargetPath: v.target, VolumeCapability: c, Secrets: secrets,
					VolumeContext: volumeContext, PublishContext: tokens,
				})
				try(err)
				_, err = m.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: v.target, VolumeCapability: c, Secrets: secrets})
				try(err)
			}
		}
	}
	if len(mountsBelow(t, v.target)) == 0 {
		t.Error("the volume was never published, so the canary was not carried through the happy path")
	}
	v.gone()
	metrics, err := m.registry.Gather()
	must(t, err)
	arguments, err := os.ReadFile(argv)
	must(t, err)
	if len(arguments) == 0 || len(log.String()) == 0 || len(metrics) == 0 {
		t.Fatal("no arguments, no log or no metrics were seen, so nothing was checked")
	}
	for where, text := range map[string]string{
		"log": log.String(), "errors": strings.Join(said, "\n"), "arguments of programs": string(arguments),
		"metrics": string(must1(json.Marshal(metrics))(t)),
	} {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("the %s show the canary: ...%s...", where, text[max(0, at-200):min(len(text), at+40)])
		}
	}
}
