//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// BenchmarkStage compares what a stage costs with the same done by hand in the same guest, and prints a table with the
// numbers to reach. It fails for none of them: times are those of a processor in emulation on a busy computer, so they are
// measured in turn and only their ratio means something.
func BenchmarkStage(b *testing.B) {
	m := ownGuest(b)
	fmt.Printf("%-13s %-48s %9s %9s %7s  %s\n", "cloud", "what", "stage", "by hand", "ratio", "at most")
	for _, cloud := range clouds {
		h := m.host(b, cloud)
		h.costOfStage()
		h.costOfFormat()
		if cloud == vm.DigitalOcean {
			h.costOfOpen()
		}
	}
	for _, cloud := range clouds {
		rss := m.host(b, cloud).number("awk '/^VmRSS/ { print $2 }' /proc/$(cat /run/node-%s.pid)/status", cloud)
		fmt.Printf("%-13s %-48s %5.1f MiB %17s  20 MiB\n", cloud, "node program, resident when idle", float64(rss)/1024, "")
	}
}

// row prints the medians of what was measured in turn.
func (h *host) row(what string, byStage, byHand []time.Duration, bar string) {
	stage, hand := median(byStage), median(byHand)
	fmt.Printf("%-13s %-48s %6d ms %6d ms %7.2f  %s\n", h.cloud, what,
		stage.Milliseconds(), hand.Milliseconds(), float64(stage)/float64(hand), bar)
}

func median(times []time.Duration) time.Duration {
	times = slices.Sorted(slices.Values(times))
	return times[len(times)/2]
}

// costOfStage is that of a formatted volume: e2fsck and mount.
func (h *host) costOfStage() {
	v := h.newVolume("ext4", gib)
	kernel := v.attach()
	v.ok(v.stage, v.unstage)
	var byStage, byHand []time.Duration
	for range 9 {
		byStage = append(byStage, v.timedStage())
		v.ok(v.unstage)
		byHand = append(byHand, h.timed("fsck -a /dev/%[1]s >/dev/null && mount /dev/%[1]s /mnt", kernel))
		h.run("umount /mnt")
	}
	h.row("a formatted ext4 of 1 GiB: fsck, mount", byStage, byHand, "1.3")
}

// costOfFormat is that of a first stage: mkfs, with the options of the node program, and mount.
func (h *host) costOfFormat() {
	var byStage, byHand []time.Duration
	for range 5 {
		v := h.newVolume("ext4", gib)
		v.attach()
		byStage = append(byStage, v.timedStage())
		v.ok(v.unstage)
		other := h.newVolume("ext4", gib)
		byHand = append(byHand, h.timed("mkfs.ext4 -q -F -m 0 -e remount-ro -E nodiscard /dev/%[1]s && mount /dev/%[1]s /mnt", other.attach()))
		h.run("umount /mnt")
	}
	h.row("a blank disk of 1 GiB: mkfs.ext4, mount", byStage, byHand, "4")
}

// costOfOpen is that of an encrypted volume which is formatted: cryptsetup open, and what the first row has. The key is
// derived as the node program's luksFormat asks for.
func (h *host) costOfOpen() {
	v := h.newVolume("ext4", gib)
	v.context.LUKS, v.secrets = true, map[string]string{driver.SecretLUKS: "correct horse"}
	kernel := v.attach()
	v.ok(v.stage, v.unstage)
	h.run("printf 'correct horse' >/run/key")
	var byStage, byHand, opened []time.Duration
	for range 5 {
		staged := v.timedStage()
		v.ok(v.unstage)
		open := h.timed("cryptsetup open --type luks2 --key-file /run/key /dev/%s byhand", kernel)
		rest := h.timed("fsck -a /dev/mapper/byhand >/dev/null && mount /dev/mapper/byhand /mnt")
		h.run("umount /mnt && cryptsetup close byhand")
		byStage, byHand = append(byStage, staged), append(byHand, open+rest)
		opened = append(opened, open)
	}
	h.row("an encrypted ext4: cryptsetup open, fsck, mount", byStage, byHand, "")
	over := median(byHand) - median(opened)
	for i := range byStage {
		byStage[i] -= over
	}
	h.row("of these, without fsck and mount by hand", byStage, opened, "1.2")
}

// timed returns how long a script takes in the guest.
func (h *host) timed(script string, args ...any) time.Duration {
	h.t.Helper()
	return time.Duration(h.number("udevadm settle; begin=${EPOCHREALTIME/./}; "+script+" || exit; echo $((${EPOCHREALTIME/./} - begin))", args...)) * time.Microsecond
}

// timedStage returns how long the node program took, by its log, so that the way from the host to it is not counted.
func (v *volume) timedStage() time.Duration {
	v.t.Helper()
	v.run("udevadm settle")
	v.ok(v.stage)
	log, err := v.Log(within(v.t))
	must(v.t, err)
	var took time.Duration
	for line := range strings.Lines(log) {
		var entry struct {
			Method   string `json:"method"`
			Volume   string `json:"volume_id"`
			Duration string `json:"duration"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err == nil && entry.Method == "NodeStageVolume" && entry.Volume == v.id {
			took, err = time.ParseDuration(entry.Duration)
			must(v.t, err)
		}
	}
	if took == 0 {
		v.t.Fatalf("the log has no duration of a stage of %s:\n%s", v.id, log[max(0, len(log)-2000):])
	}
	return took
}
