//go:build e2e

package check

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must, command = expect.NoError, expect.Run

// volume is an image of a filesystem.
type volume struct {
	fs    mounter.Filesystem
	image string
	// device is where it was mounted last.
	device string
	rng    *mathrand.Rand
	// inodes of what is on it, by its name here.
	inodes map[string]uint64
}

// makeVolume makes a volume with the filesystem that a new one has, a little larger or smaller each time.
func makeVolume(t *testing.T, fs mounter.Filesystem, rng *mathrand.Rand) *volume {
	t.Helper()
	v := &volume{fs: fs, image: filepath.Join(t.TempDir(), "volume.img"), rng: rng, inodes: map[string]uint64{}}
	size := map[mounter.Filesystem]int64{mounter.Ext4: 64 << 20, mounter.XFS: 304 << 20}[fs] + rng.Int64N(1024)<<13
	must(t, os.WriteFile(v.image, nil, 0o600))
	must(t, os.Truncate(v.image, size))
	options := map[mounter.Filesystem][]string{mounter.Ext4: {"-F", "-b", "4096"}, mounter.XFS: {"-i", "nrext64=0"}}[fs]
	command(t, "mkfs."+string(fs), append(append([]string{"-q"}, options...), v.image)...)
	return v
}

// mounted mounts the volume for a function, which gets its folder, and unmounts it. The mount is in no mount namespace, so no other
// program gets a copy of it that would stay.
func (v *volume) mounted(t *testing.T, use func(dir string)) {
	t.Helper()
	image, err := os.Open(v.image)
	must(t, err)
	loop, err := attach(image, true)
	must(t, err)
	_ = image.Close()
	v.device = loop.Name()
	context, err := create(v.fs, loop)
	_ = loop.Close()
	must(t, err)
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	_ = unix.Close(context)
	must(t, err)
	defer func() { must(t, unix.Close(mount)) }()
	use(fmt.Sprintf("/proc/self/fd/%d", mount))
}

// oddNames are names that programs for people get wrong.
var oddNames = []string{
	"a\nb", `back\slash`, `\leading`, "-rf", " blank ", "carriage\r", "*", "\xff\xfe", "umläut", strings.Repeat("n", 255), "..a", "'\"`$(x)",
}

// fill puts everything on the volume that a filesystem has a structure for, and a list of checksums of it.
func (v *volume) fill(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"wide", "small", "deep/" + strings.Repeat("d/", 40), "odd"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	write := func(name string, size int) {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for i := range 150 + v.rng.IntN(150) {
		write(fmt.Sprintf("wide/%s%d", strings.Repeat("w", 40), i), v.rng.IntN(9000))
	}
	for _, name := range oddNames {
		write("odd/"+name, 1+v.rng.IntN(5000))
	}
	write("small/file", 10000+v.rng.IntN(100000))
	write("small/empty", 0)
	write("deep/"+strings.Repeat("d/", 40)+"file", 100)
	must(t, os.Chown(filepath.Join(dir, "small/file"), 1000, 1000))
	must(t, os.Link(filepath.Join(dir, "small/file"), filepath.Join(dir, "linked")))
	must(t, os.Symlink("small/file", filepath.Join(dir, "short")))
	must(t, os.Symlink(strings.Repeat("x/", 500), filepath.Join(dir, "long")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, os.WriteFile(filepath.Join(dir, "attributes"), []byte("x"), 0o600))
	must(t, unix.Setxattr(filepath.Join(dir, "attributes"), "user.large", []byte(strings.Repeat("a", 2000)), 0))
	v.scatter(t, filepath.Join(dir, "scattered"))
	list := v.sums(t, dir)
	must(t, os.WriteFile(filepath.Join(dir, DefaultChecksums), []byte(list), 0o600))
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	must(t, unix.Syncfs(int(root.Fd())))
	for _, name := range []string{".", "wide", "small", "small/file", "attributes", "scattered"} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, name), &st))
		v.inodes[name] = st.Ino
	}
}

// scatter writes a sparse file with more extents than fit into an inode, and a hole of 1 TiB where the filesystem can have it.
func (v *volume) scatter(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for i := range int64(60) {
		_, err := f.WriteAt([]byte(strings.Repeat("s", 4096)), i*3*4096)
		must(t, err)
	}
	must(t, f.Sync())
}

// sums returns the list that `sha256sum` would write.
func (v *volume) sums(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	must(t, filepath.WalkDir(dir+"/", func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		if escaped := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(name); escaped != name {
			name = escaped
			list.WriteByte('\\')
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(data), name)
		return err
	}))
	return list.String()
}

// exhaust uses up all blocks, and then all inodes that the rest allows.
func exhaust(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	defer f.Close()
	at := int64(0)
	for step := int64(64 << 20); step >= 4096; {
		if err := unix.Fallocate(int(f.Fd()), 0, at, step); errors.Is(err, unix.ENOSPC) {
			step /= 2
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		at += step
	}
	for i := range 100000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rest%d", i)), []byte("x"), 0o600); err != nil {
			return
		}
	}
	t.Fatal("the volume does not become full")
}

// goingDown is XFS_IOC_GOINGDOWN, which ext4 has too: from then on nothing is written, as after a loss of power. The flags are whether
// the journal is written once more.
const (
	freeze         = 0xc0045877 // FIFREEZE
	thaw           = 0xc0045878 // FITHAW
	goingDown      = 0x8004587d
	withJournal    = uint32(1)
	withoutJournal = uint32(2)
)

// leaveInUse changes files, a deleted one among them that is still open, and stops the filesystem in the middle of it. A frozen one has
// written everything, but not that it is unmounted.
func (v *volume) leaveInUse(t *testing.T, dir string, frozen bool) {
	t.Helper()
	open, err := os.Create(filepath.Join(dir, "deleted"))
	must(t, err)
	defer open.Close()
	_, err = open.WriteString(strings.Repeat("d", 100000))
	must(t, err)
	must(t, os.Remove(open.Name()))
	for i := range 50 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("small/new%d", i)), []byte("new"), 0o600))
	}
	must(t, open.Sync())
	for i := range 25 {
		must(t, os.Rename(filepath.Join(dir, fmt.Sprintf("small/new%d", i)), filepath.Join(dir, fmt.Sprintf("wide/moved%d", i))))
	}
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	if frozen {
		must(t, unix.IoctlSetInt(int(root.Fd()), freeze, 0))
		command(t, "cp", "--sparse=always", v.image, v.image+".frozen")
		must(t, unix.IoctlSetInt(int(root.Fd()), thaw, 0))
		return
	}
	flags := withJournal
	if v.rng.IntN(2) == 0 {
		flags = withoutJournal
	}
	must(t, unix.IoctlSetPointerInt(int(root.Fd()), goingDown, int(flags)))
}
