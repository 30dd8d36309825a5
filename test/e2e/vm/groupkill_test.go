//go:build vm

package vm

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestGroupAfterKills kills both programs with all commands of LVM, as the end of a container does, in the middle of a create,
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
			if got := h.run("dmsetup info -c --noheadings -o name,suspended"); strings.Contains(got, "Suspended") {
				t.Errorf("after kill %d, in a %s: %s", done, step.name, got)
			}
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
