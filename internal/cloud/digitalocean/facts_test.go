package digitalocean

import (
	"context"
	"testing"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
)

// A list of all volumes that began before one was made ends after a look at that one, and forgets it.
func TestWhatALookTellsOutlivesAnOlderList(t *testing.T) {
	var c Cloud
	vol := &godo.Volume{ID: "a", Name: "pvc-1", Region: &godo.Region{Slug: "fra1"}, SizeGigaBytes: 7}
	c.states = poll.NewShared(poll.SharedConfig[cloud.VolumeID, *godo.Volume]{Source: poll.Source[cloud.VolumeID, *godo.Volume]{
		One: func(context.Context, cloud.VolumeID) (*godo.Volume, error) {
			c.known.saw(vol, true)
			c.known.sawAll(nil)
			return vol, nil
		},
	}})
	t.Cleanup(c.states.Close)
	f, err := c.know(t.Context(), "a")
	if want := (fact{name: "pvc-1", region: "fra1", gib: 7}); err != nil || f != want {
		t.Errorf("know = %+v, %v, want %+v", f, err, want)
	}
}
