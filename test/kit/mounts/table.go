package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Table writes a mount table in which an ext4 is mounted at each of these folders, for pools of tests that cannot mount. It
// returns the file's name; or nothing, for the kernel's table, if something is mounted at the first of them.
func Table(t testing.TB, folders ...string) string {
	t.Helper()
	for _, folder := range folders[:min(1, len(folders))] {
		var here, above unix.Stat_t
		if err := errors.Join(unix.Stat(folder, &here), unix.Stat(filepath.Dir(folder), &above)); err != nil {
			t.Fatal(err)
		}
		if here.Dev != above.Dev {
			return ""
		}
	}
	file := filepath.Join(t.TempDir(), "mountinfo")
	Write(t, file, folders...)
	return file
}

// Write writes such a table again, when the mounts have changed. A mount has the device number of its folder, if that exists.
func Write(t testing.TB, file string, folders ...string) {
	t.Helper()
	var table strings.Builder
	for i, folder := range folders {
		st := unix.Stat_t{Dev: unix.Mkdev(7, uint32(i))}
		if err := unix.Stat(folder, &st); err != nil && !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "%d 1 %d:%d / %s rw - ext4 /dev/loop%d rw\n", 10+i, unix.Major(st.Dev), unix.Minor(st.Dev), folder, i)
	}
	if err := os.WriteFile(file, []byte(table.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
