//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// The custom resource that claims of this test name as their source.
const (
	sourceGroup = "e2e.cloudblock.io"
	sourceKind  = "Greeting"
	sources     = "greetings." + sourceGroup
)

// selectedNode is the annotation by which the scheduler asks for a volume of a claim on a node.
const selectedNode = "volume.kubernetes.io/selected-node"

// TestPopulator: the driver makes no volume for a claim whose source is a custom resource, because that is the work of a volume
// populator. This test does what populators made with lib-volume-populator do: it has a volume made for a claim of its own, the
// prime, fills it and gives it to the first claim. The pod of that claim then has the data, and the volume is like any other.
func TestPopulator(t *testing.T) {
	s := begin(t, "populator")
	work := s.env.namespace(t, "populators")
	ctx := t.Context()
	must(t, s.defineSource(ctx))
	t.Cleanup(func() {
		if _, err := s.env.Run(context.WithoutCancel(ctx), "delete", "crd", sources, "--timeout="+patience.String()); err != nil {
			t.Error(err)
		}
	})
	claim, err := s.leftAlone(ctx)
	must(t, err)
	volume, sum, err := s.fillPrime(ctx, work, claim)
	if err == nil {
		err = s.rebind(ctx, work, volume, claim)
	}
	must(t, err)
	p, err := s.UntilReady(ctx, "populated", patience)
	must(t, err)
	s.sums["populated"] = sum
	must(t, s.wantData(ctx, p, sum))
	must(t, s.wantStored(ctx, s.held+1))
	must(t, s.growWith(ctx, p))
	must(t, s.remove(ctx, "populated"))
	must(t, s.wantStored(ctx, s.held))
}

// defineSource creates the kind of the source and one of it.
func (s *story) defineSource(ctx context.Context) error {
	schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}
	crd := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": sources},
		"spec": map[string]any{
			"group": sourceGroup, "scope": "Namespaced",
			"names":    map[string]string{"kind": sourceKind, "plural": "greetings"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": schema}},
		},
	}
	if err := s.Send(ctx, crd, "apply"); err != nil {
		return err
	}
	if _, err := s.Run(ctx, "wait", "--for=condition=Established", "crd/"+sources, "--timeout="+patience.String()); err != nil {
		return err
	}
	return s.Create(ctx, map[string]any{"apiVersion": sourceGroup + "/v1", "kind": sourceKind, "metadata": map[string]any{"name": "hello"}})
}

// leftAlone creates a claim of that source and its pod. The provisioner says that it leaves the claim to a populator.
func (s *story) leftAlone(ctx context.Context) (kube.Claim, error) {
	claim := newClaim(claimOptions{name: "populated", class: s.env.classes["xfs"], size: s.env.round(512 * mib)})
	claim["spec"].(map[string]any)["dataSourceRef"] = map[string]string{"apiGroup": sourceGroup, "kind": sourceKind, "name": "hello"}
	if err := s.Create(ctx, list(claim, newPod("populated", "populated", ""))); err != nil {
		return kube.Claim{}, err
	}
	event, err := s.UntilEvent(ctx, "populated", patience, func(e kube.Event) bool {
		return e.InvolvedObject.Kind == "PersistentVolumeClaim" && strings.Contains(e.Message, "external populator")
	})
	if err != nil {
		return kube.Claim{}, err
	}
	s.Log("an event of the claim: %s: %s", event.Reason, event.Message)
	if err := s.wantPending(ctx, "populated"); err != nil {
		return kube.Claim{}, err
	}
	if err := s.wantStored(ctx, s.held); err != nil {
		return kube.Claim{}, err
	}
	found, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", "populated")
	if err == nil && (found.Status.Phase != "Pending" || found.Metadata.Annotations[selectedNode] == "") {
		err = fmt.Errorf("the claim is %s for node %q, want it Pending for a node", found.State(), found.Metadata.Annotations[selectedNode])
	}
	return found, err
}

// fillPrime has a volume made on the node that the scheduler has selected for the claim, and writes into it. It returns the
// PersistentVolume and the checksum of the data.
func (s *story) fillPrime(ctx context.Context, work kube.Client, claim kube.Claim) (volume, sum string, err error) {
	node := claim.Metadata.Annotations[selectedNode]
	prime := newClaim(claimOptions{name: "prime", class: s.env.classes["xfs"], size: s.env.round(512 * mib)})
	prime["metadata"].(map[string]any)["annotations"] = map[string]string{selectedNode: node}
	pod := newPod("populate", "prime", "")
	spec := pod["spec"].(map[string]any)
	spec["nodeName"], spec["restartPolicy"] = node, "Never"
	mainOf(pod)["command"] = []string{"sh", "-euc",
		"dd if=/dev/urandom of=/data/data bs=1M count=" + amount + " conv=fsync 2>/dev/null; " + sumOf("/data/data")}
	if err := work.Create(ctx, list(prime, pod)); err != nil {
		return "", "", err
	}
	err = work.Until(ctx, "the prime is filled", patience, func(ctx context.Context) (bool, string, error) {
		p, err := kube.Get[kube.Pod](ctx, work, "pod", "populate")
		return p.Status.Phase == "Succeeded", p.State(), err
	})
	if err != nil {
		return "", "", err
	}
	text, err := work.Run(ctx, "logs", "populate")
	if err != nil {
		return "", "", err
	}
	if sum, err = checksum(text); err != nil {
		return "", "", err
	}
	filled, err := kube.Get[kube.Claim](ctx, work, "pvc", "prime")
	return filled.Spec.VolumeName, sum, err
}

// rebind gives the volume of the prime to the claim and deletes the prime.
func (s *story) rebind(ctx context.Context, work kube.Client, volume string, claim kube.Claim) error {
	reference := map[string]string{"namespace": s.Namespace, "name": claim.Metadata.Name, "uid": claim.Metadata.UID}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"claimRef": reference}})
	if err != nil {
		return err
	}
	if _, err := s.Run(ctx, "patch", "pv", volume, "--patch", string(patch)); err != nil {
		return err
	}
	if err := untilPhase(ctx, work, "prime", "Lost"); err != nil {
		return err
	}
	if err := untilPhase(ctx, s.Client, claim.Metadata.Name, "Bound"); err != nil {
		return err
	}
	for kind, name := range map[string]string{"pod": "populate", "pvc": "prime"} {
		if err := work.Delete(ctx, kind, name); err != nil {
			return err
		}
	}
	return work.UntilGone(ctx, "pvc", "prime", patience)
}

// untilPhase waits until a claim is in a phase.
func untilPhase(ctx context.Context, c kube.Client, claim, phase string) error {
	return c.Until(ctx, "claim "+claim+" is "+phase, patience, func(ctx context.Context) (bool, string, error) {
		now, err := kube.Get[kube.Claim](ctx, c, "pvc", claim)
		return now.Status.Phase == phase, now.State(), err
	})
}

// wantStored checks how many volumes and snapshots the cloud has.
func (s *story) wantStored(ctx context.Context, want int) error {
	got, err := s.stored(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("there are %d volumes and snapshots, want %d", got, want)
	}
	return err
}
