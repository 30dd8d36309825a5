//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// L6: the test makes a node's pool by the commands of docs/quickstart.md, as an image and on a disk, and takes a volume
// in it through its life.
func TestThePoolOfTheQuickstart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/quickstart.md")
	noError(t, err)
	section, err := commands.Section(string(text), "## 1. A place for the volumes")
	noError(t, err)
	blocks := commands.Blocks(section)
	if len(blocks) != 2 {
		t.Fatalf("step 1 has %d blocks of commands, want those for an image and those for a disk", len(blocks))
	}
	all, err := commands.Statements(blocks[0])
	if err != nil || len(all) < 5 {
		t.Fatalf("the commands for an image: %q, %v", all, err)
	}
	// "Instead of the last four commands".
	onDisk := strings.Join(all[:len(all)-4], "\n") + "\n" + blocks[1]
	t.Run("an image", func(t *testing.T) { liveIn(t, blocks[0], false) })
	t.Run("a disk", func(t *testing.T) { liveIn(t, onDisk, true) })
}

// liveIn runs a script that makes a pool, and both programs on it. What differs from the page is where the pool and the
// table of mounts are, the size, and the name of the disk.
func liveIn(t *testing.T, script string, disk bool) {
	dir := folder(t)
	pool, table := filepath.Join(dir, "pool"), filepath.Join(dir, "fstab")
	words := []string{"/var/lib/cloudblock-csi/pool", pool, "/etc/fstab", table, "mount $pool", "mount --fstab " + table + " $pool"}
	if disk {
		image := filepath.Join(dir, "disk.img")
		command(t, "truncate", "--size=1G", image)
		words = append(words, "/dev/YOUR-DISK", strings.TrimSpace(command(t, "losetup", "--find", "--show", image)))
	} else {
		words = append(words, "20G", "1G")
	}
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(script, words[i]) {
			t.Errorf("the page has no %s", words[i])
		}
	}
	t.Cleanup(func() { // so that the folder below the mount can be removed
		for _, args := range [][]string{{"umount", pool}, {"chattr", "-i", pool}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:noctx // the test's context has ended
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
	})
	command(t, "sh", "-eu", "-c", strings.NewReplacer(words...).Replace(script))
	if !disk {
		// As fstrim.timer does before the driver has started.
		command(t, "fstrim", "--listed-in", table, "--verbose")
		st, err := os.Stat(pool + ".img")
		if err != nil || st.Sys().(*syscall.Stat_t).Blocks*512 < st.Size() {
			t.Errorf("after fstrim of what fstab lists the pool's file is not reserved in full: %+v, %v", st, err)
		}
	}
	pair := start(t, programs.Options{Dir: dir, Pool: pool})
	v := create(t, pair, programs.Claim{Name: "a", Filesystem: "xfs", Size: 320 * mib})
	must(t, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	wantBytes(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage, v.Delete)
	wantEmptyPool(t, pair)
}
