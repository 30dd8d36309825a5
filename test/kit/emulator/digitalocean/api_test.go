package digitalocean_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

func TestListsComeInPages(t *testing.T) {
	_, api, _ := start(t, emulator.Options{})
	for i := range 5 {
		mustCreate(t, api, fmt.Sprintf("pvc-%d", i))
	}
	for _, row := range []struct {
		name               string
		page, perPage      int
		want               []string
		first, prev, after bool
	}{
		{"the first page has links onward", 1, 2, []string{"pvc-0", "pvc-1"}, false, false, true},
		{"a page in the middle has all links", 2, 2, []string{"pvc-2", "pvc-3"}, true, true, true},
		{"the last page has links back", 3, 2, []string{"pvc-4"}, true, true, false},
		{"a single page has no links", 1, 200, []string{"pvc-0", "pvc-1", "pvc-2", "pvc-3", "pvc-4"}, false, false, false},
		{"a page beyond the end is empty", 4, 2, nil, true, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			all, resp, err := api.Storage.ListVolumes(t.Context(), &godo.ListVolumeParams{
				ListOptions: &godo.ListOptions{Page: row.page, PerPage: row.perPage},
			})
			must(t, err)
			var names []string
			for _, v := range all {
				names = append(names, v.Name)
			}
			var pages godo.Pages
			if resp.Links != nil && resp.Links.Pages != nil {
				pages = *resp.Links.Pages
			}
			if !slices.Equal(names, row.want) || resp.Meta.Total != 5 || (pages.First != "") != row.first ||
				(pages.Prev != "") != row.prev || (pages.Next != "") != row.after || (pages.Last != "") != row.after {
				t.Errorf("page %d of %d = %v, total %d, links %+v", row.page, row.perPage, names, resp.Meta.Total, pages)
			}
			if row.after && !strings.Contains(pages.Next, fmt.Sprintf("page=%d&per_page=%d", row.page+1, row.perPage)) {
				t.Errorf("next = %q, want the same question with the next page", pages.Next)
			}
		})
	}
}

func TestASnapshotBecomesAVolume(t *testing.T) {
	for _, row := range []struct {
		name    string
		rules   emulator.Rules
		ask     int64
		wantGiB int64
	}{
		{"with the snapshot's size, whatever is asked for", emulator.Rules{}, 7, 2},
		{"with the size that is asked for, where the account honours it", emulator.Rules{RestoreHonoursSize: true}, 7, 7},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, api, _ := start(t, emulator.Options{Rules: row.rules})
			ctx := t.Context()
			source := mustCreate(t, api, "pvc-1", func(r *godo.VolumeCreateRequest) { r.SizeGigaBytes = 2 })
			c.SetContent(source.ID, "first")
			s, _, err := api.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: source.ID, Name: "snap-1", Tags: []string{"x"}})
			must(t, err)
			c.SetContent(source.ID, "second")
			if s.MinDiskSize != 2 || s.ResourceID != source.ID || s.ResourceType != "volume" || !slices.Equal(s.Regions, []string{"fra1"}) {
				t.Errorf("CreateSnapshot() = %+v", s)
			}
			v := mustCreate(t, api, "pvc-2", func(r *godo.VolumeCreateRequest) { r.SnapshotID, r.SizeGigaBytes = s.ID, row.ask })
			if v.SizeGigaBytes != row.wantGiB {
				t.Errorf("volume from the snapshot has %d GiB, want %d", v.SizeGigaBytes, row.wantGiB)
			}
			if made, _ := c.Volume(v.ID); made.Content != "first" || made.SnapshotID != s.ID {
				t.Errorf("Volume() = %+v, want what the source held when the snapshot was made", made)
			}
			if _, err := api.Storage.DeleteVolume(ctx, source.ID); err != nil {
				t.Fatal(err)
			}
			all, _, err := api.Snapshots.ListVolume(ctx, nil)
			if err != nil || len(all) != 1 || all[0].ID != s.ID {
				t.Errorf("snapshots after their volume is gone = %+v, %v, want the one", all, err)
			}
			deleted := expect.Fetch(t, http.MethodDelete, c.URL+"/v2/volumes/snapshots/"+s.ID, "", "Authorization", "Bearer "+c.Token)
			if deleted.Status != http.StatusNoContent || len(c.Snapshots()) != 0 {
				t.Errorf("delete of the snapshot = %+v", deleted)
			}
		})
	}
}

func TestAnActionsChangeCanShowEarly(t *testing.T) {
	c, api, droplet := start(t, emulator.Options{
		Rules: emulator.Rules{ChangeOnAccept: true}, Durations: emulator.Actions(clock.Fixed(time.Hour)),
	})
	v := mustCreate(t, api, "pvc-1")
	mustAttach(t, api, v.ID, droplet)
	if now, _ := c.Volume(v.ID); now.DropletID != droplet || len(c.Running()) != 1 {
		t.Errorf("volume = %+v, running %v, want it attached while the action is running", now, c.Running())
	}
}

func TestARunningActionFailsWithItsDroplet(t *testing.T) {
	c, api, droplet := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(time.Hour))})
	v := mustCreate(t, api, "pvc-1")
	a := mustAttach(t, api, v.ID, droplet)
	c.RemoveDroplet(droplet, 0)
	if now, _, err := api.Actions.Get(t.Context(), a.ID); err != nil || now.Status != "errored" {
		t.Errorf("action = %+v, %v, want it errored", now, err)
	}
}
