package format

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
	tib = int64(1) << 40
)

// superblockPlaces lists where formats keep superblocks between the two ends of a device, which are read in full. A backup there
// may be all that is left of a filesystem whose start was overwritten. The sources are the formats' own descriptions:
// ext4 in the kernel's Documentation, xfs_fs.h and ctree.h of xfsprogs and btrfs-progs, the LUKS2 on-disk format and
// libblkid's probes.
func superblockPlaces(size int64) []int64 {
	all := []int64{
		2 * mib, 4 * mib, // LUKS2: the second header right behind the first, where those are larger than usual
		mib, 2 * mib, // VMFS
		64*mib + 64, 256*gib + 64, // the mirrors of btrfs
	}
	return append(append(all, extBackups()...), xfsSecondaries(size)...)
}

// extBackups lists where ext2/3/4 with sparse_super keeps its first backups, for every block size.
func extBackups() []int64 {
	var out []int64
	for bs := kib; bs <= 64*kib; bs *= 2 {
		first := int64(0)
		if bs == kib {
			first = 1 // the boot block comes before group 0
		}
		for _, group := range []int64{1, 3, 5, 7, 9, 25, 27, 49} {
			out = append(out, (group*8*bs+first)*bs+56)
		}
	}
	return out
}

// xfsSecondaries lists where the superblocks of the first allocation groups are, for 4 KiB blocks and the numbers of groups that
// mkfs.xfs chooses by default.
func xfsSecondaries(size int64) []int64 {
	const bs = 4 * kib
	var out []int64
	for _, groups := range []int64{4, 8, 16, 32} {
		length := (size/bs + groups - 1) / groups * bs
		for n := int64(1); n <= 3; n++ {
			out = append(out, n*length)
		}
	}
	for n := int64(1); n <= 4; n++ { // above 4 TiB a group is as large as it can be
		out = append(out, n*tib-bs, n*tib)
	}
	return out
}
