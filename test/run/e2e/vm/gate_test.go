//go:build vm

package vm

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// insist repeats steps that end with Unavailable, as the kubelet does.
func (v *volume) insist(steps ...func() error) {
	v.t.Helper()
	for i, step := range steps {
		err := step()
		for ctx := within(v.t); status.Code(err) == codes.Unavailable && ctx.Err() == nil; {
			err = step()
		}
		if err != nil {
			v.t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// F2, F3: the link changes all the time while the node program reads, formats, mounts and releases: it uses the volume's
// own disk or ends with Unavailable, and never touches the other.
func TestLinkThatChangesDuringStage(t *testing.T) {
	notShort(t)
	onEachCloud(t, func(t *testing.T, h *host) {
		v, other := h.newVolume("ext4", 64*mib), h.newVolume("ext4", 64*mib)
		disk, otherDisk := v.attach(), other.attach()
		before := other.content()
		h.run(`cd /dev/disk/by-id; rm -f /run/flips
			setsid bash -c 'while :; do ln -sfn ../../%[2]s %[1]s; ln -sfn ../../%[3]s %[1]s; echo >>/run/flips; done' >/dev/null 2>&1 </dev/null &
			echo $! >/run/flipping; until [ -s /run/flips ]; do sleep 0.1; done`, v.disk.Link(), disk, otherDisk)
		t.Cleanup(func() { h.run("kill $(cat /run/flipping)") })
		want := ""
		for range 5 {
			v.insist(v.stage, v.publish)
			v.wantServedBy(disk)
			if want == "" {
				want = v.fill("data", mib)
			} else {
				v.wantSum("data", want)
			}
			v.insist(v.unpublish, v.unstage)
		}
		if other.content() != before {
			t.Error("the other disk was changed")
		}
	})
}

// copied makes a volume whose disk has the content of this one's, as a cloud's snapshot or clone has it.
func (v *volume) copied() *volume {
	v.t.Helper()
	st, err := os.Stat(v.disk.File)
	must(v.t, err)
	c := v.newVolume(v.fs, st.Size())
	if out, err := exec.Command("cp", "--sparse=always", v.disk.File, c.disk.File).CombinedOutput(); err != nil {
		v.t.Fatalf("%v: %s", err, out)
	}
	c.context.Content = driver.ContentCopy
	return c
}

// F7: a copy of a volume is never formatted: with a filesystem it is used as it is, next to its source, and without one
// it is refused.
func TestCopyIsNeverFormatted(t *testing.T) {
	notShort(t)
	onEachCloud(t, func(t *testing.T, h *host) {
		blank := h.newVolume("ext4", 64*mib)
		blank.context.Content = driver.ContentCopy
		blank.attach()
		blank.wantRefused("never formatted")
		for _, fs := range []string{"ext4", "xfs"} {
			source := h.newVolume(fs, sizeFor(fs))
			source.attach()
			source.ok(source.stage, source.publish)
			want := source.fill("data", mib)
			source.down()
			c := source.copied()
			id := c.uuid()
			c.attach()
			source.ok(source.stage, source.publish)
			c.ok(c.stage, c.publish)
			c.wantSum("data", want)
			c.down()
			source.down()
			if got := c.uuid(); got != id {
				t.Errorf("%s: the copy has UUID %s, and had %s: it was made again", fs, got, id)
			}
		}
	})
}

// F9: a staging path that holds something else is not taken for the volume.
func TestOccupiedStagingPath(t *testing.T) {
	notShort(t)
	onEachCloud(t, func(t *testing.T, h *host) {
		other := h.newVolume("ext4", 64*mib)
		other.attach()
		other.ok(other.stage)
		for what, script := range map[string]string{
			"a tmpfs":        "mount -t tmpfs none %s",
			"another volume": "mount --bind " + other.staging + " %s",
			"a file":         "touch %s/lost",
		} {
			v := h.newVolume("ext4", 64*mib)
			v.attach()
			v.run(script, v.staging)
			before, mounts := v.content(), v.mounts()
			wantCode(t, "stage over "+what, v.stage(), codes.AlreadyExists)
			if v.content() != before || v.mounts() != mounts {
				t.Errorf("stage over %s has changed the disk or its mounts: %s", what, v.mounts())
			}
			v.run("! mountpoint -q %[1]s || umount %[1]s", v.staging)
		}
		other.down()
	})
}

// F11: a disk that something on the machine still has is not released: a mount in another mount namespace, or a device that
// is built on it.
func TestUnstageOfADiskInUse(t *testing.T) {
	notShort(t)
	onEachCloud(t, func(t *testing.T, h *host) {
		for _, tc := range []struct {
			fs, hold, release string
			want              codes.Code
		}{
			{"ext4", `setsid unshare --mount --propagation private bash -c 'touch /run/held; exec sleep 600' >/dev/null 2>&1 </dev/null &
				until [ -e /run/held ]; do sleep 0.1; done; rm /run/held`, `pkill -x sleep; while pgrep -x sleep; do :; done`, codes.Aborted},
			{"", "dmsetup create held --table '0 131072 linear %s 0'", "dmsetup remove --retry held", codes.FailedPrecondition},
		} {
			v := h.newVolume(tc.fs, 64*mib)
			kernel := v.attach()
			v.ok(v.stage, v.publish)
			v.run("%s", strings.ReplaceAll(tc.hold, "%s", "/dev/"+kernel))
			v.ok(v.unpublish)
			for range 2 {
				wantCode(t, "unstage of a disk that is in use", v.unstage(), tc.want)
			}
			v.run("%s", tc.release)
			v.down()
		}
	})
}

// killedIn kills the node program while mkfs of the volume's first stage begins, or has ended, and starts it again.
func (v *volume) killedIn(ended bool) {
	v.t.Helper()
	program := "true"
	if ended {
		program = "/usr/sbin/mkfs.ext4"
	}
	v.run(`printf '#!/bin/bash\n%s "$@" || exit\ntouch /run/reached\nexec sleep 600\n' >/usr/local/sbin/mkfs.ext4; chmod +x /usr/local/sbin/mkfs.ext4; rm -f /run/reached`, program)
	staged := make(chan error, 1)
	go func() { staged <- v.stage() }()
	v.run("until [ -e /run/reached ]; do sleep 0.1; done; rm /usr/local/sbin/mkfs.ext4")
	must(v.t, v.Stop(within(v.t), "KILL"))
	if err := <-staged; err == nil {
		v.t.Error("the stage that was killed succeeded")
	}
	must(v.t, v.Start(within(v.t)))
}

// F15: the node program is killed before mkfs has written anything. The next one formats the disk, and the disk that comes back
// after it was away is judged without the record.
func TestAFormatThatWasCutOff(t *testing.T) {
	notShort(t)
	h := sharedMachine(t, vm.DigitalOcean)
	v := h.newVolume("ext4", 64*mib)
	v.attach()
	v.killedIn(false)
	v.ok(v.stage, v.publish)
	v.down()

	w := h.newVolume("ext4", 64*mib)
	w.attach()
	w.killedIn(false)
	w.detach()
	w.put(mib/2, "written by another machine")
	w.attach()
	w.wantRefused("CB-FORMAT-UNFINISHED")
}

// F14: the node program is killed after mkfs and before it has removed its record; then another program mounts the filesystem and
// fills it. It is never formatted, and served as it is.
func TestForeignMountAfterAKilledMkfs(t *testing.T) {
	notShort(t)
	h := sharedMachine(t, vm.DigitalOcean)
	v := h.newVolume("ext4", 64*mib)
	kernel := v.attach()
	v.killedIn(true)
	v.run("mkdir -p /run/theirs && mount /dev/%s /run/theirs && echo theirs >/run/theirs/data && umount /run/theirs", kernel)
	id := v.uuid()
	v.ok(v.stage, v.publish)
	if got := v.run("cat %s/data", v.target); got != "theirs" || v.uuid() != id {
		t.Errorf("the file says %q, want what the other program wrote, on the same filesystem", got)
	}
	v.down()
}
