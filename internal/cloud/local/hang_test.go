package local_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// L9: the disk of one pool hangs. Volumes are created and found in the others, and their usage is known.
func TestPoolThatHangsStopsNoOther(t *testing.T) {
	for name, hang := range map[string]func(t *testing.T, host *lvm.Host, dir string) (end func()){
		"each command of LVM": func(_ *testing.T, host *lvm.Host, _ string) func() {
			stuck := make(chan struct{})
			host.Hook = func([]string) { <-stuck }
			return func() { close(stuck) }
		},
		"a process that has the lock of a pool of files": func(t *testing.T, _ *lvm.Host, dir string) func() {
			unlock, err := pool.NewLock(dir).Acquire(t.Context())
			must(t, err)
			return unlock
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				host := lvm.New(gib)
				files, group := at(t, other), groupPool(t, host)
				files.Name, group.Name = "files", "group"
				l := openGroup(t, at(t, dir), files, group)
				end := hang(t, host, other)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for i, most := range []time.Duration{20 * time.Second, 0} {
					began := time.Now()
					_, err := l.CreateVolume(ctx, cloud.CreateVolumeRequest{Name: strconv.Itoa(i), Size: size})
					wantKind(t, "CreateVolume", err, fault.None)
					if took := time.Since(began); took > most {
						t.Errorf("CreateVolume %d took %s, want at most %s", i, took, most)
					}
				}
				finding, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if vol, err := l.FindVolume(finding, "0"); err != nil || vol.Name != "0" {
					t.Errorf("FindVolume of the first = %s, %v", vol.Name, err)
				}
				began := time.Now()
				_, err := l.ListVolumes(ctx, cloud.Page{})
				if took := time.Since(began); fault.ReasonOf(err) != fault.PoolUnusable || took > 20*time.Second {
					t.Errorf("ListVolumes = %v after %s, want %s", err, took, string(fault.PoolUnusable))
				}
				var usage []local.Usage
				for range 3 { // the first ones wait for the pool that hangs
					scrape, cancel := context.WithTimeout(t.Context(), 4*time.Second)
					usage, _ = l.Usage(scrape)
					cancel()
					time.Sleep(10 * time.Second)
				}
				if len(usage) != 2 {
					t.Errorf("Usage = %+v, want the two pools that do not hang", usage)
				}
				end()
				time.Sleep(time.Second) // what has waited ends
			})
		})
	}
}
