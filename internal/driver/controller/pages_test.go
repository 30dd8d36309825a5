package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
)

// crowded is a cloud with so many volumes and snapshots, all with the longest texts that CSI has. A page without a maximum has all
// of the rest. A token is the number of entries before its page.
type crowded struct {
	cloud.Cloud

	many int
}

func (c crowded) id(n int) string { return fmt.Sprintf("%0128d", n) }

func (c crowded) page(p cloud.Page) (from, to int, next string) {
	_, _ = fmt.Sscan(p.Token, &from)
	if to = c.many; p.Most > 0 && p.Most < c.many-from {
		to = from + p.Most
		next = fmt.Sprint(to)
	}
	return from, to, next
}

func (c crowded) ListVolumes(_ context.Context, p cloud.Page) (list cloud.VolumeList, err error) {
	from, to, next := c.page(p)
	list.Next = next
	for n := from; n < to; n++ {
		list.Volumes = append(list.Volumes, cloud.Volume{
			ID: cloud.VolumeID(c.id(n)), Size: cloud.TiB, Zone: strings.Repeat("z", 63), Source: cloud.Source{Volume: cloud.VolumeID(c.id(n))},
			AttachedTo: []cloud.NodeID{cloud.NodeID(strings.Repeat("n", 256))},
			Health:     cloud.Health{Kind: cloud.Degraded, Reason: "Slow", Message: strings.Repeat("m", 256)},
		})
	}
	return list, nil
}

func (c crowded) ListSnapshots(_ context.Context, _ cloud.VolumeID, p cloud.Page) (list cloud.SnapshotList, err error) {
	from, to, next := c.page(p)
	list.Next = next
	for n := from; n < to; n++ {
		list.Snapshots = append(list.Snapshots, cloud.Snapshot{
			ID: cloud.SnapshotID(c.id(n)), Volume: cloud.VolumeID(c.id(n)), Size: cloud.TiB, Zone: strings.Repeat("z", 63),
		})
	}
	return list, nil
}

// P13: the sidecars have gRPC's limit of an answer, and the attacher asks for a page of any length.
func TestEachPageOfAListFitsIntoOneAnswer(t *testing.T) {
	const limit, many = 4 << 20, 10_001
	r := start(t, memory.Config{})
	service := controller.New(crowded{r.cloud, many}, r.names)
	for name, list := range map[string]func(token string, most int32) (answer proto.Message, entries int, next string, err error){
		"volumes": func(token string, most int32) (proto.Message, int, string, error) {
			list, err := service.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token, MaxEntries: most})
			return list, len(list.GetEntries()), list.GetNextToken(), err
		},
		"health of volumes": func(token string, most int32) (proto.Message, int, string, error) {
			list, err := service.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{StartingToken: token, MaxEntries: most})
			return list, len(list.GetEntries()), list.GetNextToken(), err
		},
		"snapshots": func(token string, most int32) (proto.Message, int, string, error) {
			list, err := service.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: token, MaxEntries: most})
			return list, len(list.GetEntries()), list.GetNextToken(), err
		},
	} {
		for _, most := range []int32{0, many} {
			t.Run(fmt.Sprintf("%s, max_entries %d", name, most), func(t *testing.T) {
				all, token := 0, ""
				for page := 0; page == 0 || token != ""; page++ {
					answer, entries, next, err := list(token, most)
					if err != nil || proto.Size(answer) >= limit {
						t.Fatalf("page %d has %d bytes (%v), want less than %d", page, proto.Size(answer), err, limit)
					}
					all, token = all+entries, next
				}
				if all != many {
					t.Errorf("the pages have %d entries, want %d", all, many)
				}
			})
		}
	}
}
