package mounter

// signature is a magic by which an on-disk format is recognised.
type signature struct {
	what  string // as a person would call it
	magic string
	at    func(size int64) []int64 // byte offsets on a device of this size; those outside are dropped
	fs    Filesystem               // set when it is one of ours
}

// at places a magic at fixed offsets.
func at(offsets ...int64) func(int64) []int64 {
	return func(int64) []int64 { return offsets }
}

// fromEnd places a magic at offsets counted back from the end.
func fromEnd(back ...int64) func(int64) []int64 {
	return func(size int64) []int64 {
		var out []int64
		for _, b := range back {
			out = append(out, size-b)
		}
		return out
	}
}

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
	tib = int64(1) << 40
)

// primaries are the first superblocks of the filesystems we make, and the header of an encrypted device.
var primaries = []signature{
	{"ext2/3/4 filesystem", "\x53\xef", at(kib + 56), Ext4},
	{"xfs filesystem", "XFSB", at(0), XFS},
	{"LUKS header", "LUKS\xba\xbe", at(0), LUKS},
}

// signatures lists the other places in which on-disk formats keep their superblocks. blkid knows the first
// ones too; it does not read the backups, which remain when the start of a disk was overwritten. The sources are the formats' own descriptions: ext4 and md in
// the kernel's Documentation, xfs_fs.h and ctree.h of xfsprogs and btrfs-progs, the LUKS2 on-disk
// format, the UEFI specification, lvm2's label.c, OpenZFS's vdev_label.c, libblkid's probes.
var signatures = []signature{
	{"ext2/3/4 backup superblock", "\x53\xef", extBackups, Ext4},
	{"xfs secondary superblock", "XFSB", xfsSecondaries, XFS},
	{"btrfs filesystem", "_BHRfS_M", at(64*kib+64, 64*mib+64, 256*gib+64), ""},
	// The second LUKS2 header stands right behind the first, whose size is one of these.
	{"LUKS2 secondary header", "SKUL\xba\xbe", at(16*kib, 32*kib, 64*kib, 128*kib, 256*kib, 512*kib, mib, 2*mib, 4*mib), LUKS},
	{"LVM physical volume", "LABELONE", at(0, 512, 1024, 1536), ""},
	{"GPT partition table", "EFI PART", at(512, 4*kib), ""},
	{"GPT backup partition table", "EFI PART", fromEnd(512, 4*kib), ""},
	{"MBR partition table or boot sector", "\x55\xaa", at(510), ""},
	{"md RAID member (metadata 1.x)", "\xfc\x4e\x2b\xa9", md1, ""},
	{"md RAID member (metadata 1.x)", "\xa9\x2b\x4e\xfc", md1, ""},
	{"md RAID member (metadata 0.90)", "\xfc\x4e\x2b\xa9", md090, ""},
	{"md RAID member (metadata 0.90)", "\xa9\x2b\x4e\xfc", md090, ""},
	{"swap area", "SWAPSPACE2", at(4*kib-10, 8*kib-10, 16*kib-10, 32*kib-10, 64*kib-10), ""},
	{"swap area", "SWAP-SPACE", at(4*kib-10, 8*kib-10, 16*kib-10, 32*kib-10, 64*kib-10), ""},
	{"ZFS member", "\x0c\xb1\xba\x00", zfsUberblocks, ""},
	{"ZFS member", "\x00\xba\xb1\x0c", zfsUberblocks, ""},
	{"VMFS filesystem", "\x5e\xf1\xab\x2f", at(2 * mib), ""},
	{"VMFS volume member", "\x0d\xd0\x01\xc0", at(mib), ""},
	{"NTFS filesystem", "NTFS    ", joined(at(3), fromEnd(512-3)), ""},
	{"exFAT filesystem", "EXFAT   ", at(3), ""},
	{"BitLocker volume", "-FVE-FS-", at(3), ""},
	{"F2FS filesystem", "\x10\x20\xf5\xf2", at(kib, 5*kib), ""},
	{"bcache device", "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", at(4*kib + 24), ""},
	{"bcachefs filesystem", "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", at(4*kib + 24), ""},
	{"squashfs filesystem", "hsqs", at(0), ""},
	{"EROFS filesystem", "\xe2\xe1\xf5\xe0", at(kib), ""},
	{"ISO 9660 filesystem", "CD001", at(32*kib + 1), ""},
	{"UDF filesystem", "BEA01", at(32*kib + 1), ""},
	{"ReiserFS filesystem", "ReIsEr", at(8*kib+52, 64*kib+52), ""},
	{"JFS filesystem", "JFS1", at(32 * kib), ""},
	{"GFS2 filesystem", "\x01\x16\x19\x70", at(64 * kib), ""},
	{"OCFS2 filesystem", "OCFSV2", at(kib, 2*kib, 4*kib, 8*kib), ""},
	{"NILFS2 filesystem", "\x34\x34", joined(at(kib+6), fromEnd(4*kib-6)), ""},
	{"HFS+ filesystem", "H+", joined(at(kib), fromEnd(kib)), ""},
	{"APFS container", "NXSB", at(32), ""},
	{"Ceph BlueStore device", "bluestore block device", at(0), ""},
	{"Oracle ASM disk", "ORCLDISK", at(32), ""},
	{"Stratis pool member", "!Stra0tis", at(512+4, 9*512+4), ""},
	{"VDO volume", "dmvdo001", at(0), ""},
	{"DDF RAID member", "\xde\x11\xde\x11", fromEnd(512), ""},
	{"Intel RAID member", "Intel Raid ISM Cfg Sig. ", fromEnd(1024), ""},
}

// joined is the places of all of fs.
func joined(fs ...func(int64) []int64) func(int64) []int64 {
	return func(size int64) []int64 {
		var out []int64
		for _, f := range fs {
			out = append(out, f(size)...)
		}
		return out
	}
}

// extBackups lists where ext2/3/4 with sparse_super keeps its first backups, for every block size.
func extBackups(int64) []int64 {
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

// xfsSecondaries lists where the superblocks of the first allocation groups are, for the numbers
// of groups that mkfs.xfs chooses by itself and 4 KiB blocks.
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

// md1 lists the places of md metadata 1.0, 1.1 and 1.2.
func md1(size int64) []int64 { return []int64{(size/512 - 16) &^ 7 * 512, 0, 4 * kib} }

// md090 is the place of md metadata 0.90.
func md090(size int64) []int64 { return []int64{size&^(64*kib-1) - 64*kib} }

// zfsUberblocks lists the uberblock slots of all four labels.
func zfsUberblocks(size int64) []int64 {
	const label = 256 * kib
	end := size &^ (label - 1)
	var out []int64
	for _, start := range []int64{0, label, end - 2*label, end - label} {
		for slot := label / 2; slot < label; slot += kib {
			out = append(out, start+slot)
		}
	}
	return out
}
