//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestScoring: with StorageCapacityScoring, which Kubernetes has on by default from 1.37 on, pods with new claims go to the node
// whose pool has more available space, although the other one has enough for them and the scheduler prefers that for a pod without
// a claim. An encrypted class has its available space too: the provisioner passes its parameters for Secrets on.
func TestScoring(t *testing.T) {
	s := begin(t, "scoring")
	ctx := t.Context()
	if err := s.encryptedRoom(t); err != nil {
		t.Error(err)
	}
	s.wantTwoNodes()
	on, err := s.env.gate(ctx, "StorageCapacityScoring")
	must(t, err)
	if !on {
		t.Log("left out: this Kubernetes has StorageCapacityScoring off or does not have it")
		return
	}
	for i, more := range s.env.nodes[:2] {
		must(t, s.prefers(ctx, more, s.env.nodes[1-i]))
	}
}

// encryptedRoom waits for the space of an encrypted class, without which the scheduler would place no pod with a claim of it.
func (s *story) encryptedRoom(t *testing.T) error {
	t.Helper()
	const name = "cloudblock-encrypted-room"
	t.Cleanup(func() {
		if _, err := s.env.Run(context.WithoutCancel(t.Context()), "delete", "storageclass", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	err := s.Create(t.Context(), map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": name},
		"provisioner": s.env.place.driver, "volumeBindingMode": "WaitForFirstConsumer",
		"parameters": map[string]any{
			"luks": "true", "csi.storage.k8s.io/node-stage-secret-name": "key", "csi.storage.k8s.io/node-stage-secret-namespace": s.Namespace,
		},
	})
	if err != nil {
		return err
	}
	return s.Until(t.Context(), "the encrypted class has space", patience, func(ctx context.Context) (bool, string, error) {
		left, err := s.env.room(ctx, name, s.env.nodes[0])
		return err == nil && left > 0, fmt.Sprintf("%d bytes, %v", left, err), nil
	})
}

// prefers takes three quarters of the space of one node's pool and keeps CPU of the other node busy.
func (s *story) prefers(ctx context.Context, more, less string) error {
	before, err := s.env.rooms(ctx)
	if err != nil {
		return err
	}
	class, taken := s.env.classes["ext4"], "taken-on-"+less
	if _, err := s.placed(ctx, claimOptions{name: taken, class: class, size: before[less] / 4 * 3 / mib * mib}, less); err != nil {
		return err
	}
	if err := s.end(ctx, taken); err != nil { // its volume stays
		return err
	}
	err = s.Until(ctx, "the cluster knows how little space "+less+" has", 75*time.Second, func(ctx context.Context) (bool, string, error) {
		left, err := s.env.room(ctx, class, less)
		return err == nil && left < before[less]/3, fmt.Sprintf("%d bytes", left), err
	})
	if err != nil {
		return err
	}
	busy, light := "busy-"+more, "light-"+less
	if err := s.Create(ctx, asking("500m", on(more, withoutVolume(busy)))); err != nil {
		return err
	}
	if err := s.wantNode(ctx, busy, more); err != nil {
		return err
	}
	if err := s.Create(ctx, asking("1m", withoutVolume(light))); err != nil {
		return err
	}
	if err := s.wantNode(ctx, light, less); err != nil {
		return err
	}
	claims := []string{taken}
	for i := range 3 {
		name := fmt.Sprintf("new-%d-%s", i, more)
		claims = append(claims, name)
		claim := newClaim(claimOptions{name: name, class: class, size: before[less] / 8 / mib * mib})
		if err := s.Create(ctx, list(claim, asking("1m", newPod(name, name, "")))); err != nil {
			return err
		}
	}
	for _, name := range claims[1:] {
		if err := s.wantNode(ctx, name, more); err != nil {
			return err
		}
	}
	s.Log("the pod without a claim went to %s, the %d with new ones to %s", less, len(claims)-1, more)
	if err := s.Delete(ctx, "pod", busy, light); err != nil {
		return err
	}
	if err := s.remove(ctx, claims...); err != nil {
		return err
	}
	return s.env.untilRoom(ctx, before, gib)
}

// wantNode waits until a pod is ready and checks where it runs.
func (s *story) wantNode(ctx context.Context, pod, node string) error {
	p, err := s.UntilReady(ctx, pod, patience)
	if err == nil && p.Spec.NodeName != node {
		err = fmt.Errorf("pod %s runs on %s, want %s", pod, p.Spec.NodeName, node)
	}
	return err
}

// withoutVolume returns a pod that has no volume.
func withoutVolume(name string) map[string]any {
	pod := newPod(name, "", "")
	delete(pod["spec"].(map[string]any), "volumes")
	delete(mainOf(pod), "volumeMounts")
	return pod
}

// asking has a pod request CPU. Where a pod requests nothing, the scheduler counts a tenth of a CPU and 200 MiB.
func asking(cpu string, pod map[string]any) map[string]any {
	mainOf(pod)["resources"] = map[string]any{"requests": map[string]string{"cpu": cpu, "memory": "1Mi"}}
	return pod
}
