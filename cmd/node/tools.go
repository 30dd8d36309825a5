package main

import (
	"os"
	"path/filepath"
)

// tools are the programs that the node runs. Those of a filesystem, or of encryption, may be missing where no class uses it;
// without the required ones no volume can be served.
var tools = []struct {
	use      string
	required bool
	programs []string
}{
	{use: "everything", required: true, programs: []string{"mount", "umount", "blkid"}},
	{use: "ext4", programs: []string{"mkfs.ext4", "e2fsck", "resize2fs"}},
	{use: "xfs", programs: []string{"mkfs.xfs", "xfs_growfs"}},
	{use: "btrfs", programs: []string{"mkfs.btrfs", "btrfs"}},
	{use: "LUKS", programs: []string{"cryptsetup", "dmsetup"}},
}

// missingPrograms returns the programs that are on none of the folders of a PATH.
func missingPrograms(path string, programs []string) []string {
	var missing []string
	for _, p := range programs {
		if !onPath(path, p) {
			missing = append(missing, p)
		}
	}
	return missing
}

func onPath(path, program string) bool {
	for _, dir := range filepath.SplitList(path) {
		info, err := os.Stat(filepath.Join(dir, program))
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return true
		}
	}
	return false
}
