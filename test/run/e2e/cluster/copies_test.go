//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// snapshot takes one of the first claim and then overwrites the claim's data.
func (s *story) snapshot(ctx context.Context) error {
	source, err := s.source(ctx)
	if err != nil {
		return err
	}
	made, err := s.apply(ctx, "snapshot.yaml")
	if err != nil {
		return err
	}
	name := made["VolumeSnapshot"]
	err = s.Until(ctx, "snapshot "+name+" is ready", patience, func(ctx context.Context) (bool, string, error) {
		snap, err := kube.Get[kube.Snapshot](ctx, s.Client, "volumesnapshot", name)
		state := "not ready"
		if snap.Status.Error != nil {
			state = snap.Status.Error.Message
		}
		return snap.Status.ReadyToUse, state, err
	})
	if err != nil {
		return err
	}
	s.sums["the snapshot"] = s.sums[source.Metadata.Name]
	return s.write(ctx, source)
}

// source is the first pod.
func (s *story) source(ctx context.Context) (kube.Pod, error) { return s.ready(ctx, "pod.yaml") }

func (s *story) restore(ctx context.Context) error {
	p, err := s.run(ctx, "restore.yaml")
	if err != nil {
		return err
	}
	if err := s.wantData(ctx, p, s.sums["the snapshot"]); err != nil {
		return err
	}
	source, err := s.source(ctx)
	if err != nil {
		return err
	}
	from, err := s.claimOf(ctx, source)
	if err != nil {
		return err
	}
	to, err := s.claimOf(ctx, p)
	if err != nil {
		return err
	}
	if to.Bytes() <= from.Bytes() {
		return fmt.Errorf("the restored claim has %d bytes, want more than its source's %d", to.Bytes(), from.Bytes())
	}
	if able, err := kube.MountedExt4Grows(); err != nil {
		return err
	} else if !able {
		s.Log("the size is left out: this machine's root lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4")
	} else if err := s.wantFull(ctx, p); err != nil {
		return err
	}
	if err := s.wantNoDetour(ctx, to.Metadata.Name); err != nil {
		return err
	}
	return s.wantData(ctx, source, s.sums[source.Metadata.Name])
}

// wantNoDetour checks that the copy was asked of no node but that of its source.
func (s *story) wantNoDetour(ctx context.Context, claim string) error {
	events, err := kube.List[kube.Event](ctx, s.Client, "events", "--field-selector", "involvedObject.name="+claim)
	if err != nil {
		return err
	}
	for _, e := range events {
		if strings.Contains(e.Message, "only that node can do it") {
			return fmt.Errorf("claim %s came to a wrong node first: %s", claim, e.Message)
		}
	}
	return nil
}

// clone clones the first claim by the example and the xfs claim by one of its own: two xfs with one
// UUID are mounted on one node only if the driver knows how.
func (s *story) clone(ctx context.Context) error {
	source, err := s.source(ctx)
	if err != nil {
		return err
	}
	p, err := s.run(ctx, "clone.yaml")
	if err != nil {
		return err
	}
	if err := s.beside(ctx, source, p); err != nil {
		return err
	}
	if source, err = s.ready(ctx, "xfs.yaml"); err != nil {
		return err
	}
	claim, err := s.claimOf(ctx, source)
	if err != nil {
		return err
	}
	p, err = s.placed(ctx, claimOptions{name: "xfs-clone", class: s.env.classes["xfs"], size: claim.Bytes(), from: claim.Metadata.Name}, "")
	if err != nil {
		return err
	}
	return s.beside(ctx, source, p)
}

// beside checks that a clone has its source's data, runs on the same node if it cannot run elsewhere, and
// that what is written to the clone does not reach the source.
func (s *story) beside(ctx context.Context, source, clone kube.Pod) error {
	if s.env.nodeBound && clone.Spec.NodeName != source.Spec.NodeName {
		return fmt.Errorf("the clone runs on %s, its source on %s", clone.Spec.NodeName, source.Spec.NodeName)
	}
	claim, _, _ := clone.Claimed()
	if err := s.wantNoDetour(ctx, claim); err != nil {
		return err
	}
	want := s.sums[source.Metadata.Name]
	if err := s.wantData(ctx, clone, want); err != nil {
		return err
	}
	if err := s.write(ctx, clone); err != nil {
		return err
	}
	if err := s.wantSamePod(ctx, source); err != nil {
		return err
	}
	return s.wantData(ctx, source, want)
}

func (s *story) rawBlock(ctx context.Context) error {
	p, err := s.run(ctx, "block.yaml")
	if err != nil {
		return err
	}
	if _, path, raw := p.Claimed(); !raw {
		return fmt.Errorf("pod %s sees no device but %q", p.Metadata.Name, path)
	}
	if err := s.write(ctx, p); err != nil {
		return err
	}
	if p, err = s.again(ctx, "block.yaml"); err != nil {
		return err
	}
	return s.wantData(ctx, p, s.sums[p.Metadata.Name])
}
