//go:build vm

package vm

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// L11: a pod writes a volume group into its raw block volume: a newer state of the pool's own, so that every command of
// LVM that reads all disks takes the pod's disk for the pool's, and then a foreign one with the pool's name. The pool
// neither believes nor minds either of them.
func TestGroupAmongOthers(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	mounted, resting := h.mustCreate("mounted", "ext4", 64*mib), h.mustCreate("resting", "ext4", 64*mib)
	sums := map[*volume]string{}
	for _, v := range []*volume{mounted, resting} {
		v.ok(v.stage, v.publish)
		sums[v] = v.fill("data", mib)
	}
	resting.down()
	raw := h.mustCreate("raw", "", 64*mib)
	raw.ok(raw.stage, raw.publish)

	for name, forge := range map[string]string{
		"a newer state of the group": `vgcfgbackup -qq --devicesfile cloudblock-vg -f /tmp/text vg
			new=$(tr -d - </proc/sys/kernel/random/uuid | sed -E 's/(.{6})(....)(....)(....)(....)(....)(.{6})/\1-\2-\3-\4-\5-\6-\7/')
			old=$(pvs --devicesfile cloudblock-vg --noheadings -o pv_uuid | tr -d ' ')
			sed -Ei "s/$old/$new/; s/seqno = .*/seqno = 5000/" /tmp/text
			pvcreate -qq --devices $loop --uuid $new --restorefile /tmp/text $loop
			vgcfgrestore -qq -y --devices $loop --force -f /tmp/text vg`,
		"a group of the same name": `mkdir -p /tmp/dev && elsewhere='devices{dir="/tmp/dev/"}' # as on another machine
			vgcreate -qq -y --config "$elsewhere" --devices $loop vg $loop
			lvcreate -qq -y --config "$elsewhere" --devices $loop -an -Zn -Wn -n guest -L 64M vg`,
	} {
		h.run("set -e; truncate -s 1G /tmp/tenant; loop=$(losetup -f --show /tmp/tenant)\n%s", forge)
		// Without the devices file LVM falls for it.
		if out := h.run("vgs --noheadings -o pv_name vg 2>&1 || true"); !strings.Contains(out, "/dev/loop") && !strings.Contains(out, "is used by VGs") {
			t.Errorf("%s: LVM itself does not see it: %s", name, out)
		}
		h.run("dd if=/tmp/tenant of=%s bs=1M count=1 conv=fsync status=none", raw.target) // into a volume of the pool, too
		h.wantUnmoved(name, mounted, resting, sums)
		h.run("for l in $(losetup -n -O NAME -j /tmp/tenant); do losetup -d $l; done; rm /tmp/tenant")
	}
	raw.down()
	must(t, h.delete(raw))
}

// wantUnmoved lives a life beside two volumes and finds both as they were, and nothing of it on the tenant's disk.
func (h *groupHost) wantUnmoved(beside string, mounted, resting *volume, sums map[*volume]string) {
	h.t.Helper()
	if h.capacity() == 0 {
		h.t.Errorf("%s: capacity = 0", beside)
	}
	next := h.mustCreate(fmt.Sprintf("next%d", len(beside)), "ext4", 64*mib)
	next.ok(next.stage, next.publish)
	h.run("yes TOPSECRET | head -c 1M >%[1]s/secret; yes TOPSECRET | head -c 1M >%[2]s/secret; sync -f %[1]s; sync -f %[2]s", next.target, mounted.target)
	if _, err := next.expand(96 * mib); err != nil {
		h.t.Errorf("%s: expand = %v", beside, err)
	}
	wantCode(h.t, "DeleteVolume of a mounted volume", h.delete(mounted), codes.FailedPrecondition)
	resting.ok(resting.stage, resting.publish)
	h.run("echo 3 >/proc/sys/vm/drop_caches")
	for v, want := range sums {
		if got := v.sum("data"); got != want {
			h.t.Errorf("%s: the file of %s has the checksum %s, want %s", beside, v.disk.Name, got, want)
		}
	}
	resting.down()
	if got := h.run("sync; grep -c TOPSECRET /tmp/tenant || true"); got != "0" {
		h.t.Errorf("%s: the tenant's disk has %s lines of other volumes", beside, got)
	}
	if got := h.run("dmsetup deps -o devname | grep cloudblock | grep -v '(vd' || true"); got != "" {
		h.t.Errorf("%s: not on the pool's disk: %s", beside, got)
	}
	next.down()
	must(h.t, h.delete(next))
}
