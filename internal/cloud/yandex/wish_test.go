package yandex_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

const labelGrow = "cloudblock-grow"

// refusing returns a folder that does not let disks grow while attached, and a disk there whose growth to 5 GiB
// was refused.
func refusing(t *testing.T) (*emulator.Cloud, *yandex.Cloud, cloud.VolumeID) {
	t.Helper()
	folder := start(t, emulator.Options{Rules: emulator.Rules{ResizeRefused: true}, Durations: emulator.Each(clock.Fixed(10 * time.Millisecond))})
	c := open(t, folder)
	id := attached(t, c)
	_, err := c.ExpandVolume(t.Context(), id, 5*cloud.GiB)
	want(t, err, fault.Precondition, "scale the workload to zero", machine1, "attached to non-stopped instance")
	wished(t, folder, id, "5368709120")
	return folder, c, id
}

// wished fails the test unless the disk has exactly this wish ("": none).
func wished(t *testing.T, folder *emulator.Cloud, id cloud.VolumeID, label string) {
	t.Helper()
	d, _ := folder.Disk(string(id))
	if got, has := d.Labels[labelGrow]; got != label || has != (label != "") {
		t.Errorf("the disk has the wish %q, want %q", got, label)
	}
	if d.Labels["cloudblock-name-hash"] == "" {
		t.Errorf("the disk has lost its labels: %v", d.Labels)
	}
}

// grown waits until the disk has the size and no wish.
func grown(t *testing.T, folder *emulator.Cloud, id cloud.VolumeID, gib int64) {
	t.Helper()
	until(t, fmt.Sprintf("the disk has %d GiB and no wish", gib), func() bool {
		d, _ := folder.Disk(string(id))
		_, wish := d.Labels[labelGrow]
		return d.Size == gib<<30 && !wish
	})
}

// E4: a wish is carried out after the detach, which does not wait for it, and the attach that follows joins it.
func TestAWishIsCarriedOutBetweenDetachAndAttach(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder, c, id := refusing(t)
		folder.Arm(emulator.Fault{Route: updateDisk, Body: `"size"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(300 * time.Millisecond)}})
		must(t, c.Detach(t.Context(), id, node1))
		if d, _ := folder.Disk(string(id)); d.Size != 1<<30 {
			t.Errorf("the detach waited for the growth: %+v", d)
		}
		_, err := c.Attach(t.Context(), id, node2)
		must(t, err)
		grown(t, folder, id, 5)
		at(t, folder, id, machine2)
	})
}

// A10 and E4: the wish stands on the disk, so it outlives the controller, before the detach and after it.
func TestAWishOutlivesTheController(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder, c, id := refusing(t)
		must(t, c.Close(t.Context()))
		second := open(t, folder)
		must(t, second.Detach(t.Context(), id, node1))
		grown(t, folder, id, 5)

		folder, c, id = refusing(t)
		must(t, c.Close(t.Context()))
		folder.Attached(string(id), "") // somebody else has detached it
		third := open(t, folder)
		_, err := third.Attach(t.Context(), id, node2)
		must(t, err)
		grown(t, folder, id, 5)
		at(t, folder, id, machine2)
	})
}

// A wish that fails never blocks a pod: it is tried once per detach or attach, and says why on the disk.
func TestAWishThatFailsBlocksNoAttach(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder, c, id := refusing(t)
		folder.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 2 << 30 })
		folder.ResetStats()
		must(t, c.Detach(t.Context(), id, node1))
		_, err := c.Attach(t.Context(), id, node2)
		must(t, err)
		at(t, folder, id, machine2)
		d, _ := folder.Disk(string(id))
		if label := d.Labels[labelGrow]; !strings.HasPrefix(label, "5368709120.quota_limit_compute.disks.size") {
			t.Errorf("the disk has the wish %q, want one that says why it failed", label)
		}
		if n := folder.Stats().Routes["Update DiskService/Update"] + folder.Stats().Routes["DiskService/Update"]; n > 4 {
			t.Errorf("the growth was tried %d times for one detach and one attach", n)
		}
		folder.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 0 })
		must(t, c.Detach(t.Context(), id, node2))
		grown(t, folder, id, 5)
	})
}

func TestTheLastWishCountsAndOneThatIsFulfilledGoes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder, c, id := refusing(t)
		_, err := c.ExpandVolume(t.Context(), id, 7*cloud.GiB)
		want(t, err, fault.Precondition)
		wished(t, folder, id, "7516192768")
		_, err = c.ExpandVolume(t.Context(), id, 3*cloud.GiB)
		want(t, err, fault.Precondition)
		wished(t, folder, id, "3221225472")
		exp, err := c.ExpandVolume(t.Context(), id, cloud.GiB)
		if err != nil || exp.Size != cloud.GiB {
			t.Errorf("ExpandVolume to the present size = %+v, %v", exp, err)
		}
		wished(t, folder, id, "")
		_, err = c.ExpandVolume(t.Context(), id, 5*cloud.GiB)
		want(t, err, fault.Precondition)
		folder.SetRules(func(r *emulator.Rules) { r.ResizeRefused = false })
		_, err = c.ExpandVolume(t.Context(), id, 6*cloud.GiB)
		must(t, err)
		grown(t, folder, id, 6)
	})
}

// E4: each sidecar has a lease of its own, so one controller writes the wish and another detaches and attaches,
// which has known the disk since before it had one.
func TestAWishIsCarriedOutByAnotherController(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder, resizing, id := refusing(t)
		attaching := open(t, folder)
		must(t, attaching.Detach(t.Context(), id, node1)) // knows the disk with its wish
		grown(t, folder, id, 5)
		_, err := attaching.Attach(t.Context(), id, node1)
		must(t, err)
		_, err = resizing.ExpandVolume(t.Context(), id, 7*cloud.GiB)
		want(t, err, fault.Precondition)
		must(t, attaching.Detach(t.Context(), id, node1))
		_, err = attaching.Attach(t.Context(), id, node2)
		must(t, err)
		grown(t, folder, id, 7)
		at(t, folder, id, machine2)
	})
}

// E3: what can never be is OutOfRange at once and leaves no wish.
func TestAGrowthThatCanNeverBe(t *testing.T) {
	folder := start(t, emulator.Options{Rules: emulator.Rules{ResizeRefused: true}})
	c := open(t, folder)
	id := attached(t, c)
	for _, size := range []cloud.Bytes{9 * cloud.TiB, 27 * cloud.TiB, 5 * cloud.TiB} { // above the block size's, the cloud's, and a change's largest
		_, err := c.ExpandVolume(t.Context(), id, size)
		want(t, err, fault.OutOfRange)
	}
	wished(t, folder, id, "")
}

// E4: what others write on the disk while a growth waits for its turn stays: another wish, which is not this one, and
// labels of people.
func TestAGrowthTakesNothingOffButItsOwnWish(t *testing.T) {
	for name, size := range map[string]int64{"a larger wish": 7 << 30, "a smaller wish": 3 << 30, "no wish": 0} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder, c, id := refusing(t)
				label := ""
				if size > 0 {
					label = fmt.Sprint(size)
				}
				busy := folder.Arm(emulator.Fault{Route: updateDisk, Body: `"size"`, Effect: faults.Effect{Status: int(codes.Aborted)}})
				must(t, c.Detach(t.Context(), id, node1))
				until(t, "the growth is refused", func() bool { return busy.Hits() > 1 })
				folder.ChangeDisk(string(id), func(d *emulator.Disk) {
					d.Labels = maps.Clone(d.Labels)
					d.Labels["team"] = "blue"
					delete(d.Labels, labelGrow)
					if size > 0 {
						d.Labels[labelGrow] = label
					}
				})
				busy.Disarm()
				until(t, "the disk has 5 GiB", func() bool { d, _ := folder.Disk(string(id)); return d.Size == 5<<30 })
				time.Sleep(time.Minute)
				if size < 5<<30 {
					label = "" // it is fulfilled
				}
				wished(t, folder, id, label)
				if d, _ := folder.Disk(string(id)); d.Labels["team"] != "blue" {
					t.Errorf("the disk has lost a label: %v", d.Labels)
				}
			})
		})
	}
}
