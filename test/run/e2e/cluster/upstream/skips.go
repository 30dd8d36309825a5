package upstream

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// Skip is a reason why specs do not run. All of them are in this file.
type Skip struct {
	// Reason is a sentence for the summary.
	Reason string
	// Said fits what the suite says when it skips a spec by itself.
	Said *regexp.Regexp
	// Named fits the names of specs that are left out before the suite starts. Beside Said it limits
	// the reason to specs of such names.
	Named string
	// Only are the clouds that this is about; empty means all.
	Only []string
}

// of are the skips that are about a cloud.
func of(cloud string, skips []Skip) []Skip {
	return slices.DeleteFunc(slices.Clone(skips), func(s Skip) bool { return len(s.Only) > 0 && !slices.Contains(s.Only, cloud) })
}

// The clouds that reasons are about: pools on the nodes, and those that attach volumes to machines.
var (
	pools     = []string{"local"}
	attaching = slices.DeleteFunc(profile.Names(), func(name string) bool { return name == "local" })
)

func said(text string) *regexp.Regexp { return regexp.MustCompile(text) }

// excuses are the reasons why the suite itself leaves out specs of this driver. A text that fits none
// of them fails the run.
var excuses = []Skip{
	{Reason: "only made volumes are tested: the driver has no volumes inside a pod's spec, and the suite can make none outside of it",
		Said: said(`does(n't| not) support (volume type )?"?(InlineVolume|PreprovisionedPV|CSIInlineVolume)`)},
	{Reason: "the driver formats ext4 and xfs, no ext3",
		Said: said(`doesn't support ext3 -- skipping`)},
	{Reason: "the spec is about filesystems, the pattern about raw block, or the other way round",
		Said: said(`(?i)block volumes do not support mount options|not valid for Block|block volumes cannot be read-only|read only raw block|multiple PV mount test for block|does not support non-filesystem|covered by block volume case|Block volumes is not implemented`)},
	{Reason: "the spec is about volumes of a pod's spec, the pattern about claims, or the other way round",
		Said: said(`volume type "\w+" is (not )?ephemeral|Driver supports dynamic provisioning, skipping|Suite "\w+" does not support|doesn't support readOnly source|Skipping \w+ test for expansion`)},
	{Reason: "a pool belongs to one node, so no volume is seen by two", Only: pools,
		Said: said(`ROX access mode|singleNodeVolume|doesn't support RWX|No topology with at least 2 nodes found|ReadOnlyMany|multi-topology environment|separate topology segments`)},
	{Reason: "a volume is attached to one machine at a time", Only: attaching,
		Said: said(`ROX access mode|doesn't support RWX|ReadOnlyMany`)},
	{Reason: "the nodes are in one region, or one zone, so there is one topology", Only: attaching,
		Said: said(`multi-topology environment|separate topology segments|Not enough topologies in cluster`)},
	{Reason: "nobody is told how much room a region or zone has", Only: attaching,
		Said: said(`doesn't publish storage capacity`)},
	{Reason: "local has no limit of volumes per node but the pool's size", Only: pools,
		Said: said(`does not support volume limits`)},
	{Reason: "a pool keeps nothing of a volume that a class of attributes could change", Only: pools,
		Said: said(`VolumeAttributesClass`)},
	{Reason: "the driver does not tell which blocks of a snapshot changed",
		Said: said(`does not support snapshot metadata`)},
	{Reason: "there are no snapshots of groups",
		Said: said(`does not support group snapshots|group snapshot stress test options`)},
	{Reason: "volumes of the cloud have no snapshots", Only: []string{"linode"},
		Said: said(`does not support (volume |populating data from )?snapshots?( - skipping)|doesn't specify snapshot stress test options`)},
	{Reason: "a machine sees that a volume has grown once the volume is attached again; our story grows them so", Only: []string{"linode"},
		Said: said(`does not support online volume expansion`)},
	{Reason: "no numbers to compare with are given for the suite's own measurements; make bench measures",
		Said: said(`doesn't specify (performance|volume modify stress) test options|performance tests?$`)},
	{Reason: "the spec is about snapshots, the pattern makes none",
		Said: said(`does not support snapshots - skipping`), Named: `\(filesystem volmode\)\].* multiVolume `},
	{Reason: "the machine has no SELinux",
		Said: said(`SELinux`)},
}

// always are the specs that no run of ours selects.
var always = []Skip{
	{Reason: "stops the kubelet of a node over ssh", Named: `\[Disruptive\]`},
	{Reason: "needs Windows nodes", Named: `\[Feature:Windows\]|ntfs`},
	{Reason: "needs nodes with SELinux", Named: `\[Feature:SELinux`},
	{Reason: "the suite starts the next pod without waiting for the last one's VolumeAttachment to go, and the machine sees the size with a new one; " +
		"our story waits", Only: []string{"linode"}, Named: `Verify if offline PVC expansion works`},
	{Reason: "snapshot contents made by hand: the stock csi-snapshotter in per-node mode sees only those with the label managed-by, which the suite does not set", Only: pools,
		Named: `Pre-provisioned Snapshot`},
}

// longer are the specs that only the wide run selects.
var longer = []Skip{
	{Reason: "takes long: in the wide run", Named: `\[Slow\]`},
	{Reason: "needs the cluster for itself: in the wide run", Named: `\[Serial\]`},
}

// noOnlineExt4 are the specs that grow a mounted ext4.
var noOnlineExt4 = []Skip{
	{
		Reason: "the kernel grows a mounted ext4 only with CAP_SYS_RESOURCE, and this machine's root has not got it; the same specs run on xfs",
		Named: `\((default fs|ext4)\)(\(allowExpansion\))?.*should resize volume when PVC is edited|` +
			`Generic Ephemeral-volume \(default fs\).*should support expansion of pvcs`,
	},
	{
		Reason: "the same for a volume that is larger than its filesystem when it is mounted",
		Named: `\((default fs|ext4)\)(\(allowExpansion\))?.*Verify if offline PVC expansion works|` +
			`\((default fs|ext4)\).*filesystem size when restoring snapshot to larger size`,
	},
}

// Filter returns the specs that are left out before the suite starts.
func (o Options) Filter() []Skip {
	left := append([]Skip{}, always...)
	if !o.Wide {
		left = append(left, longer...)
	}
	if !o.GrowsMountedExt4 {
		left = append(left, noOnlineExt4...)
	}
	return of(o.Cloud, left)
}

func pattern(skips []Skip) string {
	names := make([]string, 0, len(skips))
	for _, s := range skips {
		names = append(names, s.Named)
	}
	return strings.Join(names, "|")
}
