package digitalocean_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// A2: an attach whose volume cannot be read for a while keeps no other volume's detach from the droplet.
func TestADetachDoesNotWaitForTheNameOfAnotherVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		before := open(t, account)
		coming, going := volume(t, before, "coming").ID, volume(t, before, "going").ID
		attach(t, before, going, node1)
		c := open(t, account) // knows no names
		account.Arm(emulator.Fault{Method: "GET", Route: "/v2/volumes", Effect: faults.Effect{Delay: clock.Fixed(30 * time.Second)}})
		account.Arm(emulator.Fault{Method: "GET", Route: "/v2/volumes/{volume_id}", Effect: faults.Effect{Delay: clock.Fixed(30 * time.Second)}})
		began, attached := time.Now(), make(chan error)
		go func() {
			_, err := c.Attach(t.Context(), coming, node1)
			attached <- err
		}()
		time.Sleep(time.Second)
		must(t, c.Detach(t.Context(), going, node1))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the detach ended after %s", took)
		}
		must(t, <-attached)
		at(t, account, coming, droplet1)
	})
}
