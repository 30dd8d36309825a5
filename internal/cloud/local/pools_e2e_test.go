//go:build e2e

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

var (
	fast    = []cloud.Parameter{{Name: local.ParamPool, Value: "fast"}}
	nowhere = []cloud.Parameter{{Name: local.ParamPool, Value: "nowhere"}}
)

// openTwo opens the pool without a name and the pool fast, inside the program's decorators.
func openTwo(t *testing.T, dir, fastDir string) (cloud.Cloud, *local.Local) {
	t.Helper()
	return openPools(t, pool.Config{Dir: dir}, pool.Config{Name: "fast", Dir: fastDir})
}

func openPools(t *testing.T, pools ...pool.Config) (cloud.Cloud, *local.Local) {
	t.Helper()
	l, err := local.New(t.Context(), local.Config{Node: node, Pools: pools})
	must(t, err)
	cloudtest.CloseAfter(t, l.Close)
	return middleware.Stack(l, wait.Backoff{}), l
}

// TestContractOnTwoPools runs the suite over two pools: volumes with parameters are in the pool with a name.
func TestContractOnTwoPools(t *testing.T) {
	var dir string // of the pool without a name
	h := harness(nil)
	h.New = func(t *testing.T) cloud.Cloud {
		dir = disk(t, 3<<30, "mkfs.xfs")
		_, l := openTwo(t, dir, disk(t, 3<<30, "mkfs.xfs"))
		return l
	}
	h.InUse = func(t *testing.T, id cloud.VolumeID) func() { return use(t, dir, id) }
	h.Sick = nil
	h.Parameters = fast
	h.CapacitySlack = slack
	cloudtest.Run(t, h)
}

func TestClassesOfTwoPools(t *testing.T) {
	dir, fastDir := disk(t, 1<<30, "mkfs.xfs"), disk(t, 2<<30, "mkfs.xfs")
	c, _ := openTwo(t, dir, fastDir)
	capacity := func(class []cloud.Parameter) cloud.Bytes {
		t.Helper()
		free, err := c.Capacity(t.Context(), node, class)
		if err != nil {
			t.Errorf("Capacity(%v) = %v", class, err)
		}
		return free
	}
	create := func(name string, class []cloud.Parameter, from cloud.Source) (cloud.Volume, error) {
		return c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: name, Size: 64 * cloud.MiB, Parameters: class, Source: from})
	}
	free, freeFast := capacity(unnamed), capacity(fast)
	if free >= 1<<30 || freeFast <= 1<<30 || capacity(nil) < free-slack || capacity(nil) > free+slack || capacity(nowhere) != 0 {
		t.Errorf("Capacity = %s, %s of the pool fast, %s without a class, %s of no pool", free, freeFast, capacity(nil), capacity(nowhere))
	}
	a, err := create("a", unnamed, cloud.Source{})
	wantKind(t, "CreateVolume", err, fault.None)
	b, err := create("b", fast, cloud.Source{})
	wantKind(t, "CreateVolume in the pool fast", err, fault.None)
	for vol, where := range map[*cloud.Volume]string{&a: dir, &b: fastDir} {
		if _, err := os.Stat(filepath.Join(where, "volumes", vol.Device.Name)); err != nil {
			t.Errorf("volume %s: %v", vol.Name, err)
		}
	}
	if capacity(unnamed) >= free || capacity(fast) >= freeFast {
		t.Errorf("Capacity = %s, %s, want less than %s, %s", capacity(unnamed), capacity(fast), free, freeFast)
	}
	_, err = create("c", nowhere, cloud.Source{})
	wantKind(t, "CreateVolume in a pool of other nodes", err, fault.Exhausted)
	if err == nil || !strings.Contains(err.Error(), "default, fast") {
		t.Errorf("CreateVolume = %v, want the pools that there are", err)
	}
	_, err = create("c", []cloud.Parameter{{Name: local.ParamPool, Value: "../x"}}, cloud.Source{})
	wantKind(t, "CreateVolume in a pool that cannot be", err, fault.InvalidArgument)

	// A repeated create finds the volume.
	again, err := create("b", fast, cloud.Source{})
	if err != nil || again.ID != b.ID {
		t.Errorf("CreateVolume again = %+v, %v, want %s", again, err, b.ID)
	}

	snap, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "s", Volume: b.ID})
	wantKind(t, "CreateSnapshot", err, fault.None)
	for what, from := range map[string]cloud.Source{"restore": {Snapshot: snap.ID}, "clone": {Volume: b.ID}} {
		_, err = create(what, unnamed, from)
		wantKind(t, what+" into another pool", err, fault.InvalidArgument)
		_, err = create(what, fast, from)
		wantKind(t, what+" into the same pool", err, fault.None)
	}
	list, err := c.ListVolumes(t.Context(), cloud.Page{Most: 3})
	if err != nil || len(list.Volumes) != 3 {
		t.Fatalf("ListVolumes = %+v, %v", list, err)
	}
	rest, err := c.ListVolumes(t.Context(), cloud.Page{Token: list.Next})
	if err != nil || len(rest.Volumes) != 1 {
		t.Errorf("the second page = %+v, %v", rest, err)
	}
	for _, vol := range append(list.Volumes, rest.Volumes...) {
		wantKind(t, "DeleteVolume", c.DeleteVolume(t.Context(), vol.ID), fault.None)
	}
	wantKind(t, "DeleteSnapshot", c.DeleteSnapshot(t.Context(), snap.ID), fault.None)
	if capacity(unnamed) < free-slack || capacity(fast) < freeFast-slack {
		t.Errorf("Capacity = %s, %s, want nearly %s, %s as at first", capacity(unnamed), capacity(fast), free, freeFast)
	}
}

// C14: the disk of one pool is not mounted: its volumes are neither gone nor created again, and the other pool works. A
// program that had opened the pool waits for it; a program that is started later treats the node as one without that
// pool.
func TestOneOfTwoPoolsIsMissing(t *testing.T) {
	dir, fastDir := disk(t, 1<<30, "mkfs.xfs"), disk(t, 1<<30, "mkfs.xfs")
	source, err := exec.CommandContext(t.Context(), "findmnt", "-no", "SOURCE", fastDir).Output()
	must(t, err)
	// The second mount keeps the disk's loop device while the first is unmounted.
	device, kept := strings.TrimSpace(string(source)), t.TempDir()
	command(t, "mount", device, kept)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", kept).Run() })
	c, _ := openTwo(t, dir, fastDir)
	create := func(c cloud.Cloud, name string, class []cloud.Parameter) (cloud.Volume, error) {
		return c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: name, Size: 64 * cloud.MiB, Parameters: class})
	}
	a, err := create(c, "a", unnamed)
	wantKind(t, "CreateVolume", err, fault.None)
	b, err := create(c, "b", fast)
	wantKind(t, "CreateVolume in the pool fast", err, fault.None)

	command(t, "umount", fastDir)
	restarted, _ := openTwo(t, dir, fastDir)
	for when, c := range map[string]cloud.Cloud{"while it runs": c, "at the start": restarted} {
		wantKind(t, when+": GetVolume", onlyErr(c.GetVolume(t.Context(), b.ID)), fault.Precondition)
		wantKind(t, when+": DeleteVolume", c.DeleteVolume(t.Context(), b.ID), fault.Precondition)
		again, rest := fault.Uncertain, fault.Precondition
		if c == restarted {
			again, rest = fault.Exhausted, fault.None
		}
		wantKind(t, when+": CreateVolume again", onlyErr(create(c, "b", fast)), again)
		wantKind(t, when+": ListVolumes", onlyErr(c.ListVolumes(t.Context(), cloud.Page{})), rest)
		wantKind(t, when+": Check", c.Check(t.Context()), rest)
		if free, err := c.Capacity(t.Context(), node, fast); err != nil || free != 0 {
			t.Errorf("%s: Capacity = %s, %v, want none", when, free, err)
		}
		wantKind(t, when+": GetVolume of the other pool", onlyErr(c.GetVolume(t.Context(), a.ID)), fault.None)
		wantKind(t, when+": CreateVolume in the other pool", onlyErr(create(c, "during "+when, unnamed)), fault.None)
		if free, err := c.Capacity(t.Context(), node, unnamed); err != nil || free == 0 {
			t.Errorf("%s: Capacity of the other pool = %s, %v", when, free, err)
		}
	}
	if left, err := os.ReadDir(fastDir); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}

	command(t, "mount", device, fastDir)
	for when, c := range map[string]cloud.Cloud{"while it runs": c, "at the start": restarted} {
		wantKind(t, "back, lost "+when+": Check", c.Check(t.Context()), fault.None)
		again, err := create(c, "b", fast)
		if err != nil || again.ID != b.ID {
			t.Errorf("back, lost %s: CreateVolume again = %+v, %v, want %s", when, again, err, b.ID)
		}
	}

	// The volumes of the pool exist without its flag too.
	one, _ := openPools(t, at(t, dir))
	wantKind(t, "without its flag: DeleteVolume", one.DeleteVolume(t.Context(), b.ID), fault.Precondition)
	wantKind(t, "without its flag: GetVolume", onlyErr(one.GetVolume(t.Context(), b.ID)), fault.Precondition)
	wantKind(t, "without its flag: Check", one.Check(t.Context()), fault.None)
	wantKind(t, "GetVolume", onlyErr(c.GetVolume(t.Context(), b.ID)), fault.None)
	wantKind(t, "DeleteVolume", c.DeleteVolume(t.Context(), b.ID), fault.None)
}

func onlyErr[T any](_ T, err error) error { return err }

// TestPoolThatThisNodeDoesNotHave: nodes have the same flags and different disks.
func TestPoolThatThisNodeDoesNotHave(t *testing.T) {
	bare := t.TempDir()
	c, _ := openTwo(t, disk(t, 1<<30, "mkfs.xfs"), bare)
	if free, err := c.Capacity(t.Context(), node, fast); err != nil || free != 0 {
		t.Errorf("Capacity = %s, %v, want none", free, err)
	}
	_, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size, Parameters: fast})
	wantKind(t, "CreateVolume", err, fault.Exhausted)
	wantKind(t, "Check", c.Check(t.Context()), fault.None)
	wantKind(t, "ListVolumes", onlyErr(c.ListVolumes(t.Context(), cloud.Page{})), fault.None)
	wantKind(t, "DeleteVolume of none", c.DeleteVolume(t.Context(), cloud.VolumeID(node+"/fast/"+strings.Repeat("0", 32))), fault.Precondition)
	if left, err := os.ReadDir(bare); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}

	// The disk is mounted while the program is running.
	mount(t, bare, 1<<30, "mkfs.xfs")
	_, err = c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size, Parameters: fast})
	wantKind(t, "CreateVolume with the disk", err, fault.None)
}
