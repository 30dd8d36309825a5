package upstream

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNothingOfTheVendorsTablesIsMissing: the capabilities and filesystems that the vendors' drivers publish for the suite are in our
// tables, so that our runs select every spec that theirs do. What is not has a reason here and in docs/contributing/testing.md.
func TestNothingOfTheVendorsTablesIsMissing(t *testing.T) {
	for cloud, vendors := range map[string]struct{ capabilities, filesystems, without []string }{
		// digitalocean/csi-digitalocean 0711283, test/e2e/testdrivers/1.35.yaml
		"digitalocean": {
			capabilities: []string{
				"persistence", "block", "fsGroup", "exec", "snapshotDataSource", "multipods", "controllerExpansion", "nodeExpansion", "onlineExpansion",
				"volumeLimits", "singleNodeVolume", "topology",
			},
			filesystems: []string{"ext3", "ext4", "xfs"},
			// The first takes specs away: those of a volume on two nodes, one after the other. The driver makes no ext3.
			without: []string{"singleNodeVolume", "ext3"},
		},
		// linode/linode-blockstorage-csi-driver def6be4, tests/upstream-e2e/test-driver.yaml
		"linode": {
			capabilities: []string{"block", "exec", "multipods", "persistence", "pvcDataSource"},
			filesystems:  []string{"ext2", "ext3", "ext4", "xfs"},
			without:      []string{"ext2", "ext3"},
		},
	} {
		table, err := os.ReadFile("../external-" + cloud + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for form, words := range map[string][]string{`(?m)^    %: true$`: vendors.capabilities, `(?m)^    %: \{\}$`: vendors.filesystems} {
			for _, word := range words {
				line := regexp.MustCompile(strings.ReplaceAll(form, "%", word))
				if got, want := line.Match(table), !slices.Contains(vendors.without, word); got != want {
					t.Errorf("external-%s.yaml has %s, which the vendor's table has: %t, want %t", cloud, word, got, want)
				}
			}
		}
	}
}
