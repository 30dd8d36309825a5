package mounter

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestHoldersOfABtrfsThatCannotBeAsked: a btrfs is known by the number of its device only when it can
// be asked. One that cannot, because it vanished or is covered, counts only if it may be the one.
func TestHoldersOfABtrfsThatCannotBeAsked(t *testing.T) {
	const dev, other = uint64(0x703), uint64(0x704)
	entry := func(path string, superblock int) *mountinfo.Info {
		return &mountinfo.Info{Mountpoint: path, Minor: superblock, FSType: "btrfs"}
	}
	tests := map[string]struct {
		table []*mountinfo.Info
		asked map[string]uint64
		inUse bool // the device is in some btrfs
		want  []string
		sure  bool
	}{
		"a mount of another filesystem that vanished":      {[]*mountinfo.Info{entry("/ours", 1), entry("/gone", 2)}, map[string]uint64{"/ours": dev}, true, []string{"/ours"}, true},
		"a covered mount of the same filesystem":           {[]*mountinfo.Info{entry("/covered", 1), entry("/ours", 1)}, map[string]uint64{"/ours": dev}, true, []string{"/ours", "/covered"}, true},
		"a covered mount of another one that can be asked": {[]*mountinfo.Info{entry("/covered", 2), entry("/theirs", 2)}, map[string]uint64{"/theirs": other}, true, nil, true},
		"the only mount, covered":                          {[]*mountinfo.Info{entry("/covered", 1)}, nil, true, []string{"/covered"}, false},
		"a mount that vanished, of a device in no btrfs":   {[]*mountinfo.Info{entry("/gone", 1)}, nil, false, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, sure := New(Config{}).holdersIn(tc.table, dev, func(info *mountinfo.Info) (uint64, error) {
				if number, ok := tc.asked[info.Mountpoint]; ok {
					return number, nil
				}
				return 0, errors.New("gone")
			}, func(uint64) bool { return tc.inUse })
			if !slices.Equal(got, tc.want) || sure != tc.sure {
				t.Errorf("holdersIn = %v, %v, want %v, %v", got, sure, tc.want, tc.sure)
			}
		})
	}
}

func TestAHolderIsExplained(t *testing.T) {
	dm := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dm, "dm"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dm, "dm/name"), []byte("guest-root\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := ExplainHolder(dm); !strings.HasPrefix(got, dm) || !strings.Contains(got, `"guest-root"`) || !strings.Contains(got, "vgchange -an") {
		t.Errorf("of a stacked device = %q", got)
	}
	if got := ExplainHolder("/mnt/pod"); got != "/mnt/pod" {
		t.Errorf("of a mount = %q", got)
	}
}
