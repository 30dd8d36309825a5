package check

import (
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// Outputs of e2fsck 1.47.0 and xfs_repair 6.1.0, shortened. The lines of damage are those that their exit codes do not always show.
func TestComplaints(t *testing.T) {
	const (
		ext4 = "e2fsck 1.47.0 (5-Feb-2023)\nPass 1: Checking inodes, blocks, and sizes\nPass 2: Checking directory structure\n" +
			"Pass 3: Checking directory connectivity\nPass 4: Checking reference counts\nPass 5: Checking group summary information\n"
		xfs = "Phase 1 - find and verify superblock...\nPhase 2 - using internal log\n        - zero log...\n        - agno = 0\n" +
			"Phase 3 - for each AG...\n        - scan (but don't clear) agi unlinked lists...\nNo modify flag set, skipping phase 5\n"
	)
	tests := map[string]struct {
		fs     mounter.Filesystem
		output string
		want   []string
	}{
		"an intact ext4":                    {mounter.Ext4, ext4 + "data: 11/25600 files (0.0% non-contiguous), 8907/102400 blocks\n", nil},
		"a label that looks like a message": {mounter.Ext4, ext4 + "Fix? yes: 11/25600 files (9.1% non-contiguous), 8907/102400 blocks\n", nil},
		"a clock that was ahead":            {mounter.Ext4, ext4 + "Superblock last mount time is in the future.\n\t(by less than a day, probably due to the hardware clock being incorrectly set)\n", nil},
		"blocks that two files have":        {mounter.Ext4, ext4 + "Pass 1B: Rescanning for multiply-claimed blocks\n", []string{"Pass 1B: Rescanning for multiply-claimed blocks"}},
		"a wrong count": {
			mounter.Ext4, ext4 + "Free blocks count wrong (93493, counted=93492).\nFix? no\n",
			[]string{"Free blocks count wrong (93493, counted=93492)."},
		},
		"a damage with the words of an intact one in it": {
			mounter.Ext4, "Inode 12, Pass 1: Checking inodes, blocks, and sizes\n", []string{"Inode 12, Pass 1: Checking inodes, blocks, and sizes"},
		},
		"an intact xfs": {mounter.XFS, xfs + "Phase 7 - verify link counts...\n        - moving disconnected inodes to lost+found ...\n", nil},
		"an xfs with a wrong checksum": {
			mounter.XFS, xfs + "Metadata CRC error detected at 0x5628, xfs_agf block 0x1/0x200\n",
			[]string{"Metadata CRC error detected at 0x5628, xfs_agf block 0x1/0x200"},
		},
		"a damage that is indented": {mounter.XFS, xfs + "        would have cleared inode 131\n", []string{"        would have cleared inode 131"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := programs[tc.fs].complaints(tc.output); !slices.Equal(got, tc.want) {
				t.Errorf("complaints = %q, want %q", got, tc.want)
			}
		})
	}
}
