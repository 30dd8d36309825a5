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
// the same without the gate. A filesystem becomes read-only and writable again, on local its disk hangs and answers again, then it shuts
// down; the next pod has its data.
func TestHealth(t *testing.T) {
	s := begin(t, "health")
	ctx := t.Context()
	asked, err := s.env.gate(ctx, "CSIVolumeHealth")
	must(t, err)
	if !asked {
		t.Log("left out: the kubelet of this Kubernetes asks for no health of volumes; only the node program's metric is read")
	}
	p, err := s.filled(ctx, claimOptions{name: "sick", class: s.env.classes["xfs"], size: s.env.round(512 * mib)}, "")
	if err == nil && asked {
		err = s.untilAsked(ctx, p)
	}
	must(t, err)
	mount, err := s.mountOf(ctx, p)
	must(t, err)
	changes := []change{
		{"mount -o remount,ro " + mount, "Degraded FilesystemReadOnly", "FilesystemReadOnly", patience},
		{"mount -o remount,rw " + mount, healthy, "", patience},
	}
	if s.env.nodeBound {
		// Writes to a frozen filesystem wait in the kernel. The volume is a loop device on a file of it.
		node := p.Spec.NodeName
		t.Cleanup(func() { _ = inMachine(context.WithoutCancel(ctx), node, "fsfreeze -u "+poolFolder+" 2>/dev/null || :") })
		hang := fmt.Sprintf("fsfreeze -f %s && { setsid dd if=/dev/zero of=%s/stalled bs=64k count=1 oflag=direct >/dev/null 2>&1 </dev/null & }", poolFolder, mount)
		changes = append(changes, change{hang, "Inaccessible DeviceStalled", "DeviceStalled", stallBound},
			change{"fsfreeze -u " + poolFolder, healthy, "", patience})
	}
	changes = append(changes, change{"xfs_io -x -c shutdown " + mount, "Inaccessible FilesystemDead", "FilesystemDead", patience})
	for _, c := range changes {
		must(t, s.changesHealth(ctx, p, c, asked))
	}
	if p, err = s.renewed(ctx, "sick", p.Spec.NodeName); err != nil {
		t.Fatal(err)
	}
	must(t, s.untilAbnormal(ctx, p.Spec.NodeName, ""))
	if asked && s.env.nodeBound {
		must(t, s.fullPoolShows(ctx, p.Spec.NodeName))
	}
	must(t, s.wantData(ctx, p, s.sums["sick"]))
}

const (
	// poolFolder is where the machines have the pool.
	poolFolder = "/var/lib/cloudblock-csi/pool"
	// stallBound is how long a disk may hang until the pod's status has it.
	stallBound = 2 * time.Minute
)

// change is a command in a machine, and what the pod's status and the metric have then, within a bound.
type change struct {
	command, health, reason string
	bound                   time.Duration
}

// changesHealth makes a change, and wants it in the metric and, if the kubelet asks, in the status of the pod, which goes on.
func (s *story) changesHealth(ctx context.Context, p kube.Pod, c change, asked bool) error {
	if err := inMachine(ctx, p.Spec.NodeName, c.command); err != nil {
		return err
	}
	start := time.Now()
	err := s.untilAbnormal(ctx, p.Spec.NodeName, c.reason)
	if err == nil && asked {
		err = s.untilHealth(ctx, p, c.health)
	}
	if err == nil {
		err = s.wantSamePod(ctx, p)
	}
	if took := time.Since(start); err == nil && took > c.bound {
		err = fmt.Errorf("the health %q was there after %v, want %v at most", c.health, took, c.bound)
	}
	return err
}

// mountOf returns where a node has the volume of a pod.
func (s *story) mountOf(ctx context.Context, p kube.Pod) (string, error) {
	claim, err := s.claimOf(ctx, p)
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

// fullPoolShows fills the pool of a node by a file of another owner: the kubelet writes into the node's CSINode what is wrong with
// the storage.
func (s *story) fullPoolShows(ctx context.Context, node string) (err error) {
	const file = poolFolder + "/filler"
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
