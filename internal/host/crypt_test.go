package host

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// sysTree is a folder like /sys with the disks 8:0 (sda) and 8:16 (sdb) and the mapping 253:0 (dm-0).
type sysTree struct {
	t   *testing.T
	dir string
}

func newSysTree(t *testing.T) sysTree {
	s := sysTree{t, t.TempDir()}
	s.device("sda", "8:0")
	s.device("sdb", "8:16")
	s.device("dm-0", "253:0")
	s.file("devices/dm-0/dm/uuid", "CRYPT-LUKS2-0123-vol\n")
	s.file("devices/dm-0/dm/name", "vol\n")
	return s
}

func (s sysTree) device(kernel, number string) {
	s.file("devices/"+kernel+"/dev", number+"\n")
	s.link("dev/block/"+number, "../../devices/"+kernel)
	s.link("class/block/"+kernel, "../../devices/"+kernel)
}

func (s sysTree) file(path, text string) {
	s.t.Helper()
	must(s.t, os.MkdirAll(filepath.Dir(filepath.Join(s.dir, path)), 0o700))
	must(s.t, os.WriteFile(filepath.Join(s.dir, path), []byte(text), 0o600))
}

func (s sysTree) link(path, to string) {
	s.t.Helper()
	full := filepath.Join(s.dir, path)
	must(s.t, os.MkdirAll(filepath.Dir(full), 0o700))
	must(s.t, os.Symlink(to, full))
}

// F8: a mapping belongs to a disk only if the node has the disk and the kernel has the mapping on it.
func TestCryptAndItsDisk(t *testing.T) {
	sda, sdb, dm := unix.Mkdev(8, 0), unix.Mkdev(8, 16), unix.Mkdev(253, 0)
	holds := func(s sysTree, disk string) {
		s.link("devices/dm-0/slaves/"+disk, "../../"+disk)
		s.link("devices/"+disk+"/holders/dm-0", "../../dm-0")
	}
	tests := map[string]struct {
		change func(sysTree)
		below  []uint64
		disk   uint64
		alive  bool
	}{
		"on its disk":       {func(s sysTree) { holds(s, "sda") }, []uint64{sda}, sda, true},
		"on another disk":   {func(s sysTree) { holds(s, "sdb") }, []uint64{sdb}, sdb, true},
		"its disk has gone": {func(s sysTree) { s.link("devices/dm-0/slaves/sdc", "../../sdc") }, nil, 0, false},
		"its disk has gone and the name is another disk's": {
			func(s sysTree) { s.link("devices/dm-0/slaves/sda", "../../sda") }, nil, 0, false,
		},
		"nothing below it, as when it was being made": {func(sysTree) {}, nil, 0, false},
		"on two disks": {func(s sysTree) { holds(s, "sda"); holds(s, "sdb") }, []uint64{sda, sdb}, 0, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSysTree(t)
			tc.change(s)
			m := Sysfs(s.dir)
			all, err := m.Crypts()
			want := []Crypt{{Number: dm, Name: "vol", Kernel: "dm-0", Below: tc.below}}
			if err != nil || !reflect.DeepEqual(all, want) {
				t.Errorf("Crypts = %+v, %v, want %+v", all, err, want)
			}
			if disk, err := m.DiskOf(dm); err != nil || disk != tc.disk {
				t.Errorf("DiskOf = %#x, %v, want %#x", disk, err, tc.disk)
			}
			if alive, err := m.Alive(dm); err != nil || alive != tc.alive {
				t.Errorf("Alive = %v, %v, want %v", alive, err, tc.alive)
			}
		})
	}
	t.Run("other devices", func(t *testing.T) {
		s := newSysTree(t)
		s.device("dm-1", "253:1")
		s.file("devices/dm-1/dm/uuid", "LVM-abc\n")
		s.link("devices/dm-1/slaves/sda", "../../sda")
		m := Sysfs(s.dir)
		for _, number := range []uint64{sda, unix.Mkdev(253, 1), unix.Mkdev(9, 9)} {
			if disk, err := m.DiskOf(number); err != nil || disk != number {
				t.Errorf("DiskOf(%#x) = %#x, %v, want itself", number, disk, err)
			}
		}
		if alive, err := m.Alive(unix.Mkdev(253, 1)); err != nil || !alive {
			t.Errorf("Alive of a volume of LVM = %v, %v, want true", alive, err)
		}
	})
}

// The kernel answers EINVAL to a read of the attributes of a mapping that is being removed. The speed of the loopback interface, to which
// it answers the same, stands for one of them.
func TestAMappingThatIsBeingRemovedHidesNoOther(t *testing.T) {
	const invalid = "/sys/class/net/lo/speed"
	if _, err := os.ReadFile(invalid); !errors.Is(err, unix.EINVAL) {
		t.Skipf("read %s = %v, want %v", invalid, err, unix.EINVAL)
	}
	for _, attribute := range []string{"uuid", "name"} {
		t.Run(attribute, func(t *testing.T) {
			s := newSysTree(t)
			s.device("dm-1", "253:1")
			s.file("devices/dm-1/dm/uuid", "CRYPT-LUKS2-4567-other\n")
			if err := os.Remove(filepath.Join(s.dir, "devices/dm-1/dm", attribute)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			s.link("devices/dm-1/dm/"+attribute, invalid)
			all, err := Sysfs(s.dir).Crypts()
			if want := []Crypt{{Number: unix.Mkdev(253, 0), Name: "vol", Kernel: "dm-0"}}; err != nil || !reflect.DeepEqual(all, want) {
				t.Errorf("Crypts = %+v, %v, want %+v", all, err, want)
			}
		})
	}
}
