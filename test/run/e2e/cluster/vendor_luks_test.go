//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// luksSecret has the key of the encrypted volumes.
const luksSecret = "luks-key"

var luksAttributes = map[string]string{
	linodeDriver + "/luks-encrypted": "true",
	linodeDriver + "/luks-cipher":    "aes-xts-plain64",
	linodeDriver + "/luks-key-size":  "512",
}

// encrypts makes the Secret, and the class that encrypts with its key. Where the kernel cannot, the scenario is skipped.
func (v *vendored) encrypts(ctx context.Context, reclaimPolicy string) error {
	mapper, err := os.Open("/dev/mapper/control")
	if err != nil {
		v.t.Skipf("the kernel of this machine has no device-mapper, which LUKS needs: %v", err)
	}
	if err := errors.Join(mapper.Close(), v.Create(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": luksSecret}, "stringData": map[string]string{"luksKey": rand.Text() + rand.Text()},
	})); err != nil {
		return err
	}
	parameters := map[string]string{
		"csi.storage.k8s.io/node-stage-secret-name": luksSecret, "csi.storage.k8s.io/node-stage-secret-namespace": v.Namespace,
	}
	maps.Copy(parameters, luksAttributes)
	return v.class(ctx, reclaimPolicy, parameters)
}

// wantLUKS checks that the scenario's disk, which is attached, begins with a LUKS header.
func (v *vendored) wantLUKS(ctx context.Context) error {
	made, err := v.made(ctx)
	if err != nil {
		return err
	}
	if len(made) != 1 {
		return fmt.Errorf("the account has %d volumes with the tag %s, want one", len(made), v.Namespace)
	}
	disks, err := loops(func(file string) bool { return filepath.Base(file) == v.account.link+made[0].Label })
	if err != nil || len(disks) != 1 {
		return errors.Join(err, fmt.Errorf("the volume %s is the devices %v, want one", made[0].Label, disks))
	}
	disk, err := os.Open(slices.Collect(maps.Keys(disks))[0])
	if err != nil {
		return err
	}
	start := make([]byte, 6)
	_, err = disk.ReadAt(start, 0)
	if err == nil && string(start) != "LUKS\xba\xbe" {
		err = fmt.Errorf("the disk begins with %q, which is no header of LUKS", start)
	}
	return errors.Join(err, disk.Close())
}

// encrypted creates objects of which a pod uses an encrypted volume, and writes data to that.
func (v *vendored) encrypted(ctx context.Context, reclaimPolicy, pod string, objects ...any) (kube.Pod, error) {
	if err := v.encrypts(ctx, reclaimPolicy); err != nil {
		return kube.Pod{}, err
	}
	p, err := v.created(ctx, pod, objects...)
	if err == nil {
		err = v.write(ctx, p)
	}
	if err == nil {
		err = v.wantLUKS(ctx)
	}
	return p, err
}

// luks: the life of an encrypted volume.
func (v *vendored) luks(ctx context.Context) error {
	p, err := v.encrypted(ctx, "Delete", "e2e-pod", v.claim(), newPod("e2e-pod", "data", ""))
	return v.finish(ctx, p, err)
}

// luksMoves: an encrypted volume goes to another node and comes back.
func (v *vendored) luksMoves(ctx context.Context) error {
	v.wantTwoNodes()
	first := v.env.nodes[0]
	p, err := v.encrypted(ctx, "Delete", "sts-0", v.statefulSetOf(1, first))
	for _, node := range []string{v.env.otherThan(first), first} {
		if err != nil {
			return err
		}
		if err := v.sends(ctx, node); err != nil {
			return err
		}
		p, err = v.untilNext(ctx, p, func(next kube.Pod) bool { return next.Spec.NodeName == node })
		if err == nil {
			err = v.wantData(ctx, p, v.sums["sts-0"])
		}
		if err == nil {
			err = v.wantLUKS(ctx)
		}
	}
	return v.finishSet(ctx, p, err)
}

// luksRemounts: an encrypted volume whose PersistentVolume was deleted and is created again by hand has its data.
func (v *vendored) luksRemounts(ctx context.Context) error {
	p, err := v.encrypted(ctx, "Retain", "e2e-pod", v.claim(), newPod("e2e-pod", "data", ""))
	if err != nil {
		return err
	}
	_, pv, err := v.claimed(ctx, p)
	if err != nil {
		return err
	}
	name := pv.Metadata.Name
	if err := v.leave(ctx, p); err != nil {
		return err
	}
	if err := errors.Join(v.Delete(ctx, "pvc", "data"), v.UntilGone(ctx, "pvc", "data", patience), v.Delete(ctx, "pv", name), v.UntilGone(ctx, "pv", name, patience)); err != nil {
		return err
	}
	claim := v.claim()
	claim["spec"].(map[string]any)["volumeName"] = name
	if p, err = v.created(ctx, "e2e-pod", v.volumeByHand(name, pv.Spec.CSI.VolumeHandle), claim, newPod("e2e-pod", "data", "")); err != nil {
		return err
	}
	if err := errors.Join(v.wantData(ctx, p, v.sums["e2e-pod"]), v.wantLUKS(ctx), v.reclaim(ctx, name, "Delete")); err != nil {
		return err
	}
	return v.finish(ctx, p, nil)
}

// volumeByHand is the PersistentVolume of an encrypted volume that exists.
func (v *vendored) volumeByHand(name, handle string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": name, "annotations": map[string]string{"pv.kubernetes.io/provisioned-by": linodeDriver}},
		"spec": map[string]any{
			"capacity": map[string]string{"storage": "10Gi"}, "accessModes": []string{"ReadWriteOnce"},
			"persistentVolumeReclaimPolicy": "Retain", "storageClassName": v.Namespace,
			"csi": map[string]any{
				"driver": linodeDriver, "volumeHandle": handle, "fsType": "ext4", "volumeAttributes": luksAttributes,
				"nodeStageSecretRef": map[string]string{"name": luksSecret, "namespace": v.Namespace},
			},
		},
	}
}
