package real

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// emulatedAccount is an account with a machine and a foreign volume.
func emulatedAccount(t *testing.T, name string) (Account, accounts.Account) {
	t.Helper()
	emulator, err := accounts.Start(name, accounts.Options{Machines: 1})
	must(t, err)
	t.Cleanup(func() { must(t, emulator.Close()) })
	must(t, emulator.Listen(t.Context(), "127.0.0.1:0"))
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte(emulator.Token()), 0o600))
	a := Account{Cloud: name, Run: "abc123", TokenFile: token, Region: emulator.Region(), Endpoint: emulator.URL(), Hurry: true}
	if y, is := emulator.(*accounts.Yandex); is {
		a.Folder = y.Folder
	}
	must(t, a.Check())
	_, err = emulator.AddVolume(accounts.Volume{Name: "foreign"})
	must(t, err)
	return a, emulator
}

func view(t *testing.T, a Account, part int) cloud.Cloud {
	t.Helper()
	c, err := a.Open(context.WithoutCancel(t.Context()), View{Part: part})
	must(t, err)
	cloudtest.CloseAfter(t, c.Close)
	return c
}

func TestCleanRemovesOnlyWhatTheRunMade(t *testing.T) {
	for _, name := range accounts.Names() {
		t.Run(name, func(t *testing.T) {
			a, emulator := emulatedAccount(t, name)
			other := a
			other.Run = "abc124"
			c, foreign := view(t, a, 1), view(t, other, 1)
			create := func(c cloud.Cloud, name string) cloud.VolumeID {
				v, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: name, Size: a.Size(), Zones: []string{a.Region}})
				must(t, err)
				return v.ID
			}
			attached := create(c, "attached")
			_, err := c.Attach(t.Context(), attached, cloud.NodeID(emulator.Machines()[0]))
			must(t, err)
			create(c, strings.Repeat("a name that is shortened ", 5))
			create(view(t, a, 2), "of another part")
			create(foreign, "of another run")
			if c.Capabilities().Snapshots {
				_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "snap", Volume: attached})
				must(t, err)
			} else { // Linode's unfinished copy
				_, err := emulator.AddVolume(accounts.Volume{Name: "clone_" + cloud.FullHash(View{Part: 1}.cluster(a))[:8] + "_abcdefghijklmnop"})
				must(t, err)
			}
			almost, err := emulator.AddVolume(accounts.Volume{Name: a.prefix() + "backup"})
			must(t, err)
			removed, err := a.Clean(t.Context(), c, a.prefix())
			if err != nil || len(removed) != 4 {
				t.Errorf("Clean = %q, %v, want four objects", removed, err)
			}
			if accounts.Find(emulator, almost).ID == "" {
				t.Error("a volume is gone whose name only begins as those of the run")
			}
			must(t, emulator.DeleteVolume(almost))
			left := accounts.Left(emulator)
			if len(left) != 2 || !slices.Contains(left, "volume foreign") || !strings.HasPrefix(left[slices.IndexFunc(left, func(s string) bool { return s != "volume foreign" })], "volume "+other.prefix()) {
				t.Errorf("left are %q, want the foreign volume and the other run's", left)
			}
			for _, wide := range []string{"", "c", "cb", "foreign", "-"} {
				if removed, err := a.Clean(t.Context(), c, wide); !errors.Is(err, fault.InvalidArgument) || len(removed) > 0 {
					t.Errorf("Clean with the prefix %q = %q, %v, want a refusal", wide, removed, err)
				}
			}
		})
	}
}

func TestGuardLeavesForeignVolumesAlone(t *testing.T) {
	for _, name := range accounts.Names() {
		t.Run(name, func(t *testing.T) {
			a, emulator := emulatedAccount(t, name)
			foreign := cloud.VolumeID(emulator.Volumes()[0].ID)
			machine := cloud.NodeID(emulator.Machines()[0])
			budget := a.NewBudget(1)
			g := NewGuard(view(t, a, 1), a.Prefix(1), []cloud.NodeID{machine}, budget)
			ctx := t.Context()
			_, expandErr := g.ExpandVolume(ctx, foreign, 2*a.Size())
			_, attachErr := g.Attach(ctx, foreign, machine)
			_, cloneErr := g.CreateVolume(ctx, cloud.CreateVolumeRequest{Name: "copy", Size: a.Size(), Source: cloud.Source{Volume: foreign}})
			for call, err := range map[string]error{
				"DeleteVolume": g.DeleteVolume(ctx, foreign), "ExpandVolume": expandErr, "Attach": attachErr, "CreateVolume": cloneErr,
				"Detach": g.Detach(ctx, foreign, ""), "ModifyVolume": g.ModifyVolume(ctx, foreign, []cloud.Tag{{Key: "a", Value: "b"}}),
			} {
				if !errors.Is(err, fault.NotFound) {
					t.Errorf("%s of a foreign volume = %v, want it refused", call, err)
				}
			}
			if list, err := g.ListVolumes(ctx, cloud.Page{}); err != nil || len(list.Volumes) > 0 {
				t.Errorf("ListVolumes = %+v, %v, want nothing", list, err)
			}
			budget.made.Store(0)
			small := cloud.CreateVolumeRequest{Name: "a", Size: a.Size(), Zones: []string{a.Region}}
			v, err := g.CreateVolume(ctx, small)
			must(t, err)
			_, attachErr = g.Attach(ctx, v.ID, "123456")
			large := small
			large.Name, large.Size = "b", 5*a.Size()
			_, largeErr := g.CreateVolume(ctx, large)
			small.Name = "c"
			_, secondErr := g.CreateVolume(ctx, small)
			if !errors.Is(largeErr, fault.Exhausted) || !errors.Is(secondErr, fault.Exhausted) || !errors.Is(attachErr, fault.NotFound) {
				t.Errorf("a large volume: %v; one more: %v; a foreign machine: %v; want all refused", largeErr, secondErr, attachErr)
			}
			must(t, g.DeleteVolume(ctx, v.ID))
			if left := accounts.Left(emulator); !slices.Equal(left, []string{"volume foreign"}) {
				t.Errorf("left are %q", left)
			}
		})
	}
}

func TestARunWithoutCredentialsDoesNotBegin(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, []byte("\n"), 0o600))
	good := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(good, []byte("token\n"), 0o600))
	for name, a := range map[string]Account{
		"no file":        {Cloud: "linode", Run: "abc123", Region: "us-ord"},
		"a lost file":    {Cloud: "linode", Run: "abc123", Region: "us-ord", TokenFile: good + "x"},
		"an empty file":  {Cloud: "linode", Run: "abc123", Region: "us-ord", TokenFile: empty},
		"no run":         {Cloud: "linode", Region: "us-ord", TokenFile: good},
		"no region":      {Cloud: "linode", Run: "abc123", TokenFile: good},
		"no folder":      {Cloud: "yandex", Run: "abc123", Region: "ru-central1-a", TokenFile: good},
		"another cloud":  {Cloud: "local", Run: "abc123", Region: "a", TokenFile: good},
		"one machine":    {Cloud: "linode", Run: "abc123", Region: "us-ord", TokenFile: good, Machines: []cloud.NodeID{"1"}},
		"a run's letter": {Cloud: "linode", Run: "abc12*", Region: "us-ord", TokenFile: good},
		"a word as run":  {Cloud: "linode", Run: "backup", Region: "us-ord", TokenFile: good},
		"a short run":    {Cloud: "linode", Run: "abc12", Region: "us-ord", TokenFile: good},
		"a long run":     {Cloud: "linode", Run: "abc1234", Region: "us-ord", TokenFile: good},
	} {
		if err := a.Check(); err == nil {
			t.Errorf("%s: Check = nil", name)
		}
	}
}
