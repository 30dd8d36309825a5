//go:build e2e

package check

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// piece is a part of an image.
type piece struct{ at, length int64 }

// damage is one way to damage a volume. It returns a list of checksums from elsewhere, or "".
type damage struct {
	name string
	do   func(t *testing.T, v *volume) (checksums string)
}

// flip returns a damage that inverts one bit of a piece that the filesystem uses, and that its own tool finds.
func flip(name string, find func(t *testing.T, v *volume) piece) damage {
	return damage{"a wrong bit in " + name, func(t *testing.T, v *volume) string {
		t.Helper()
		p := find(t, v)
		f, err := os.OpenFile(v.image, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		at, bit := p.at+v.rng.Int64N(p.length), v.rng.IntN(8)
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		must(t, err)
		b[0] ^= 1 << bit
		_, err = f.WriteAt(b, at)
		must(t, err)
		t.Logf("bit %d of the byte at %d, %d behind the start of %s", bit, at, at-p.at, name)
		return ""
	}}
}

// truncated cuts off some of the image that the filesystem has.
var truncated = damage{"truncated", func(t *testing.T, v *volume) string {
	t.Helper()
	info, err := os.Stat(v.image)
	must(t, err)
	size := info.Size() - 8192 - v.rng.Int64N(info.Size()*2/3)
	must(t, os.Truncate(v.image, size&^511))
	return ""
}}

// otherSnapshot leaves an intact volume that is not the one of the list, which is kept elsewhere.
var otherSnapshot = damage{"another snapshot than the one of the list", func(t *testing.T, v *volume) string {
	t.Helper()
	path := v.image + ".sums"
	v.mounted(t, func(dir string) {
		must(t, os.WriteFile(path, []byte(v.sums(t, dir)), 0o600))
		changed, err := os.OpenFile(dir+"/small/file", os.O_RDWR, 0)
		must(t, err)
		defer changed.Close()
		_, err = changed.WriteAt([]byte("changed!"), v.rng.Int64N(9000))
		must(t, err)
	})
	return path
}}

// lostFile leaves an intact volume without a file of the list that is on it.
var lostFile = damage{"without a file of its list", func(t *testing.T, v *volume) string {
	t.Helper()
	v.mounted(t, func(dir string) { must(t, os.Remove(dir+"/odd/"+oddNames[v.rng.IntN(len(oddNames))])) })
	return ""
}}

// damages are those of each filesystem; the short form makes the first ones.
var damages = map[mounter.Filesystem][]damage{
	mounter.Ext4: {
		flip("the inode of a file", ext4Inode("small/file")), truncated, otherSnapshot,
		flip("the superblock", func(*testing.T, *volume) piece { return piece{superblockAt, 1024} }),
		flip("a group descriptor", func(t *testing.T, v *volume) piece { return piece{ext4Group(t, v, "Group descriptors at") * 4096, 64} }),
		flip("the bitmap of blocks", func(t *testing.T, v *volume) piece { return piece{ext4Group(t, v, "Block bitmap at") * 4096, 4096} }),
		flip("the bitmap of inodes", func(t *testing.T, v *volume) piece { return piece{ext4Group(t, v, "Inode bitmap at") * 4096, 4096} }),
		flip("the inode of the root", ext4Inode(".")),
		flip("a directory", ext4Block("small", 0, 4096)),
		flip("the index of a directory", ext4Block("wide", 0, 64)),
		flip("a leaf of a directory", ext4Block("wide", 1, 4096)),
		flip("a tree of extents", func(t *testing.T, v *volume) piece {
			return piece{number(t, debugfs(t, v, "stat <%d>", v.inodes["scattered"]), `\(ETB0\):(\d+)`) * 4096, 4096}
		}),
		flip("extended attributes", func(t *testing.T, v *volume) piece {
			return piece{number(t, debugfs(t, v, "stat <%d>", v.inodes["attributes"]), `File ACL: (\d+)`) * 4096, 4096}
		}),
		lostFile,
	},
	mounter.XFS: {
		flip("the inode of a file", xfs("inode %[2]d", "small/file")), truncated, otherSnapshot,
		flip("the superblock", xfs("sb 0", "")),
		flip("the header of the free space", xfs("agf %[1]d", "")),
		flip("the header of the inodes", xfs("agi %[1]d", "")),
		flip("the list of free blocks", xfs("agfl %[1]d", "")),
		flip("the free space by place", xfs("agf %[1]d\naddr bnoroot", "")),
		flip("the free space by size", xfs("agf %[1]d\naddr cntroot", "")),
		flip("the tree of inodes", xfs("agi %[1]d\naddr root", "")),
		flip("the tree of free inodes", xfs("agi %[1]d\naddr free_root", "")),
		flip("the inode of the root", xfs("inode %[2]d", ".")),
		flip("a directory", xfs("inode %[2]d\ndblock 0", "small")),
		flip("a block of a large directory", xfs("inode %[2]d\ndblock 0", "wide")),
		flip("extended attributes", xfs("inode %[2]d\nablock 0", "attributes")),
		lostFile,
	},
}

func number(t *testing.T, text, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %s in:\n%s", pattern, text)
	}
	n, err := strconv.ParseInt(found[1], 0, 64)
	must(t, err)
	return n
}

func debugfs(t *testing.T, v *volume, request string, args ...any) string {
	t.Helper()
	return command(t, "debugfs", "-R", fmt.Sprintf(request, args...), v.image)
}

// ext4Group returns a block of group 0, in which everything is used.
func ext4Group(t *testing.T, v *volume, what string) int64 {
	t.Helper()
	return number(t, command(t, "dumpe2fs", v.image), what+` (\d+)`)
}

func ext4Inode(name string) func(t *testing.T, v *volume) piece {
	return func(t *testing.T, v *volume) piece {
		t.Helper()
		text := debugfs(t, v, "imap <%d>", v.inodes[name])
		return piece{number(t, text, `located at block (\d+)`)*4096 + number(t, text, `offset (0x[0-9a-f]+)`), 256}
	}
}

// ext4Block returns the start of a block of a directory.
func ext4Block(name string, index int, length int64) func(t *testing.T, v *volume) piece {
	return func(t *testing.T, v *volume) piece {
		t.Helper()
		text := debugfs(t, v, "blocks <%d>", v.inodes[name])
		blocks := strings.Fields(text[strings.Index(text, "\n")+1:])
		return piece{number(t, blocks[index], `^(\d+)$`) * 4096, length}
	}
}

// xfs returns what the debugger shows after the commands; %[1]d is the number of an allocation group, %[2]d that of an inode.
func xfs(commands, name string) func(t *testing.T, v *volume) piece {
	return func(t *testing.T, v *volume) piece {
		t.Helper()
		args := []string{"-r"}
		commands := commands
		if strings.Contains(commands, "%") {
			commands = fmt.Sprintf(commands+"%[3]s", v.rng.IntN(4), v.inodes[name], "")
		}
		for _, c := range append(strings.Split(commands, "\n"), "addr") {
			args = append(args, "-c", c)
		}
		text := command(t, "xfs_db", append(args, v.image)...)
		text = text[strings.LastIndex(text, "current"):]
		return piece{number(t, text, `byte offset (\d+)`), number(t, text, `length (\d+)`)}
	}
}
