//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// statistics: the kubelet knows how full the volumes are.
func (s *story) statistics(ctx context.Context) error {
	for _, file := range []string{"pod.yaml", "xfs.yaml"} {
		p, err := s.ready(ctx, file)
		if err != nil {
			return err
		}
		claim, err := s.claimOf(ctx, p)
		if err != nil {
			return err
		}
		name := claim.Metadata.Name
		err = s.Until(ctx, "the kubelet's statistics of claim "+name, patience, func(ctx context.Context) (bool, string, error) {
			u, err := s.usage(ctx, p.Spec.NodeName, name)
			good := u.CapacityBytes > claim.Bytes()/100*85 && u.CapacityBytes <= claim.Bytes() && u.UsedBytes >= 24*mib && u.Inodes > 0
			return good, fmt.Sprintf("%+v", u), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// usage is what the kubelet's summary has about a volume.
type usage struct {
	CapacityBytes, UsedBytes, AvailableBytes int64
	Inodes, InodesUsed                       int64
	PVCRef                                   *struct{ Name, Namespace string }
}

func (s *story) usage(ctx context.Context, node, claim string) (usage, error) {
	text, err := s.Run(ctx, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/stats/summary")
	if err != nil {
		return usage{}, err
	}
	var summary struct {
		Pods []struct{ Volume []usage }
	}
	if err := json.Unmarshal([]byte(text), &summary); err != nil {
		return usage{}, fmt.Errorf("read the kubelet's summary: %w", err)
	}
	for _, p := range summary.Pods {
		for _, v := range p.Volume {
			if v.PVCRef != nil && v.PVCRef.Name == claim && v.PVCRef.Namespace == s.Namespace {
				return v, nil
			}
		}
	}
	return usage{}, fmt.Errorf("the summary of %d pods does not have claim %s", len(summary.Pods), claim)
}

// metrics: each program of the driver serves its metrics and says that it works.
func (s *story) metrics(ctx context.Context) error {
	served := 0
	for _, w := range s.env.driver.workloads {
		for _, c := range w.Spec.Template.Spec.Containers {
			for _, port := range c.Ports {
				if !ours(c) {
					continue
				}
				served++
				if err := s.untilServed(ctx, w, port.ContainerPort); err != nil {
					return fmt.Errorf("container %s: %w", c.Name, err)
				}
			}
		}
	}
	if served < 2 {
		return fmt.Errorf("%d ports are declared by the driver's own containers, want one of the controller and one of the node program", served)
	}
	return nil
}

func (s *story) untilServed(ctx context.Context, w kube.Workload, port int) error {
	d := s.env.driver
	return d.Until(ctx, fmt.Sprintf("metrics on port %d of all pods of %s that are to stay", port, w.Metadata.Name), patience, func(ctx context.Context) (bool, string, error) {
		pods, err := d.podsOf(ctx, w)
		if err != nil {
			return false, "", err
		}
		for _, p := range pods {
			base := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy", d.Namespace, p.Metadata.Name, port)
			if _, err := d.Run(ctx, "get", "--raw", base+"/readyz"); err != nil {
				return false, "", err
			}
			text, err := d.Run(ctx, "get", "--raw", base+"/metrics")
			if err != nil || !strings.Contains(text, "cloudblock_build_info") {
				return false, "no cloudblock_build_info in " + base, err
			}
		}
		return len(pods) > 0, "no pods", nil
	})
}

// everythingDeleted: there is what was there before, pools have their room to the byte, and no device is
// left.
func (s *story) everythingDeleted(ctx context.Context) error {
	if err := s.env.sweep(ctx, s.Client); err != nil {
		return err
	}
	if err := s.env.nothingLeft(ctx); err != nil {
		return err
	}
	// To the byte.
	if err := s.env.untilRoom(ctx, s.room, 0); err != nil {
		return err
	}
	return s.Until(ctx, "as many volumes and snapshots as before", patience, func(ctx context.Context) (bool, string, error) {
		now, _, err := s.env.store.look(ctx)
		return len(now) == s.held, fmt.Sprintf("%d, %d before", len(now), s.held), err
	})
}

// nothingLeft waits until all that holds volumes belongs to what the cluster knows. A delete may
// still be under way, or the driver's pods are being replaced.
func (e *env) nothingLeft(ctx context.Context) error {
	return e.Until(ctx, "no volume, snapshot or loop device is left over", patience, func(ctx context.Context) (bool, string, error) {
		left, err := e.leftOvers(ctx)
		return err == nil && len(left) == 0, strings.Join(left, "; "), err
	})
}
