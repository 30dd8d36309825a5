//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// healthy is how a volume is where the kubelet has written no condition.
const healthy = ""

// TestHealth is what docs/monitoring.md says of the health of volumes: from Kubernetes 1.37 on, with the gate CSIVolumeHealth, the
// kubelet asks the node program and writes what is wrong with a volume into the status of its pod. The metric of the node program has
// the same without the gate. A filesystem becomes read-only and writable again, then it shuts down; the next pod has its data.
func TestHealth(t *testing.T) {
	s := begin(t, "health")
	ctx := t.Context()
	asked, err := s.env.gate(ctx, "CSIVolumeHealth")
	if err != nil {
		t.Fatal(err)
	}
	if !asked {
		t.Log("left out: the kubelet of this Kubernetes asks for no health of volumes; only the node program's metric is read")
	}
	if err := s.place(ctx, claimOptions{name: "sick", class: s.env.classes["xfs"], size: s.env.round(512 * mib)}, ""); err != nil {
		t.Fatal(err)
	}
	p, err := s.UntilReady(ctx, "sick", patience)
	if err == nil {
		err = s.write(ctx, p)
	}
	if err == nil && asked {
		err = s.untilAsked(ctx, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	mount, err := s.mountOf(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, health, reason string }{
		{"mount -o remount,ro ", "Degraded FilesystemReadOnly", "FilesystemReadOnly"},
		{"mount -o remount,rw ", healthy, ""},
		{"xfs_io -x -c shutdown ", "Inaccessible FilesystemDead", "FilesystemDead"},
	} {
		if err := inMachine(ctx, p.Spec.NodeName, c.command+mount); err != nil {
			t.Fatal(err)
		}
		if err := s.untilAbnormal(ctx, p.Spec.NodeName, c.reason); err != nil {
			t.Fatal(err)
		}
		if asked {
			err = s.untilHealth(ctx, p, c.health)
		}
		if err == nil {
			err = s.wantSamePod(ctx, p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if p, err = s.replaced(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := s.untilAbnormal(ctx, p.Spec.NodeName, ""); err != nil {
		t.Fatal(err)
	}
	if asked && s.env.nodeBound {
		if err := s.fullPoolShows(ctx, p.Spec.NodeName); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.wantData(ctx, p, s.sums["sick"]); err != nil {
		t.Fatal(err)
	}
}

// mountOf returns where a node has the volume of a pod.
func (s *story) mountOf(ctx context.Context, p kube.Pod) (string, error) {
	name, _, _ := p.Claimed()
	claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
	return "/var/lib/kubelet/pods/" + p.Metadata.UID + "/volumes/kubernetes.io~csi/" + claim.Spec.VolumeName + "/mount", err
}

// untilAsked waits until the kubelet has asked for the health of a pod's volume. Nothing is wrong with it, so the pod's status has
// nothing about it.
func (s *story) untilAsked(ctx context.Context, p kube.Pod) error {
	const calls = `cloudblock_rpc_duration_seconds_count{code="OK",method="NodeGetVolumeHealth"}`
	before, err := s.nodeMetric(ctx, p.Spec.NodeName, calls)
	if err != nil {
		return err
	}
	err = s.Until(ctx, "the kubelet asks for the health of volumes", patience, func(ctx context.Context) (bool, string, error) {
		now, err := s.nodeMetric(ctx, p.Spec.NodeName, calls)
		return now > before, fmt.Sprintf("%v calls, %v before", now, before), err
	})
	if err != nil {
		return err
	}
	return s.untilHealth(ctx, p, healthy)
}

// untilHealth waits until the status of a pod has the health of its volume.
func (s *story) untilHealth(ctx context.Context, p kube.Pod, want string) error {
	start := time.Now()
	err := s.Until(ctx, fmt.Sprintf("the health of the volume of pod %s is %q", p.Metadata.Name, want), patience, func(ctx context.Context) (bool, string, error) {
		now, err := kube.Get[kube.Pod](ctx, s.Client, "pod", p.Metadata.Name)
		var health string
		for _, h := range now.Status.VolumeHealth {
			health += h.String()
		}
		return health == want, strconv.Quote(health), err
	})
	s.Log("the pod's status has the health %q after %.0f s", want, time.Since(start).Seconds())
	return err
}

// untilAbnormal waits until the metric of a node's program has one volume with which something is wrong, for a reason; none if the
// reason is empty.
func (s *story) untilAbnormal(ctx context.Context, node, reason string) error {
	start := time.Now()
	err := s.Until(ctx, "the node program's metric has "+strconv.Quote(reason), patience, func(ctx context.Context) (bool, string, error) {
		text, err := s.nodeMetrics(ctx, node)
		var found []string
		for line := range strings.Lines(text) {
			if rest, abnormal := strings.CutPrefix(line, `cloudblock_volume_abnormal{reason="`); abnormal && !strings.HasSuffix(rest, "} 0\n") {
				found = append(found, strings.TrimSuffix(strings.TrimSpace(rest), `"} 1`))
			}
		}
		now := strings.Join(found, ", ")
		return now == reason, strconv.Quote(now), err
	})
	s.Log("the metric has %q after %.0f s", reason, time.Since(start).Seconds())
	return err
}

// nodeMetric returns one metric of a node's program, 0 if that does not have it yet.
func (s *story) nodeMetric(ctx context.Context, node, name string) (float64, error) {
	text, err := s.nodeMetrics(ctx, node)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// nodeMetrics returns the metrics of a node's program.
func (s *story) nodeMetrics(ctx context.Context, node string) (string, error) {
	d := s.env.driver
	pods, err := d.pods(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range pods {
		i := slices.IndexFunc(p.Spec.Containers, func(c kube.Container) bool {
			return strings.Contains(c.Image, "cloudblock-csi/node") && len(c.Ports) > 0
		})
		if p.Spec.NodeName == node && i >= 0 {
			port := p.Spec.Containers[i].Ports[0].ContainerPort
			text, err := d.Run(ctx, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", d.Namespace, p.Metadata.Name, port))
			return metrics.Unnamed(text), err
		}
	}
	return "", fmt.Errorf("no pod on %s has the node program", node)
}

// replaced ends a pod of the tests' own and starts another in its place.
func (s *story) replaced(ctx context.Context, p kube.Pod) (kube.Pod, error) {
	name, _, _ := p.Claimed()
	if err := s.end(ctx, p.Metadata.Name); err != nil {
		return kube.Pod{}, err
	}
	if err := s.Create(ctx, newPod(p.Metadata.Name, name, p.Spec.NodeName)); err != nil {
		return kube.Pod{}, err
	}
	return s.UntilReady(ctx, p.Metadata.Name, patience)
}

// fullPoolShows fills the pool of a node by a file of another owner: the kubelet writes into the node's CSINode what is wrong with
// the storage.
func (s *story) fullPoolShows(ctx context.Context, node string) (err error) {
	const file = "/var/lib/cloudblock-csi/pool/filler"
	room, err := s.env.room(ctx, s.env.classes["ext4"], node)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, inMachine(context.WithoutCancel(ctx), node, "rm -f "+file))
		if err == nil {
			err = s.untilStorage(ctx, node, healthy)
		}
	}()
	// Some space is always kept free, so there is more than that.
	if err := inMachine(ctx, node, fmt.Sprintf("fallocate -l %d %s", room+16*mib, file)); err != nil {
		return err
	}
	return s.untilStorage(ctx, node, "StorageDegraded PoolFull")
}

// untilStorage waits until the CSINode of a node has the health of the driver's storage.
func (s *story) untilStorage(ctx context.Context, node, want string) error {
	start := time.Now()
	err := s.Until(ctx, fmt.Sprintf("the health of the storage of %s is %q", node, want), patience, func(ctx context.Context) (bool, string, error) {
		now, err := kube.Get[kube.CSINode](ctx, s.Client, "csinode", node)
		var health string
		for _, h := range now.Status.StorageHealth {
			if h.Name == s.env.place.driver {
				health = h.String()
			}
		}
		return health == want, strconv.Quote(health), err
	})
	s.Log("the CSINode of %s has the health %q after %.0f s", node, want, time.Since(start).Seconds())
	return err
}
