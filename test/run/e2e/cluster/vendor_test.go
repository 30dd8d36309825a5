//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/install"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

const (
	// linodeDriver is the name of Linode's driver, and what its parameters begin with.
	linodeDriver = "linodebs.csi.linode.com"
	// linodeSlots are those of an emulated Linode, for its own disks and for volumes.
	linodeSlots = int64(64)
	// reregistered is how long after a restart of the node programs the kubelets have surely registered them again.
	reregistered = 30 * time.Second
	// firstSize and nextSize are the sizes of the scenarios' volumes.
	firstSize, nextSize = 10 * gib, 20 * gib
)

// scenario is one of the end-to-end scenarios that Linode keeps for its driver, under the name of its folder there.
type scenario struct {
	name string
	run  func(*vendored, context.Context) error
}

// scenarios are all that Linode's repository has (docs/contributing/testing.md). The facts are theirs, the steps are our own.
var scenarios = []scenario{
	{"node-volume-limit", (*vendored).nodeVolumeLimit},
	{"pod-pvc-basic-filesystem", (*vendored).basicFilesystem},
	{"pod-pvc-create-ext4-filesystem", (*vendored).filesystemOfThePod},
	{"pod-pvc-create-xfs-filesystem", (*vendored).xfs},
	{"pod-pvc-expand-raw-block-storage", (*vendored).expandBlock},
	{"pod-pvc-expand-storage-size", (*vendored).expandFilesystem},
	{"pod-pvc-linode-encryption", (*vendored).encryptedByTheCloud},
	{"pod-pvc-luks", (*vendored).luks},
	{"pod-pvc-luks-mov-volume", (*vendored).luksMoves},
	{"pod-pvc-luks-remount", (*vendored).luksRemounts},
	{"pod-pvc-readonly", (*vendored).readOnly},
	{"pod-pvc-unexpected-reboot", (*vendored).podOverReboot},
	{"statefulset-pvc", (*vendored).statefulSet},
	{"sts-pvc-unexpected-reboot", (*vendored).statefulSetOverReboot},
}

// vendored is a scenario in a namespace of its own, on a driver with the vendor's name. Its class, and the tag of its volumes, have
// the name of the namespace.
type vendored struct {
	*story
	account account
	// image is that of the node program, which has the tools for filesystems.
	image string
}

// TestVendor installs the driver under the name of Linode's, as docs/migrate.md does, and runs the vendor's scenarios.
func TestVendor(t *testing.T) {
	s := begin(t, "vendor")
	a, is := s.env.store.(account)
	if !is || s.env.cloud != "linode" {
		t.Fatalf("the scenarios are those of Linode's driver; this cluster has %s", s.env.cloud)
	}
	own := s.env.installation(t)
	must(t, s.underVendorsName(t, own))
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			inner := &story{Client: s.env.namespace(t, "vendor"), t: t, env: s.env, sums: map[string]string{}}
			inner.Log = t.Logf
			v := &vendored{story: inner, account: a, image: own.fresh["node"]}
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				if err := errors.Join(v.Delete(ctx, "statefulsets", "--all"), v.Delete(ctx, "storageclass", v.Namespace)); err != nil {
					t.Error(err)
				}
			})
			must(t, c.run(v, t.Context()))
		})
	}
	if err := s.env.nothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

// underVendorsName replaces the cluster's own installation with that of the guide, until the test ends.
func (s *story) underVendorsName(t *testing.T, own installation) error {
	guide, err := install.Migrate(repository, s.env.cloud)
	dir := t.TempDir()
	if err == nil {
		err = guide.Folder(t.Context(), repository, s.env.cloud, dir)
	}
	if err != nil {
		return err
	}
	move, namespace := filepath.Join(dir, "move"), s.env.driver.Namespace
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		own.dump(t, s.Namespace)
		_, err := s.env.Run(ctx, "delete", "-k", move, "--ignore-not-found", "--timeout="+patience.String())
		if err = errors.Join(err, s.UntilGone(ctx, "namespace", namespace, patience)); err != nil {
			t.Errorf("remove the driver with the vendor's name: %v", err)
		}
		own.restore(t)
	})
	if err := own.remove(t.Context()); err != nil {
		return err
	}
	s.env.place.driver = linodeDriver
	for _, args := range [][]string{
		{"apply", "--filename", filepath.Join(dir, "deploy/overlays", s.env.cloud, "namespace.yaml")},
		{"--namespace", namespace, "create", "secret", "generic", "linode", "--from-literal=token=emulator-token"},
		{"apply", "-k", move},
		{"--namespace", namespace, "rollout", "status", "deployment/cloudblock-controller", "--timeout=" + patience.String()},
		{"--namespace", namespace, "rollout", "status", "daemonset/cloudblock-node", "--timeout=" + patience.String()},
	} {
		if _, err := s.env.Run(t.Context(), args...); err != nil {
			return err
		}
	}
	for _, node := range s.env.nodes {
		if err := s.registered(t.Context(), node, true); err != nil {
			return err
		}
	}
	return nil
}

// class creates the scenario's class, with the vendor's parameters.
func (v *vendored) class(ctx context.Context, reclaimPolicy string, parameters map[string]string) error {
	all := map[string]string{linodeDriver + "/volumeTags": v.Namespace}
	maps.Copy(all, parameters)
	return v.Create(ctx, map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": v.Namespace},
		"provisioner": linodeDriver, "parameters": all, "reclaimPolicy": reclaimPolicy,
		"allowVolumeExpansion": true, "volumeBindingMode": "Immediate",
	})
}

// claim is the scenario's claim.
func (v *vendored) claim() map[string]any {
	return newClaim(claimOptions{name: "data", class: v.Namespace, size: firstSize})
}

// usual makes a class with these parameters, a claim and a pod, and checks what each scenario checks of them first.
func (v *vendored) usual(ctx context.Context, parameters map[string]string) (kube.Pod, error) {
	return v.start(ctx, parameters, v.claim(), newPod("e2e-pod", "data", ""))
}

func (v *vendored) start(ctx context.Context, parameters map[string]string, objects ...any) (kube.Pod, error) {
	if err := v.class(ctx, "Delete", parameters); err != nil {
		return kube.Pod{}, err
	}
	return v.created(ctx, "e2e-pod", objects...)
}

// created creates objects of which a pod uses the scenario's only volume, which has its first size in the cluster and in the account.
func (v *vendored) created(ctx context.Context, pod string, objects ...any) (kube.Pod, error) {
	if err := v.Create(ctx, list(objects...)); err != nil {
		return kube.Pod{}, err
	}
	p, err := v.UntilReady(ctx, pod, patience)
	if err != nil {
		return p, err
	}
	claim, pv, err := v.claimed(ctx, p)
	if err == nil && (claim.Status.Phase != "Bound" || claim.Bytes() != firstSize || pv.Spec.Capacity["storage"] != "10Gi") {
		err = fmt.Errorf("the claim is %s, and its volume has %s; want it Bound, and 10Gi in both", claim.State(), pv.Spec.Capacity["storage"])
	}
	if err != nil {
		return p, err
	}
	made, err := v.made(ctx)
	if err == nil && (len(made) != 1 || made[0].Size != firstSize/gib || made[0].Linode == 0) {
		err = fmt.Errorf("the account has the volumes %+v with the tag %s, want one of 10 GiB that is attached", made, v.Namespace)
	}
	return p, err
}

// claimed returns the claim of a pod and its volume.
func (v *vendored) claimed(ctx context.Context, p kube.Pod) (kube.Claim, kube.Volume, error) {
	name, _, _ := p.Claimed()
	return v.bound(ctx, name)
}

// linodeVolume is a volume of the account.
type linodeVolume struct {
	Label     string   `json:"label"`
	Size      int64    `json:"size_gib"`
	Tags      []string `json:"tags"`
	Encrypted bool     `json:"encrypted"`
	Linode    int      `json:"linode"`
}

// made returns the volumes of the account that have the scenario's tag.
func (v *vendored) made(ctx context.Context) ([]linodeVolume, error) {
	all, err := read[[]linodeVolume](ctx, v.account, "volumes")
	return slices.DeleteFunc(all, func(l linodeVolume) bool { return !slices.Contains(l.Tags, v.Namespace) }), err
}

// untilMade waits until the volumes of the account with the scenario's tag are as wanted.
func (v *vendored) untilMade(ctx context.Context, what string, wanted func([]linodeVolume) bool) error {
	return v.Until(ctx, "in the account: "+what, patience, func(ctx context.Context) (bool, string, error) {
		made, err := v.made(ctx)
		return wanted(made), fmt.Sprintf("%+v", made), err
	})
}

// leave ends a pod, and checks that its volume is detached in the cluster and in the account.
func (v *vendored) leave(ctx context.Context, p kube.Pod) error {
	_, pv, err := v.claimed(ctx, p)
	if err == nil {
		err = v.away(ctx, p)
	}
	if err != nil {
		return err
	}
	free := func(made []linodeVolume) bool { return len(made) == 1 && made[0].Linode == 0 }
	if err := v.untilMade(ctx, "one volume, which is detached", free); err != nil {
		return err
	}
	return v.Until(ctx, "no node names the volume", patience, func(ctx context.Context) (bool, string, error) {
		named, err := v.Run(ctx, "get", "nodes", "--output", "jsonpath={.items[*].status.volumesAttached} {.items[*].status.volumesInUse}")
		return !strings.Contains(named, pv.Spec.CSI.VolumeHandle), named, err
	})
}

// finish is the end of each scenario, unless it has failed: the pod goes, then the claim, then the volume.
func (v *vendored) finish(ctx context.Context, p kube.Pod, failed error) error {
	if failed != nil {
		return failed
	}
	if err := v.leave(ctx, p); err != nil {
		return err
	}
	return v.gone(ctx)
}

// finishSet is the same where the pod is one of the StatefulSet's.
func (v *vendored) finishSet(ctx context.Context, p kube.Pod, failed error) error {
	if failed != nil {
		return failed
	}
	return errors.Join(v.Delete(ctx, "statefulset", "sts"), v.finish(ctx, p, nil))
}

// gone deletes the claims, and waits until the account has no volume with the scenario's tag.
func (v *vendored) gone(ctx context.Context) error {
	if err := v.Delete(ctx, "pvc", "--all"); err != nil {
		return err
	}
	return v.untilMade(ctx, "the volume is deleted", func(made []linodeVolume) bool { return len(made) == 0 })
}
