package vm

import (
	"fmt"
	"io"
	"os"
)

// program is a file of the archive that the guest starts from.
type program struct{ name, source string }

// writeArchive writes the programs in the form that the kernel unpacks into its first root: cpio "newc"
// (https://docs.kernel.org/driver-api/early-userspace/buffer-format.html).
func writeArchive(w io.Writer, programs ...program) error {
	for i, p := range programs {
		data, err := os.ReadFile(p.source)
		if err != nil {
			return err
		}
		if err := writeEntry(w, i+1, p.name, 0o100755, data); err != nil {
			return err
		}
	}
	// The folder for the real root.
	if err := writeEntry(w, len(programs)+1, "root", 0o040755, nil); err != nil {
		return err
	}
	return writeEntry(w, 0, "TRAILER!!!", 0, nil)
}

func writeEntry(w io.Writer, inode int, name string, mode int, data []byte) error {
	const align = "\x00\x00\x00"
	pad := func(n int) string { return align[:(4-n%4)%4] }
	// inode, mode, uid, gid, links, time, size, four device numbers, length of the name, checksum
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	if _, err := io.WriteString(w, header+name+"\x00"+pad(len(header)+len(name)+1)); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	_, err := io.WriteString(w, pad(len(data)))
	return err
}
