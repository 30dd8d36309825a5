//go:build vm

package vm

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// moveTo makes the volume one of another machine, where nothing of it is attached.
func (v *volume) moveTo(h *host) {
	v.t.Helper()
	v.host = h
	v.run("mkdir -p %s $(dirname %s)", v.staging, v.target)
}

// uuid is the UUID of the filesystem, as the host reads it from the disk's file.
func (v *volume) uuid() string {
	v.t.Helper()
	out, err := exec.Command("/sbin/blkid", "-p", "-o", "value", "-s", "UUID", v.disk.File).Output()
	if err != nil || len(out) == 0 {
		v.t.Fatalf("blkid of the disk of %s = %q, %v", v.id, out, err)
	}
	return strings.TrimSpace(string(out))
}

// F6: the test ends QEMU while files are written. What was synced is there on the next machine, and no filesystem is
// made again.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	first := ownMachine(t, vm.DigitalOcean).machine
	var volumes []*volume
	var sums, uuids []string
	for i, fs := range []string{"ext4", "xfs", "ext4"} {
		v := first.host(t, []string{vm.DigitalOcean, vm.Yandex}[i%2]).newVolume(fs, sizeFor(fs))
		v.attach()
		v.ok(v.stage, v.publish)
		volumes, sums = append(volumes, v), append(sums, v.fill("synced", mib))
		v.run("sync -f %s", v.target)
		uuids = append(uuids, v.uuid())
		v.run(`cd %s; setsid bash -c 'while :; do for i in 1 2 3; do head -c 50K /dev/urandom >written-$i; mkdir -p d$i; mv written-$i d$i; done; sync -f .; touch turns; done' >/dev/null 2>&1 </dev/null &`, v.target)
	}
	for _, v := range volumes {
		v.run("until [ -e %s/turns ]; do sleep 0.1; done", v.target)
	}
	first.guest.Kill()

	second := ownMachine(t, vm.DigitalOcean).machine
	for i, v := range volumes {
		v.moveTo(second.host(t, v.cloud))
		v.attach()
		v.ok(v.stage, v.publish)
		v.wantSum("synced", sums[i])
		v.fill("after", mib)
		v.down()
		if got := v.uuid(); got != uuids[i] {
			t.Errorf("%s: the filesystem has UUID %s, want %s: it was made again", v.fs, got, uuids[i])
		}
	}
}

// F1, F15: the test ends QEMU when mkfs has begun to write. The next machine has no record of it: it serves a filesystem
// that is whole, and leaves everything else as it is.
func TestPowerCutDuringMkfs(t *testing.T) {
	notShort(t)
	t.Parallel()
	first := ownMachine(t, vm.DigitalOcean)
	volumes := []*volume{first.newVolume("ext4", 2*gib), first.newVolume("xfs", 2*gib)}
	for _, v := range volumes {
		v.attach()
	}
	var calls sync.WaitGroup // they end with the machine
	for _, v := range volumes {
		calls.Go(func() { _ = v.stage() })
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx := within(t); !begun(t, volumes); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("mkfs has not begun")
		}
	}
	first.guest.Kill()
	calls.Wait()

	second := ownMachine(t, vm.DigitalOcean)
	for _, v := range volumes {
		v.moveTo(second)
		v.attach()
		before := v.content()
		if err := v.stage(); err != nil {
			wantCode(t, "stage of a disk with half a "+v.fs, err, codes.FailedPrecondition)
			if v.content() != before {
				t.Errorf("%s: stage has written to the disk", v.fs)
			}
			continue
		}
		v.ok(v.publish)
		want := v.fill("data", mib)
		v.ok(v.unpublish, v.unstage, v.stage, v.publish)
		v.wantSum("data", want)
		v.down()
	}
}

// begun reports whether something has been written to each disk.
func begun(t testing.TB, volumes []*volume) bool {
	t.Helper()
	for _, v := range volumes {
		var st unix.Stat_t
		must(t, unix.Stat(v.disk.File, &st))
		if st.Blocks == 0 {
			return false
		}
	}
	return true
}
