//go:build cluster

package cluster

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// expandBlock: a raw block volume that a pod uses grows in the account, and the PersistentVolume shows it.
func (v *vendored) expandBlock(ctx context.Context) error {
	p, err := v.start(ctx, nil, v.blockClaim(), blockPod())
	if err == nil {
		err = v.grows(ctx, p)
	}
	return v.finish(ctx, p, err)
}

// expandFilesystem: the volume grows in the account while a pod uses it. The pod keeps its size and its data until the volume is
// detached, and the next pod has the new size.
func (v *vendored) expandFilesystem(ctx context.Context) error {
	able, err := kube.MountedExt4Grows()
	if err != nil {
		return err
	}
	var parameters map[string]string
	if !able {
		v.Log("on xfs: this machine's root lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4")
		parameters = map[string]string{"fstype": "xfs"}
	}
	p, err := v.usual(ctx, parameters)
	if err == nil {
		err = v.write(ctx, p)
	}
	if err == nil {
		err = v.wantFilesystem(ctx, p, firstSize)
	}
	if err == nil {
		err = v.grows(ctx, p)
	}
	if err == nil {
		err = v.wantFilesystem(ctx, p, firstSize)
	}
	if err == nil {
		err = v.wantData(ctx, p, v.sums["e2e-pod"])
	}
	if err == nil {
		err = v.leave(ctx, p)
	}
	if err == nil {
		err = v.Create(ctx, newPod("e2e-pod", "data", ""))
	}
	if err != nil {
		return err
	}
	if p, err = v.UntilReady(ctx, "e2e-pod", patience); err != nil {
		return err
	}
	return v.finish(ctx, p, v.wantGrown(ctx, p, nextSize))
}

// grows asks for the next size, and waits until the account and the PersistentVolume show it.
func (v *vendored) grows(ctx context.Context, p kube.Pod) error {
	if err := v.grow(ctx, "data", nextSize); err != nil {
		return err
	}
	if err := v.untilMade(ctx, "20 GiB", func(made []linodeVolume) bool { return len(made) == 1 && made[0].Size == nextSize/gib }); err != nil {
		return err
	}
	return v.Until(ctx, "the PersistentVolume has 20Gi", patience, func(ctx context.Context) (bool, string, error) {
		_, pv, err := v.claimed(ctx, p)
		return pv.Spec.Capacity["storage"] == "20Gi", fmt.Sprintf("%v", pv.Spec.Capacity), err
	})
}
