//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// otherZone is where the part relocate moves a node and a volume.
const otherZone = "ru-central1-b"

// mover is an operator who moves a volume to another zone, by the commands that the program prints.
type mover struct {
	installer
	claim, volume, disk string
}

// TestRelocate is "To another zone" of docs/backends/yandex.md: a volume moves to the zone of another node, where a pod has its data, with
// the PersistentVolume that the program prints; and back, by the patch where the cluster takes it. Its nodes are in one zone, so one of
// them moves first.
func TestRelocate(t *testing.T) {
	s := begin(t, "relocate")
	ctx := t.Context()
	s.wantTwoNodes()
	near, far := s.env.nodes[0], s.env.nodes[1]
	home, err := s.zoneOf(ctx, near)
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		err := s.Delete(ctx, "pod", "--all")
		if err == nil {
			err = s.nothingAttached(ctx, far)
		}
		if err := errors.Join(err, s.moveNode(ctx, far, near, home)); err != nil {
			t.Error(err)
		}
	})
	must(t, s.moveNode(ctx, far, near, otherZone))
	p, err := s.filled(ctx, claimOptions{name: "moved", class: s.env.classes["ext4"], size: s.env.round(512 * mib)}, near)
	must(t, err)
	m := &mover{installer: installer{story: s, environment: operator(t, s, map[string]string{"kubectl": s.Kubectl})}, claim: "moved"}
	must(t, m.find(ctx))
	mutable, err := s.env.gate(ctx, "MutablePVNodeAffinity")
	must(t, err)
	back := []string{"--patch"}
	if !mutable {
		t.Log("left out: this Kubernetes changes no node affinity, so the way back has no patch")
		back = nil
	}
	if err := m.move(ctx, p, otherZone, far); err != nil {
		t.Fatalf("to %s: %v", otherZone, err)
	}
	if p, err = kube.Get[kube.Pod](ctx, s.Client, "pod", "moved"); err == nil {
		err = m.move(ctx, p, home, near, back...)
	}
	if err != nil {
		t.Fatalf("back to %s: %v", home, err)
	}
	must(t, s.remove(ctx, "moved"))
	must(t, s.env.nothingLeft(ctx))
}

// find finds the PersistentVolume and the disk of the claim.
func (m *mover) find(ctx context.Context) error {
	_, pv, err := m.bound(ctx, m.claim)
	if err != nil {
		return err
	}
	m.volume, m.disk = pv.Metadata.Name, pv.Spec.CSI.VolumeHandle
	return nil
}

// move takes a pod off the volume, moves the volume, follows the commands, and starts the pod without saying where: the
// PersistentVolume sends it to the node of the zone, where it has the data.
func (m *mover) move(ctx context.Context, p kube.Pod, zone, node string, args ...string) error {
	old, err := m.Run(ctx, "get", "pv", m.volume, "--output", "json")
	if err != nil {
		return err
	}
	switch _, _, err := m.relocate(ctx, old, zone, args...); {
	case err == nil:
		return errors.New("a volume in use was moved")
	case !strings.Contains(err.Error(), "attached to instance"):
		return err
	}
	if err := m.away(ctx, p); err != nil {
		return err
	}
	start := time.Now()
	printed, said, err := m.relocate(ctx, old, zone, args...)
	if err != nil {
		return err
	}
	m.Log("moved to %s after %.1f s:\n%s", zone, time.Since(start).Seconds(), said)
	folder := m.t.TempDir()
	write(m.t, filepath.Join(folder, "FILE"), printed)
	var commands []string
	for line := range strings.Lines(said) {
		if command, is := strings.CutPrefix(line, "  kubectl "); is {
			commands = append(commands, "kubectl "+strings.TrimSpace(command))
		}
	}
	if len(commands) == 0 {
		return errors.New("the program printed no command")
	}
	if _, err := m.run(ctx, folder, commands); err != nil {
		return err
	}
	if err := m.wantIn(ctx, zone); err != nil {
		return err
	}
	if err := m.Create(ctx, newPod(m.claim, m.claim, "")); err != nil {
		return err
	}
	if p, err = m.UntilReady(ctx, m.claim, patience); err != nil {
		return err
	}
	if p.Spec.NodeName != node {
		return fmt.Errorf("the pod runs on %s, want %s in %s", p.Spec.NodeName, node, zone)
	}
	return m.wantData(ctx, p, m.sums[m.claim])
}

// wantIn checks that claim and PersistentVolume have each other, as before, with the new zone.
func (m *mover) wantIn(ctx context.Context, zone string) error {
	const shown = "jsonpath={.status.phase} {.spec.persistentVolumeReclaimPolicy} {.spec.csi.volumeHandle} " +
		"{.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}"
	got, err := m.Run(ctx, "get", "pv", m.volume, "--output", shown)
	if err != nil {
		return err
	}
	if want := "Bound Delete " + m.disk + " " + zone; got != want {
		return fmt.Errorf("the PersistentVolume is %q, want %q", got, want)
	}
	return m.Until(ctx, "the claim is bound", patience, func(ctx context.Context) (bool, string, error) {
		got, err := m.Run(ctx, "get", "pvc", m.claim, "--output", "jsonpath={.status.phase} {.spec.volumeName}")
		return got == "Bound "+m.volume, got, err
	})
}

// relocate runs the command of the document in a pod of the controller.
func (m *mover) relocate(ctx context.Context, pv, zone string, args ...string) (printed, said string, err error) {
	words := []string{
		"--kubeconfig", m.Kubeconfig, "--namespace", m.env.driver.Namespace, "exec", "--stdin", "deployment/cloudblock-controller", "--container", "controller", "--",
		"/cloudblock-controller", "relocate", m.disk, zone, "--cloud=" + m.env.cloud, "--credentials-file=/credentials/" + secretKeys[m.env.cloud], "--pv=-",
	}
	cmd := exec.CommandContext(ctx, m.Kubectl, append(words, args...)...)
	cmd.Stdin = strings.NewReader(pv)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("relocate %s %s: %w\n%s", m.disk, zone, err, stderr.String())
	}
	return stdout.String(), stderr.String(), nil
}

// zoneOf returns the zone that the driver has reported for a node.
func (s *story) zoneOf(ctx context.Context, node string) (string, error) {
	name := strings.ReplaceAll(s.env.topologyKey, ".", `\.`)
	zone, err := s.Run(ctx, "get", "node", node, "--output", "jsonpath={.metadata.labels."+name+"}")
	if err == nil && zone == "" {
		err = fmt.Errorf("node %s has no label %s", node, s.env.topologyKey)
	}
	return zone, err
}

// moveNode moves the machine of a node to a zone, where the driver registers it again. The kubelet refuses another value of a label that
// is there, so that is removed first.
func (s *story) moveNode(ctx context.Context, node, other, zone string) error {
	machine, err := s.Run(ctx, "get", "csinode", node, "--output", fmt.Sprintf("jsonpath={.spec.drivers[?(@.name==%q)].nodeID}", s.env.place.driver))
	if err == nil && machine == "" {
		err = fmt.Errorf("the driver is not registered on %s", node)
	}
	if err != nil {
		return err
	}
	giveBack, err := s.withoutDriver(ctx, node, other)
	if err == nil {
		_, err = s.Run(ctx, "label", "node", node, s.env.topologyKey+"-")
	}
	if err == nil {
		err = moveMachine(ctx, s.env.store, machine, zone)
	}
	if err := errors.Join(err, giveBack()); err != nil {
		return err
	}
	return s.Until(ctx, node+" is in "+zone, patience, func(ctx context.Context) (bool, string, error) {
		got, err := s.zoneOf(ctx, node)
		return got == zone, got, err
	})
}

// moveMachine moves a machine of the emulated account.
func moveMachine(ctx context.Context, in store, machine, zone string) error {
	a, is := in.(account)
	if !is {
		return errors.New("the machines are not emulated")
	}
	_, err := a.send(ctx, http.MethodPost, "instances/"+machine+"/relocate", fmt.Appendf(nil, `{"zone": %q}`, zone))
	return err
}

// nothingAttached waits until no volume is attached to a node.
func (s *story) nothingAttached(ctx context.Context, node string) error {
	return s.Until(ctx, "nothing is attached to "+node, patience, func(ctx context.Context) (bool, string, error) {
		all, err := kube.List[kube.Attachment](ctx, s.Client, "volumeattachments")
		for _, a := range all {
			if a.Spec.NodeName == node {
				return false, a.Spec.Source.PersistentVolumeName + " is attached", err
			}
		}
		return err == nil, "", err
	})
}
