//go:build cluster

package cluster

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// TestLimits is what docs/operations.md says of limits of I/O on machines with cgroup v1: the pod does not get the volume, and reads why.
// Without limits it gets one, and a later VolumeAttributesClass with limits is refused. TestIOLimits in the virtual machine has cgroup v2.
func TestLimits(t *testing.T) {
	s := begin(t, "limits")
	ctx := t.Context()
	class := s.Namespace // of the whole cluster
	if err := s.Create(ctx, map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": class},
		"provisioner": s.env.place.driver, "parameters": map[string]string{"iops": "100"}, "volumeBindingMode": "WaitForFirstConsumer",
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Delete(context.WithoutCancel(ctx), "storageclass", class); err != nil {
			t.Error(err)
		}
	})
	must(t, s.limited(ctx, class))
	if _, modifies := s.env.store.(account); !modifies {
		return
	}
	must(t, s.limitedLater(ctx))
}

// limited is a pod with a volume of a class with limits.
func (s *story) limited(ctx context.Context, class string) error {
	const name = "limited"
	if err := s.place(ctx, claimOptions{name: name, class: class, size: s.env.round(512 * mib)}, ""); err != nil {
		return err
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		s.Log("this machine has cgroup v2: the limits hold, and nothing is refused")
		if _, err := s.UntilReady(ctx, name, patience); err != nil {
			return err
		}
		return s.remove(ctx, name)
	}
	var p kube.Pod
	p.Metadata.Name = name
	for _, word := range []string{"CB-NO-IO-LIMITS", "no mount of cgroup v2"} {
		if err := s.untilTold(ctx, p, name, word); err != nil {
			return err
		}
	}
	p, err := kube.Get[kube.Pod](ctx, s.Client, "pod", name)
	if err != nil {
		return err
	}
	if p.Ready() {
		return errors.New("the pod runs without the limits of its class")
	}
	return s.remove(ctx, name)
}

// limitedLater is a claim in use whose class of attributes gets limits: it is refused, and the pod keeps running.
func (s *story) limitedLater(ctx context.Context) (err error) {
	const name = "free"
	p, err := s.placed(ctx, claimOptions{name: name, class: s.env.classes["ext4"], size: s.env.round(512 * mib)}, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.withoutAttributes(ctx, s.Namespace)) }()
	if err := s.attributes(ctx, name, s.Namespace, "iops", "100"); err != nil {
		return err
	}
	if err := s.untilTold(ctx, p, name, "CB-IO-LIMITS-FIXED"); err != nil {
		return err
	}
	if err := s.wantSamePod(ctx, p); err != nil {
		return err
	}
	return s.remove(ctx, name)
}
