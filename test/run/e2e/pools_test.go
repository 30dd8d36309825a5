//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// C14: the test takes a volume in each of two pools through its life, and takes the disk of one pool away.
func TestTwoPools(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, name := range []string{"slow", "fast"} {
		noError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	slow, fast := hostDisk(t, filepath.Join(dir, "slow"), "xfs", gib), hostDisk(t, filepath.Join(dir, "fast"), "xfs", 2*gib)
	disk := strings.TrimSpace(command(t, "findmnt", "-no", "SOURCE", fast))
	pair := start(t, programs.Options{Dir: dir, Pool: slow, Flags: []string{"--local-pool=fast=" + fast}})
	class := map[string]string{"pool": "fast"}
	controller, node := csi.NewControllerClient(pair.Controller.Conn), csi.NewNodeClient(pair.Node.Conn)
	capacity := func(class map[string]string) int64 {
		t.Helper()
		answer, err := controller.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: class})
		if err != nil {
			t.Error(err)
		}
		return answer.GetAvailableCapacity()
	}
	health := func() string {
		t.Helper()
		answer, err := node.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
		if err != nil {
			t.Error(err)
		}
		var all []string
		for _, h := range answer.GetBackendHealth() {
			all = append(all, h.GetStatus().String()+" "+h.GetReason())
		}
		return strings.Join(all, ", ")
	}
	if free, freeFast := capacity(nil), capacity(class); free >= gib || freeFast <= gib || capacity(map[string]string{"pool": "none"}) != 0 {
		t.Errorf("GetCapacity = %d, and %d of the pool fast", free, freeFast)
	}
	a := create(t, pair, programs.Claim{Name: "a", Filesystem: "xfs", Size: 320 * mib})
	b := create(t, pair, programs.Claim{Name: "b", Filesystem: "xfs", Size: 320 * mib, Parameters: class})
	for v, pool := range map[*programs.Volume]string{a: slow, b: fast} {
		must(t, v.Stage, v.Publish)
		write(t, data(v), 1, 8*mib)
		image := filepath.Join(pool, "volumes", filepath.Base(v.ID)+".img")
		if loops := strings.TrimSpace(command(t, "losetup", "-nO", "NAME", "-j", image)); strings.Count(loops, "/dev/loop") != 1 {
			t.Errorf("loop devices of %s: %q", image, loops)
		}
		if size, err := v.Expand(t.Context(), v.Size+64*mib); err != nil || size != v.Size+64*mib {
			t.Errorf("Expand = %d, %v", size, err)
		}
		if _, err := v.Stats(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for name, other := range map[string]map[string]string{"a": class, "b": nil} {
		_, err := pair.Create(t.Context(), programs.Claim{Name: name, Filesystem: "xfs", Size: 320 * mib, Parameters: other})
		wantCode(t, "Create of "+name+" in the other pool", err, codes.AlreadyExists)
	}
	wantNo := func(what, got string) {
		t.Helper()
		if got != "" {
			t.Errorf("%s: %s", what, got)
		}
	}
	wantNo("health of the storage", health())
	list := func(more ...string) (string, error) {
		args := append([]string{"volumes", "--cloud=local", "--local-pool=" + slow, "--local-pool=fast=" + fast}, more...)
		out, err := exec.CommandContext(t.Context(), filepath.Join(binaries(t), "cloudblock-controller"), args...).Output()
		return string(out), err
	}
	table, err := list()
	for v, pool := range map[*programs.Volume]string{a: "default", b: "fast"} {
		if err != nil || !strings.Contains(table, v.ID) || !strings.Contains(v.ID, "/"+pool+"/") {
			t.Errorf("volumes = %v, without volume %s in the pool %s:\n%s", err, v.ID, pool, table)
		}
	}
	e := create(t, pair, programs.Claim{Name: "e", Filesystem: "ext4", Size: 64 * mib, Parameters: class})
	if out, err := list("--delete", e.ID); err != nil || !strings.Contains(out, e.ID) {
		t.Errorf("volumes --delete = %q, %v", out, err)
	}

	command(t, "umount", "-l", fast) // the volume's filesystem and its loop device live on
	createFast := func() error {
		t.Helper()
		_, err := pair.Create(t.Context(), programs.Claim{Name: "d", Filesystem: "ext4", Size: 64 * mib, Parameters: class})
		return err
	}
	wantCode(t, "Create in the pool whose disk was taken away", createFast(), codes.Unavailable)
	if got := health(); got != "STORAGE_DEGRADED PoolUnavailable" {
		t.Errorf("health of the storage = %q", got)
	}
	both := []*programs.Program{pair.Controller, pair.Node}
	for _, p := range both {
		p.Stop()
	}
	for _, p := range both {
		if err := p.Start(t.Context()); err != nil {
			t.Fatalf("start without the disk of one pool: %v", err)
		}
	}
	must(t, a.Unpublish, a.Unstage, a.Stage, a.Publish)
	wantBytes(t, data(a), 1, 8*mib)
	c := create(t, pair, programs.Claim{Name: "c", Filesystem: "ext4", Size: 64 * mib})
	must(t, c.Stage, c.Publish, c.Unpublish, c.Unstage, c.Delete)
	must(t, b.Unpublish) // its pod can go. For programs that have not had the pool it is not of this node
	wantCode(t, "Unstage of the missing pool's volume", b.Unstage(t.Context()), codes.FailedPrecondition)
	wantCode(t, "Stage of the missing pool's volume", b.Stage(t.Context()), codes.FailedPrecondition)
	wantCode(t, "Delete of the missing pool's volume", b.Delete(t.Context()), codes.FailedPrecondition)
	wantCode(t, "Create in a pool of other nodes", createFast(), codes.ResourceExhausted)
	wantNo("health of the storage without the disk", health())
	if files, err := os.ReadDir(fast); err != nil || len(files) > 0 {
		t.Errorf("the bare folder holds %v, %v", files, err)
	}

	if table, err := list("--output=json"); err == nil || !strings.Contains(table, a.ID) || strings.Contains(table, b.ID) {
		t.Errorf("volumes without the disk of one pool = %v:\n%s", err, table)
	}

	command(t, "mount", disk, fast)
	must(t, b.Unstage, b.Stage, b.Publish)
	wantBytes(t, data(b), 1, 8*mib)
	wantNo("health of the storage with the disk back", health())
	must(t, b.Unpublish, b.Unstage, b.Delete, a.Unpublish, a.Unstage, a.Delete)
}
