package yandex_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// P5: a list of several pages has everything that was there all the time, once, whatever comes and goes between its
// pages, before and behind their marks, and whatever the cloud's marks stand for.
func TestALongListIsComplete(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{
		"pages begin behind a disk":           {BootDisksElsewhere: true},
		"pages begin behind a number of them": {BootDisksElsewhere: true, PagesByNumber: true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := start(t, emulator.Options{Rules: rules})
			var ids []string
			add := func() {
				id, err := folder.AddDisk(emulator.Disk{Name: fmt.Sprintf("d%d", len(ids))})
				if err != nil {
					t.Error(err)
				}
				ids = append(ids, id)
			}
			for range 1100 { // their ids are in no order
				add()
			}
			gone, came, pages := map[string]bool{}, len(ids), 0
			deleter := open(t, folder)
			c := open(t, folder, func(cfg *yandex.Config) {
				cfg.SweepEvery = -1
				cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					err := send(ctx, method, ask, answer, conn, opts...)
					if pages++; !strings.HasSuffix(method, "DiskService/List") || pages > 4 {
						return err
					}
					for range 20 {
						id := ids[len(gone)]
						gone[id] = true
						if err := deleter.DeleteVolume(ctx, cloud.VolumeID(id)); err != nil {
							t.Error(err)
						}
					}
					for range pages { // more than go, or fewer
						add()
					}
					return err
				}
			})
			list, err := c.ListVolumes(t.Context(), cloud.Page{})
			must(t, err)
			seen := map[string]int{}
			for _, vol := range list.Volumes {
				seen[string(vol.ID)]++
			}
			for _, id := range ids[:came] {
				if !gone[id] && seen[id] != 1 {
					t.Errorf("disk %s was there all the time and is listed %d times", id, seen[id])
				}
			}
			if pages <= 4 || len(gone) == 0 {
				t.Errorf("%d pages were read and %d disks went, so this proves nothing", pages, len(gone))
			}
			for id, times := range seen {
				if times > 1 {
					t.Errorf("disk %s is listed %d times", id, times)
				}
			}
			paged := 0
			for page := (cloud.Page{Most: 700}); ; {
				part, err := c.ListVolumes(t.Context(), page)
				must(t, err)
				paged += len(part.Volumes)
				if page.Token = part.Next; page.Token == "" {
					break
				}
			}
			if there := len(folder.Disks()); paged != there {
				t.Errorf("%d disks are listed in pages, want %d", paged, there)
			}
		})
	}
}

// What machines boot from is listed too: an adopted volume may have been made from an image as well.
func TestDisksMadeFromImagesAreListed(t *testing.T) {
	folder := start(t, emulator.Options{})
	list, err := open(t, folder).ListVolumes(t.Context(), cloud.Page{})
	must(t, err)
	on := map[cloud.NodeID]int{}
	for _, vol := range list.Volumes {
		for _, node := range vol.AttachedTo {
			on[node]++
		}
	}
	if len(list.Volumes) != 2 || on[node1] != 1 || on[node2] != 1 {
		t.Errorf("ListVolumes = %+v, want the two disks that the machines boot from", list.Volumes)
	}
}
