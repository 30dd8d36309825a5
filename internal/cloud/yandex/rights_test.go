package yandex_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// documentedRights are the calls in the table of the section "Rights" of the backend's page.
func documentedRights(t *testing.T) (calls []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/backends/yandex.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+Service/[A-Za-z]+)` \\|").FindAllStringSubmatch(section, -1) {
		calls = append(calls, row[1])
	}
	if len(calls) == 0 {
		t.Fatal("the page has no table of rights")
	}
	return calls
}

// everyRPC runs all that the backend can be asked for, also what it reads to find out why it was refused, and returns
// what was not as it should be.
func everyRPC(t *testing.T, folder *emulator.Cloud) error {
	t.Helper()
	ctx := t.Context()
	bare := func() *yandex.Cloud { return open(t, folder, func(cfg *yandex.Config) { cfg.SweepEvery = -1 }) }
	open := func() cloud.Cloud { return stack(bare()) }
	c := open()
	failed := []error{}
	note := func(what string, err error, wanted ...fault.Kind) {
		if kind := fault.Of(err); err != nil && !slices.Contains(wanted, kind) || err == nil && len(wanted) > 0 {
			failed = append(failed, fmt.Errorf("%s: %w", what, errors.Join(err, fault.Of(err))))
		}
	}
	note("Check", c.Check(ctx))
	vol, err := c.CreateVolume(ctx, request("a"))
	note("CreateVolume", err)
	_, err = c.GetVolume(ctx, vol.ID)
	note("GetVolume", err)
	_, err = c.ListVolumes(ctx, cloud.Page{})
	note("ListVolumes", err)
	grouped := placed("grouped", folder.AddPlacementGroup(emulator.PlacementGroup{Zone: "ru-central1-b"}))
	inGroup, err := c.CreateVolume(ctx, grouped)
	note("CreateVolume in a group of the second zone", err)
	_, err = c.Attach(ctx, vol.ID, node1)
	note("Attach", err)
	_, err = open().Attach(ctx, vol.ID, node2)
	note("Attach to a second instance", err, fault.Precondition)
	_, err = c.ExpandVolume(ctx, vol.ID, 2*cloud.GiB)
	note("ExpandVolume", err)
	snap, err := c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "snap", Volume: vol.ID})
	note("CreateSnapshot", err)
	note("DeleteSnapshot while it is being made", c.DeleteSnapshot(ctx, snap.ID))
	snap, err = c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "again", Volume: vol.ID})
	note("CreateSnapshot", err)
	_, err = c.GetSnapshot(ctx, snap.ID)
	note("GetSnapshot", err)
	_, err = c.ListSnapshots(ctx, vol.ID, cloud.Page{})
	note("ListSnapshots", err)
	restored, copied := request("restored"), request("copied")
	restored.Size, restored.Source.Snapshot = 2*cloud.GiB, snap.ID
	copied.Size, copied.Source.Volume = 2*cloud.GiB, vol.ID
	until(t, "the snapshot is ready", func() bool {
		now, err := c.GetSnapshot(ctx, snap.ID)
		return err != nil || now.Ready
	})
	made, err := c.CreateVolume(ctx, restored)
	note("CreateVolume from a snapshot", err)
	clone, err := c.CreateVolume(ctx, copied)
	note("CreateVolume from a volume", err)
	note("Detach from wherever it is", c.Detach(ctx, vol.ID, ""))
	note("DeleteSnapshot", c.DeleteSnapshot(ctx, snap.ID))
	note("Relocate", bare().Relocate(ctx, yandex.Relocation{Disk: made.ID, Zone: "ru-central1-b"}))
	for _, id := range []cloud.VolumeID{vol.ID, inGroup.ID, made.ID, clone.ID} {
		note("DeleteVolume", c.DeleteVolume(ctx, id))
	}
	return errors.Join(failed...)
}

// The calls in the documented table are enough for every RPC, and each of them is needed: where one is missing, an RPC
// fails, and says that a right is missing.
func TestEveryRightIsNeededAndNoOther(t *testing.T) {
	t.Parallel()
	rights := documentedRights(t)
	if strict := emulator.DriverRights(); !slices.Equal(rights, strict) {
		t.Errorf("the page has the rights %v, and the other tests run with %v", rights, strict)
	}
	with := func(t *testing.T, rights []string) (err error) {
		simulated(t, func(t *testing.T) {
			err = everyRPC(t, start(t, emulator.Options{
				Durations: emulator.Durations{Snapshot: clock.Fixed(time.Second)}, Rules: emulator.Rules{Rights: rights},
			}))
		})
		return err
	}
	if err := with(t, rights); err != nil {
		t.Errorf("with all of %v: %v", rights, err)
	}
	for n, call := range rights {
		t.Run("without "+call, func(t *testing.T) {
			t.Parallel()
			err := with(t, slices.Delete(slices.Clone(rights), n, n+1))
			if err == nil || !strings.Contains(err.Error(), "Permission denied") {
				t.Errorf("every RPC = %v, want one that lacks a right", err)
			}
		})
	}
}

// What a read can show of missing rights is in /readyz, each by its name.
func TestCheckNamesWhatTheAccountMayNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		rights []string
		says   []string
	}{
		"disks":     {[]string{"SnapshotService/List"}, []string{"read the disks of folder", "Permission denied", "compute.editor"}},
		"snapshots": {[]string{"DiskService/List"}, []string{"read the snapshots of folder", "Permission denied", "compute.editor"}},
		"either":    {[]string{}, []string{"read the disks of folder", "read the snapshots of folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, start(t, emulator.Options{Rules: emulator.Rules{Rights: tc.rights}}))
			want(t, c.Check(t.Context()), fault.Denied, tc.says...)
		})
	}
}
