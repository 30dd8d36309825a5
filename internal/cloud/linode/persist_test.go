package linode_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

func persisting(p linode.Persist) func(*linode.Config) {
	return func(cfg *linode.Config) { cfg.Persist = p }
}

// A13: an attachment survives a boot of its Linode unless that is not wanted; the list says which did.
func TestABootKeepsWhatPersists(t *testing.T) {
	for mode, nodes := range map[linode.Persist][]cloud.NodeID{
		linode.PersistAuto: {node1}, linode.PersistAlways: {node1}, linode.PersistNever: nil,
	} {
		t.Run(string(mode), func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account, persisting(mode)))
			vol := volume(t, c, "ab")
			must(t, second(c.Attach(t.Context(), vol.ID, node1)))
			account.Reboot(linode1)
			list, err := c.ListVolumes(t.Context(), cloud.Page{})
			must(t, err)
			if len(list.Volumes) != 1 || !slices.Equal(list.Volumes[0].AttachedTo, nodes) {
				t.Errorf("after the boot the list is %+v, want the volume at %v", list.Volumes, nodes)
			}
			must(t, second(c.Attach(t.Context(), vol.ID, node1))) // as an attacher does that reads such a list
			at(t, account, vol.ID, linode1)
		})
	}
}

// A7: where the configuration has fewer slots than the Linode, the rest is attached without persistence, and only the
// first of them costs refused requests.
func TestAttachmentsThatDoNotFitIntoTheConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		shape    emulator.Linode
		persists int
	}{
		"8 slots":                     {emulator.Linode{MemoryMB: 16 << 10, Disks: 2}, 6},
		"several boot configurations": {emulator.Linode{MemoryMB: 16 << 10, Disks: 2, Configs: 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Rules: emulator.Rules{ConfigSlots: 8}})
				id := account.AddLinode(tc.shape)
				node := cloud.NodeID(fmt.Sprint(id))
				c := open(t, account)
				var vols []cloud.Volume
				for n := range 15 {
					vols = append(vols, volume(t, c, fmt.Sprintf("v%d", n)))
				}
				account.ResetStats()
				for _, vol := range vols[:14] {
					must(t, second(c.Attach(t.Context(), vol.ID, node)))
				}
				if writes := account.Stats().Writes; writes != 14+2 {
					t.Errorf("14 attachments took %d requests, want two that were refused", writes)
				}
				want(t, second(c.Attach(t.Context(), vols[14].ID, node)), fault.Exhausted, "no free slot")
				wantPersisting(t, account, tc.persists)

				// What was learnt is forgotten after a while: the configuration may have room again.
				must(t, c.Detach(t.Context(), vols[0].ID, node))
				must(t, c.Detach(t.Context(), vols[13].ID, node))
				time.Sleep(2 * time.Hour)
				must(t, second(c.Attach(t.Context(), vols[13].ID, node)))
				wantPersisting(t, account, tc.persists)
			})
		})
	}
}

// A refusal for a passing reason, as while another change of the volume ends, says nothing about persistence.
func TestAPassingRefusalDoesNotEndPersistence(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "ab")
	post(account, attachRoute, faults.Effect{Status: http.StatusBadRequest, Message: "Volume must be active"})
	must(t, second(c.Attach(t.Context(), vol.ID, node1)))
	wantPersisting(t, account, 1)
}

func wantPersisting(t *testing.T, account *emulator.Cloud, n int) {
	t.Helper()
	got := 0
	for _, v := range account.Volumes() {
		if v.Persists {
			got++
		}
	}
	if got != n {
		t.Errorf("%d attachments persist, want %d", got, n)
	}
}

// With PersistAlways a refusal is passed on in the cloud's words.
func TestPersistenceThatIsForcedIsNotGivenUp(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{ConfigSlots: 3}})
	c := open(t, account, persisting(linode.PersistAlways))
	must(t, second(c.Attach(t.Context(), volume(t, c, "a").ID, node1)))
	b := volume(t, c, "b")
	want(t, second(c.Attach(t.Context(), b.ID, node1)), fault.Unavailable, "No free device slot")
	at(t, account, b.ID, 0)
	_, err := linode.New(t.Context(), linode.Config{
		Config:  block.Config{Token: func() (string, error) { return "t", nil }, Region: emulator.DefaultRegion, ClusterID: "one"},
		Persist: "never",
	})
	want(t, err, fault.InvalidArgument, "neither auto, true nor false")
}
