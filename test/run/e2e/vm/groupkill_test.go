//go:build vm

package vm

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// L12: the test kills both programs with all commands of LVM, as the end of a container does, in the middle of a create,
// an activation, a growth, a deactivation and a delete, KILLS times in all (20). Each repeat succeeds, no device stays
// suspended, nothing is left over, and another volume has what it had.
func TestGroupAfterKills(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("KILLS"), "20"))
	must(t, err)
	other := h.mustCreate("other", "ext4", 64*mib)
	other.ok(other.stage, other.publish)
	want := other.fill("data", 8*mib)
	met := 0
	for done := 0; done < kills; {
		var v *volume
		for _, step := range []struct {
			name string
			run  func() error
		}{
			{"create", func() (err error) { v, err = h.create("v"+strconv.Itoa(done), "ext4", 64*mib); return err }},
			{"stage", func() error { return inOrder(v.stage, v.publish) }},
			{"growth", func() error { _, err := v.expand(96 * mib); return err }},
			{"unstage", func() error { return inOrder(v.unpublish, v.unstage) }},
			{"delete", func() error { return h.delete(v) }},
		} {
			n := h.killDuring(step.run, done)
			met += n
			done++
			t.Logf("kill %d, in a %s: %d commands of LVM were running", done, step.name, n)
			h.wantWhole(fmt.Sprintf("after kill %d, in a %s", done, step.name))
		}
		h.run("sync && echo 3 >/proc/sys/vm/drop_caches")
		if got := other.sum("data"); got != want {
			t.Fatalf("after kill %d the file of another volume has the checksum %s, want %s", done, got, want)
		}
	}
	t.Logf("%d kills met %d commands of LVM", kills, met)
	if met == 0 {
		t.Error("no command of LVM was killed")
	}
	if got := strings.Fields(h.run("lvs --noheadings -o lv_name vg")); len(got) != 1 {
		t.Errorf("the volume group has %q, want the other volume", got)
	}
	other.down()
}

// killDuring kills everything while a step is under way, starts the programs again and repeats the step until it succeeds. It
// returns how many commands of LVM it has killed.
func (h *groupHost) killDuring(step func() error, n int) int {
	h.t.Helper()
	done := make(chan error, 1)
	go func() { done <- step() }()
	killed := h.number(`sleep %d.%03d
		pgrep -x lvm | wc -l
		pkill -KILL -f '^cloudblock-controller'
		kill -KILL $(cat /run/node-local.pid)
		pkill -KILL -x lvm || true`, n%2, (n*137)%1000)
	must(h.t, h.Stop(within(h.t), "KILL"))
	must(h.t, h.Start(within(h.t)))
	h.startController()
	<-done // what had not been sent yet is sent to the new program
	var err error
	for range 10 {
		if err = step(); err == nil {
			return int(killed)
		}
		if code := status.Code(err); code != codes.Aborted && code != codes.Unavailable && code != codes.DeadlineExceeded {
			break
		}
	}
	h.t.Fatalf("after kill %d the repeat = %v", n+1, err)
	return 0
}

// inOrder runs steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// wantWhole wants no device suspended or with a table that waits, and each as large as LVM's metadata say.
func (h *groupHost) wantWhole(when string) {
	h.t.Helper()
	if got := h.run("dmsetup info -c --noheadings -o name,suspended,tables_loaded | grep -v ':Active:Live$' || true"); got != "" {
		h.t.Errorf("%s: %s", when, got)
	}
	for line := range strings.Lines(h.run("lvs --noheadings --units b --nosuffix --separator : -o lv_path,lv_size -S lv_active=active vg")) {
		path, want, _ := strings.Cut(strings.TrimSpace(line), ":")
		if got := h.run("blockdev --getsize64 %s", path); got != want {
			h.t.Errorf("%s: %s has %s bytes, the metadata say %s", when, path, got, want)
		}
	}
}

// L12: a command was killed when it had loaded the table of a growth, or of an activation, and had not committed the
// growth. The next call drops that table: its extents are free, and another volume gets them.
func TestGroupAfterHalfAChange(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	v := h.mustCreate("half", "ext4", 64*mib)
	v.ok(v.stage, v.publish)
	want := v.fill("data", mib)
	device := "vg-" + strings.ReplaceAll(v.logical(), "-", "--")
	for name, then := range map[string]string{"loaded": "", "suspended": "; dmsetup suspend " + device} {
		h.run("dmsetup table %[1]s | sed 's/^0 131072/0 196608/' | dmsetup load %[1]s%[2]s", device, then)
		other := h.mustCreate(name, "ext4", 64*mib)
		h.wantWhole(name)
		other.ok(other.stage, other.publish, other.unpublish, other.unstage)
		must(t, h.delete(other))
	}
	if got, err := v.expand(96 * mib); got != 96*mib || err != nil {
		t.Errorf("expand = %d, %v", got, err)
	}
	h.wantWhole("after the growth")
	v.ok(v.unpublish, v.unstage)
	h.run("dmsetup create %s --notable -u LVM-$(lvs --noheadings -o vg_uuid,lv_uuid vg/%s | tr -d ' -')", device, v.logical())
	v.ok(v.stage, v.publish)
	h.wantWhole("after a device without a table")
	v.wantSum("data", want)
	v.down()
	must(t, h.delete(v))
}
