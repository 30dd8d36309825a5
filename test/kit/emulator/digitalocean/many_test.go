package digitalocean_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

// TestManyClientsAtOnce takes 100 volumes through their life, 16 at a time, on 10 droplets, with a
// client that only knows to try again.
func TestManyClientsAtOnce(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Droplets: 10, Durations: emulator.Actions(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond})})
	api, droplets := client(t, c), c.Droplets()
	work := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := range work {
				if err := live(t, c, api, fmt.Sprintf("pvc-%d", i), droplets[i%len(droplets)]); err != nil {
					t.Errorf("volume %d: %v", i, err)
				}
			}
		})
	}
	for i := range 100 {
		work <- i
	}
	close(work)
	workers.Wait()
	stats := c.Stats()
	for droplet, most := range stats.MaxParallel {
		if most != 1 {
			t.Errorf("%d actions at once on droplet %d", most, droplet)
		}
	}
	if len(stats.MaxParallel) != 10 || len(c.Operations()) != 400 || len(c.Volumes()) != 0 {
		t.Errorf("%d droplets, %d operations, %d volumes left, want 10, 400, 0", len(stats.MaxParallel), len(c.Operations()), len(c.Volumes()))
	}
}

func live(t *testing.T, c *emulator.Cloud, api *godo.Client, name string, droplet int) error {
	v, _, err := api.Storage.CreateVolume(t.Context(), &godo.VolumeCreateRequest{Name: name, Region: "fra1", SizeGigaBytes: 1})
	if err != nil {
		return err
	}
	act := func(begin func() (*godo.Action, *godo.Response, error), droplet int) error {
		var failed error
		waitFor(t, name+" has changed", func() bool {
			_, resp, err := begin()
			if err != nil && resp.StatusCode != http.StatusUnprocessableEntity {
				failed = err
			}
			now, _ := c.Volume(v.ID)
			return failed != nil || now.DropletID == droplet
		})
		return failed
	}
	if err := act(func() (*godo.Action, *godo.Response, error) {
		return api.StorageActions.Attach(t.Context(), v.ID, droplet)
	}, droplet); err != nil {
		return err
	}
	if err := act(func() (*godo.Action, *godo.Response, error) {
		return api.StorageActions.DetachByDropletID(t.Context(), v.ID, droplet)
	}, 0); err != nil {
		return err
	}
	_, err = api.Storage.DeleteVolume(t.Context(), v.ID)
	return err
}
