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
	// version is the option with which the first program prints its version.
	version string
}{
	{use: "everything", required: true, programs: []string{"mount", "umount", "blkid"}, version: "--version"},
	{use: "ext4", programs: []string{"mkfs.ext4", "e2fsck"}, version: "-V"},
	{use: "xfs", programs: []string{"mkfs.xfs", "xfs_growfs"}, version: "-V"},
	{use: "LUKS", programs: []string{"cryptsetup", "dmsetup"}, version: "--version"},
}

// missingPrograms returns the programs that are on none of the folders of a PATH.
func missingPrograms(path string, programs []string) []string {
	var missing []string
	for _, p := range programs {
		if onPath(path, p) == "" {
			missing = append(missing, p)
		}
	}
	return missing
}

// onPath returns the file of a program on a PATH, or "".
func onPath(path, program string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, program)
		info, err := os.Stat(file)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file
		}
	}
	return ""
}
