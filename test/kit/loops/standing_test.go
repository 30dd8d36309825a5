package loops

import (
	"slices"
	"testing"
)

func TestLoopsThatStandOnAPool(t *testing.T) {
	disk, dev := uint64(1), uint64(6)
	make := func(number uint64, backing fileID) loop {
		return loop{path: string(rune('A' + number)), number: 700 + number, node: fileID{dev, 100 + number}, backing: backing}
	}
	pool := fileID{disk, 42}
	all := []loop{
		make(0, fileID{disk, 41}), // another node's pool
		make(1, fileID{700, 9}),   // a volume of it
		make(2, fileID{702, 9}),   // a file on itself cannot be, but must not hang
		make(3, pool),             // the pool
		make(4, fileID{703, 9}),   // a volume in it, with an inode that the other pool has, too
		make(5, fileID{dev, 104}), // the same volume as raw block
		make(6, fileID{704, 1}),   // a file on the volume
		make(7, fileID{dev, 101}), // the other pool's volume as raw block
		make(8, fileID{disk, 9}),  // no pool's
	}
	var got []string
	for _, l := range standingOn(all, pool) {
		got = append(got, l.path)
	}
	if want := []string{"G", "F", "E", "D"}; !slices.Equal(got, want) {
		t.Errorf("standingOn = %v, want %v", got, want)
	}
}
