//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// place is where the volumes of a cluster are. All that differs between clouds for the story is here.
type place struct {
	cloud, driver string
	// topologyKey is the label of nodes that have the driver.
	topologyKey string
	// classes has the name of a StorageClass for each filesystem.
	classes map[string]string
	// whole is what sizes are multiples of.
	whole int64
	// nodeBound: a volume stays on its node, and the cluster knows how much room each node has.
	nodeBound bool
	// growsAtAttach: a machine sees a volume's growth only at the next attach.
	growsAtAttach bool
	// words replaces words of the examples, which are written for local.
	words []string
	steps []step
	// find finds what really holds the volumes.
	find func(d driver) (store, error)
}

// store is what really holds the volumes, asked past Kubernetes.
type store interface {
	// look returns the volumes and snapshots that there are, and in words what must not be, whatever the
	// cluster knows.
	look(ctx context.Context) (held []thing, wrong []string, err error)
}

// thing is a volume or a snapshot, with words about it for a reader who does not expect it.
type thing struct{ id, words string }

// places are the clouds that the story is told of, by the word that CLOUDBLOCK_CLOUD has for each.
var places = map[string]place{
	"local": {
		cloud: "local", driver: "local.csi.cloudblock.io", topologyKey: "topology.local.csi.cloudblock.io/node",
		classes: map[string]string{"ext4": "cloudblock-local", "xfs": "cloudblock-local-xfs"},
		whole:   mib, nodeBound: true,
		steps: []step{
			{"a claim and a pod with data", (*story).claimAndPod},
			{"the pod restarts", (*story).podRestarts},
			{"xfs grows while the pod runs", growsOnline("xfs.yaml")},
			{"snapshot of a volume in use", (*story).snapshot},
			{"restore into a larger claim", (*story).restore},
			{"clone beside its source", (*story).clone},
			{"raw block", (*story).rawBlock},
			{"ReadWriteOncePod", (*story).readWriteOncePod},
			{"ext4 grows", whereExt4Grows((*story).growExt4)},
			{"a full pool, then room", (*story).fullPool},
			{"the scheduler finds the node with room", (*story).nodeWithRoom},
			{"a volume that exists is bound to a claim", (*story).existing},
			{"the kubelet's statistics", (*story).statistics},
			{"metrics and health of the driver", (*story).metrics},
			{"everything deleted", (*story).everythingDeleted},
		},
		find: findPools,
	},
	"digitalocean": {
		cloud: "digitalocean", driver: "digitalocean.csi.cloudblock.io", topologyKey: "topology.digitalocean.csi.cloudblock.io/region",
		classes: map[string]string{"ext4": "cloudblock-digitalocean", "xfs": "cloudblock-digitalocean-xfs"},
		whole:   gib,
		words:   []string{"cloudblock-local", "cloudblock-digitalocean", "128Mi", "1Gi", "512Mi", "1Gi", "768Mi", "2Gi"},
		steps:   slices.Insert(slices.Clone(refusable), len(refusable)-5, step{"a pod leaves a machine that is full", (*story).podLeavesFullMachine}),
		find:    account{link: "scsi-0DO_Volume_", kinds: []string{"volumes", "snapshots"}, described: true}.at,
	},
	"linode": {
		cloud: "linode", driver: "linode.csi.cloudblock.io", topologyKey: "topology.linode.csi.cloudblock.io/region",
		classes:       map[string]string{"ext4": "cloudblock-linode", "xfs": "cloudblock-linode-xfs"},
		whole:         10 * gib,
		words:         []string{"cloudblock-local", "cloudblock-linode", "128Mi", "10Gi", "512Mi", "10Gi", "768Mi", "20Gi"},
		growsAtAttach: true,
		steps:         reattached,
		find:          account{link: "scsi-0Linode_Volume_", kinds: []string{"volumes"}, described: true}.at,
	},
	"yandex": {
		cloud: "yandex", driver: "yandex.csi.cloudblock.io", topologyKey: "topology.yandex.csi.cloudblock.io/zone",
		classes: map[string]string{"ext4": "cloudblock-yandex", "xfs": "cloudblock-yandex-xfs"},
		whole:   gib,
		words:   []string{"cloudblock-local", "cloudblock-yandex", "128Mi", "1Gi", "512Mi", "1Gi", "768Mi", "2Gi"},
		steps:   refusable,
		find:    account{link: "virtio-", kinds: []string{"disks", "snapshots"}}.at,
	},
}

// reattached is the story where a machine sees a volume's growth only once the volume is attached again, and
// where there are no snapshots.
var reattached = []step{
	{"a claim and a pod with data", (*story).claimAndPod},
	{"the pod restarts", (*story).podRestarts},
	{"xfs grows while the pod runs, and is seen after it", growsBehind("xfs.yaml")},
	{"clone beside its source", (*story).clone},
	{"raw block", (*story).rawBlock},
	{"raw block grows while the pod runs, and is seen after it", growsBehind("block.yaml")},
	{"ReadWriteOncePod", (*story).readWriteOncePod},
	{"ext4 grows while the pod runs, and is seen after it", whereExt4Grows(growsBehind("pod.yaml"))},
	{"xfs grows without a pod", growsFree("xfs.yaml")},
	{"raw block grows without a pod", growsFree("block.yaml")},
	{"a claim that a quota refused is lowered", lowered("xfs.yaml")},
	{"a class of attributes changes a volume's tags", (*story).modified},
	{"pods move to the other node with their data", (*story).podsMove},
	{"a volume that exists is bound to a claim", (*story).existing},
	{"the kubelet's statistics", (*story).statistics},
	{"metrics and health of the driver", (*story).metrics},
	{"everything deleted", (*story).everythingDeleted},
}

// attached is the story where a cloud attaches the volumes to machines.
var attached = []step{
	{"a claim and a pod with data", (*story).claimAndPod},
	{"the pod restarts", (*story).podRestarts},
	{"xfs grows while the pod runs", growsOnline("xfs.yaml")},
	{"snapshot of a volume in use", (*story).snapshot},
	{"restore into a larger claim", (*story).restore},
	{"clone beside its source", (*story).clone},
	{"raw block", (*story).rawBlock},
	{"raw block grows while the pod runs", growsOnline("block.yaml")},
	{"ReadWriteOncePod", (*story).readWriteOncePod},
	{"ext4 grows", whereExt4Grows((*story).growExt4)},
	{"a claim that a quota refused is lowered", lowered("xfs.yaml")},
	{"a class of attributes changes a volume's tags", (*story).modified},
	{"pods move to the other node with their data", (*story).podsMove},
	{"a volume that exists is bound to a claim", (*story).existing},
	{"the kubelet's statistics", (*story).statistics},
	{"metrics and health of the driver", (*story).metrics},
	{"everything deleted", (*story).everythingDeleted},
}

// refusable is that story where the cloud may refuse to let an attached volume grow.
var refusable = slices.Insert(slices.Clone(attached), len(attached)-5,
	step{"xfs grows after the detach, where the cloud refuses growth in use", refusedInUse("xfs.yaml")},
	step{"raw block grows after the detach, where the cloud refuses growth in use", refusedInUse("block.yaml")},
)

// here is the cloud of the cluster that is tested.
func here() (place, error) {
	name := os.Getenv("CLOUDBLOCK_CLOUD")
	if name == "" {
		name = "local"
	}
	p, known := places[name]
	if !known {
		return p, fmt.Errorf("CLOUDBLOCK_CLOUD=%s: there is no story of that cloud", name)
	}
	return p, nil
}

// round rounds a size up to what the cloud has.
func (p place) round(size int64) int64 { return (size + p.whole - 1) / p.whole * p.whole }

// exampleNamespace is the namespace that the examples name.
const exampleNamespace = "cloudblock-examples"

// examples returns the folder of the examples, in this cloud's words and for a test's namespace.
func (p place) examples(t *testing.T, namespace string) string {
	t.Helper()
	const folder = "../../../../deploy/examples"
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples in %s: %v", folder, err)
	}
	words, dir := strings.NewReplacer(append([]string{exampleNamespace, namespace}, p.words...)...), t.TempDir()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(words.Replace(string(text))), 0o600)
		}
		must(t, err)
	}
	return dir
}
