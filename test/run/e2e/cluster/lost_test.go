//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

const (
	// outOfService is the taint by which an operator states that a machine is off.
	outOfService = "node.kubernetes.io/out-of-service"
	// unreachable is the taint that Kubernetes gives to a node whose kubelet is silent.
	unreachable = "node.kubernetes.io/unreachable"
)

// halt stops a machine: its kubelet, kube-proxy and containerd are frozen, every other program is killed, and with the machine's
// memory go the mounts of the driver's volumes. Process 1 holds the namespaces.
const halt = `
others() {
	for p in /proc/[0-9]*; do
		case "${p#/proc/} $(readlink "$p/exe")" in
		"1 "* | "$$ "* | *" " | */kubelet | */kube-proxy | */containerd) ;;
		*) [ "$(cut -d' ' -f4 "$p/stat" 2>/dev/null)" = $$ ] || echo "${p#/proc/}" ;;
		esac
	done
}
for p in /proc/[0-9]*; do
	case "$(readlink "$p/exe")" in
	*/kubelet | */kube-proxy | */containerd) kill -STOP "${p#/proc/}" ;;
	esac
done
for attempt in 1 2 3 4 5 6 7 8 9 10; do
	left=$(others)
	[ -n "$left" ] || break
	kill -KILL $left 2>/dev/null || true
	sleep 1
done
[ -z "$left" ] || { echo "still running: $left" >&2; exit 1; }
cut -d' ' -f2 /proc/self/mounts | grep -e /kubernetes.io/csi/ -e /kubernetes.io~csi/ | sort -r | while read -r path; do
	# A mount that is shared goes with the one that it is a copy of.
	umount -l "$path" 2>/dev/null || ! cut -d' ' -f2 /proc/self/mounts | grep -Fxq "$path" || exit 1
done`

// resume lets a machine that was halted go on, as after a boot.
const resume = `
for p in /proc/[0-9]*; do
	case "$(readlink "$p/exe")" in
	*/kubelet | */kube-proxy | */containerd) kill -CONT "${p#/proc/}" ;;
	esac
done`

// inMachine runs a script inside a machine of `make cluster`.
func inMachine(ctx context.Context, node, script string) error {
	_, err := readInMachine(ctx, node, script)
	return err
}

// readInMachine runs a script inside a machine and returns what it printed.
func readInMachine(ctx context.Context, node, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./test/run/cluster", "enter", node, "sh", "-u", "-c", script)
	cmd.Dir = repository
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("in %s: %w\n%s%s", node, err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// L5: docs/machine-loss.md holds. A machine stops while a pod of a Deployment uses a volume on it. On a cloud, the
// operator states that it is off, and the next pod has the data on the other machine. On local the next pod waits for the
// machine. In the end the machine is back.
func TestLost(t *testing.T) {
	s := begin(t, "lost")
	ctx := t.Context()
	s.wantTwoNodes()
	must(t, s.Create(ctx, list(claimWith("kept", s.env.classes["ext4"]), fleeing(deploymentWith("kept")))))
	before, err := s.untilPodOf(ctx, "kept", "is ready", kube.Pod.Ready)
	if err == nil {
		err = s.write(ctx, before)
	}
	must(t, err)
	lost, sum := before.Spec.NodeName, s.sums[before.Metadata.Name]
	t.Cleanup(func() {
		s.back(t, lost)
		if err := s.Delete(context.WithoutCancel(ctx), "deployment", "kept"); err != nil {
			t.Error(err)
		}
	})
	must(t, inMachine(ctx, lost, halt))
	start := time.Now()
	must(t, s.untilNode(ctx, lost, false))
	t.Logf("%s is NotReady %.0f s after it stopped", lost, time.Since(start).Seconds())
	follow := s.elsewhere
	if s.env.nodeBound {
		follow = s.waits
	}
	after, err := follow(ctx, before, lost)
	if err == nil {
		err = s.wantData(ctx, after, sum)
	}
	if err == nil {
		err = s.write(ctx, after)
	}
	must(t, err)
}

// fleeing returns a Deployment whose pods leave a silent node after 5 s instead of 5 minutes.
func fleeing(deployment map[string]any) map[string]any {
	spec := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	spec["tolerations"] = []any{
		map[string]any{"key": unreachable, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
	}
	return deployment
}

// elsewhere: the pod's volume stays on the silent machine until that is out of service; then the next pod has it.
func (s *story) elsewhere(ctx context.Context, before kube.Pod, lost string) (kube.Pod, error) {
	next, err := s.untilPodOf(ctx, "kept", "follows", func(p kube.Pod) bool { return p.Metadata.UID != before.Metadata.UID })
	if err != nil {
		return next, err
	}
	attached, err := s.attachedTo(ctx, next)
	if err == nil && attached != lost {
		err = fmt.Errorf("the volume is attached to %q, want %s as long as no taint states that it is off", attached, lost)
	}
	if err != nil {
		return next, err
	}
	start := time.Now()
	if _, err := s.Run(ctx, "taint", "nodes", lost, outOfService+"=nodeshutdown:NoExecute"); err != nil {
		return next, err
	}
	next, err = s.untilPodOf(ctx, "kept", "is ready elsewhere", func(p kube.Pod) bool { return p.Ready() && p.Spec.NodeName != lost })
	if err != nil {
		return next, err
	}
	s.Log("the next pod runs on %s %.0f s after the taint", next.Spec.NodeName, time.Since(start).Seconds())
	if attached, err = s.attachedTo(ctx, next); err == nil && attached != next.Spec.NodeName {
		err = fmt.Errorf("the volume is attached to %q, want %s", attached, next.Spec.NodeName)
	}
	return next, err
}

// waits: the data is on the silent machine alone, so the next pod is Pending until the machine is back.
func (s *story) waits(ctx context.Context, before kube.Pod, lost string) (kube.Pod, error) {
	pending := func(p kube.Pod) bool {
		return p.Metadata.UID != before.Metadata.UID && p.Status.Phase == "Pending" && p.Spec.NodeName == ""
	}
	if next, err := s.untilPodOf(ctx, "kept", "is Pending", pending); err != nil {
		return next, err
	}
	if err := inMachine(ctx, lost, resume); err != nil {
		return kube.Pod{}, err
	}
	start := time.Now()
	next, err := s.untilPodOf(ctx, "kept", "is ready again", func(p kube.Pod) bool {
		return p.Metadata.UID != before.Metadata.UID && p.Ready() && p.Spec.NodeName == lost
	})
	s.Log("the next pod runs %.0f s after the machine went on", time.Since(start).Seconds())
	return next, err
}

// back makes the machine a node again, whatever has happened, and waits until the driver serves it.
func (s *story) back(t *testing.T, lost string) {
	ctx := context.WithoutCancel(t.Context())
	err := inMachine(ctx, lost, resume)
	start := time.Now()
	err = errors.Join(err, s.untilNode(ctx, lost, true))
	tainted, failed := s.Run(ctx, "get", "node", lost, "--output", `jsonpath={.spec.taints[?(@.key=="`+outOfService+`")].key}`)
	err = errors.Join(err, failed)
	if tainted != "" {
		_, untainted := s.Run(ctx, "taint", "nodes", lost, outOfService+"-")
		err = errors.Join(err, untainted)
	}
	if err := errors.Join(err, s.untilDriverReady(ctx)); err != nil {
		t.Errorf("%s is not a node again: %v", lost, err)
		return
	}
	t.Logf("%s is a node with the driver again after %.0f s", lost, time.Since(start).Seconds())
}

// untilNode waits until a node is ready, or is not.
func (s *story) untilNode(ctx context.Context, name string, ready bool) error {
	return s.Until(ctx, fmt.Sprintf("node %s is ready: %t", name, ready), patience, func(ctx context.Context) (bool, string, error) {
		n, err := kube.Get[kube.Node](ctx, s.Client, "node", name)
		return err == nil && n.Ready() == ready, "", err
	})
}

// untilPodOf waits until one of a Deployment's pods is as wanted, and returns it.
func (s *story) untilPodOf(ctx context.Context, app, what string, wanted func(kube.Pod) bool) (kube.Pod, error) {
	var found kube.Pod
	err := s.untilPod(ctx, app, what, func(p kube.Pod) bool {
		if wanted(p) {
			found = p
			return true
		}
		return false
	})
	return found, err
}

// attachedTo returns the node that the volume of a pod's claim is attached to, as Kubernetes has it.
func (s *story) attachedTo(ctx context.Context, p kube.Pod) (string, error) {
	claim, err := s.claimOf(ctx, p)
	if err != nil {
		return "", err
	}
	all, err := kube.List[kube.Attachment](ctx, s.Client, "volumeattachments")
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if a.Spec.Source.PersistentVolumeName == claim.Spec.VolumeName {
			return a.Spec.NodeName, nil
		}
	}
	return "", nil
}
