//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// podsMove: pods are deleted and made on another node, where they find their data and write more of it.
func (s *story) podsMove(ctx context.Context) error {
	s.wantTwoNodes()
	for _, file := range []string{"pod.yaml", "xfs.yaml", "block.yaml"} {
		p, err := s.ready(ctx, file)
		if err != nil {
			return err
		}
		sum := s.sums[p.Metadata.Name]
		moved, err := s.move(ctx, file, s.env.otherThan(p.Spec.NodeName))
		if err != nil {
			return err
		}
		if err := s.wantData(ctx, moved, sum); err != nil {
			return err
		}
		if _, _, raw := moved.Claimed(); !raw {
			if err := s.wantFull(ctx, moved); err != nil {
				return err
			}
		}
		if err := s.write(ctx, moved); err != nil {
			return err
		}
		s.Log("pod %s moved from %s to %s", p.Metadata.Name, p.Spec.NodeName, moved.Spec.NodeName)
	}
	return nil
}

// otherThan returns another node than one, if there is another.
func (e *env) otherThan(node string) string {
	if i := slices.IndexFunc(e.nodes, func(other string) bool { return other != node }); i >= 0 {
		return e.nodes[i]
	}
	return node
}

// move deletes the pod of an example and at once makes it again on a node, as a Deployment does whose node
// is drained: its volume is still being detached from the other node.
func (s *story) move(ctx context.Context, file, node string) (kube.Pod, error) {
	raw, name, err := s.podOf(ctx, file)
	if err != nil {
		return kube.Pod{}, err
	}
	var pod map[string]any
	if err := json.Unmarshal(raw, &pod); err != nil {
		return kube.Pod{}, err
	}
	spec, ok := pod["spec"].(map[string]any)
	if !ok {
		return kube.Pod{}, fmt.Errorf("the pod of %s has no spec", file)
	}
	spec["nodeSelector"] = map[string]any{hostname: node}
	if err := s.end(ctx, name); err != nil {
		return kube.Pod{}, err
	}
	if err := s.Create(ctx, pod); err != nil {
		return kube.Pod{}, err
	}
	return s.UntilReady(ctx, name, patience)
}
