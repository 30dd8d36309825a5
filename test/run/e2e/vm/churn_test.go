//go:build vm

package vm

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

var churnCycles = flag.Int("churn", 40, "how often TestChurn takes a volume up and down")

// churned is a volume and the checksums of its files.
type churned struct {
	*volume
	up   bool
	sums map[string]string
}

// raise attaches, stages and publishes the volume, and wants its files to be as they were.
func (c *churned) raise() {
	c.t.Helper()
	c.attach()
	c.use()
}

func (c *churned) use() {
	c.t.Helper()
	c.ok(c.stage, c.publish)
	c.up = true
	for _, name := range slices.Sorted(maps.Keys(c.sums)) {
		if got := c.sum(name); got != c.sums[name] {
			c.t.Fatalf("%s of volume %s has checksum %s, want %s", name, c.id, got, c.sums[name])
		}
	}
}

// write writes one of a few files again.
func (c *churned) write(rng *rand.Rand) {
	c.t.Helper()
	name := fmt.Sprintf("file-%d", rng.IntN(4))
	c.sums[name] = c.fill(name, 64*1024+rng.Int64N(mib))
}

func (c *churned) lower() {
	c.t.Helper()
	c.down()
	c.detach()
	c.up = false
}

// F6: the test takes eight volumes of all clouds up and down in random order, so that kernel names change hands, and
// resets the machine in the middle while some are in use. Every file is checked each time.
func TestChurn(t *testing.T) {
	notShort(t)
	t.Parallel()
	const seed = 16
	cycles := *churnCycles
	t.Logf("seed %d, %d cycles", seed, cycles)
	rng := rand.New(rand.NewPCG(seed, seed))
	machine := ownMachine(t, vm.DigitalOcean).machine
	var volumes []*churned
	for i := range 8 {
		fs := []string{"ext4", "xfs"}[i%2]
		v := machine.host(t, clouds[i%len(clouds)]).newVolume(fs, sizeFor(fs))
		volumes = append(volumes, &churned{volume: v, sums: map[string]string{}})
	}
	hasReset := false
	for cycle := 0; cycle < cycles; {
		c := volumes[rng.IntN(len(volumes))]
		if !c.up {
			c.raise()
			c.write(rng)
			continue
		}
		c.lower()
		cycle++
		if inUse := slices.IndexFunc(volumes, func(c *churned) bool { return c.up }); !hasReset && cycle >= cycles/2 && inUse >= 0 {
			hasReset = true
			machine.reset(t)
			for _, c := range volumes {
				if c.up {
					c.use()
				}
			}
		}
	}
	if !hasReset {
		t.Error("the machine was not reset: no volume was in use in the second half")
	}
	for _, c := range volumes {
		if c.up {
			c.lower()
		}
	}
}

// reset reboots the guest at once and starts its node programs again.
func (m *machine) reset(t *testing.T) {
	t.Helper()
	must(t, m.guest.Reset(within(t)))
	for _, n := range m.nodes {
		must(t, n.Start(within(t)))
	}
}
