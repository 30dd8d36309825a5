//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// stranger asks with the token of an account without rights, which the account of the backup may have made.
func (b *backups) stranger(ctx context.Context) error {
	const name = "stranger"
	meta := map[string]any{"name": name}
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
		{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": []any{map[string]any{
			"apiGroups": []string{""}, "resources": []string{"serviceaccounts/token"}, "resourceNames": []string{name}, "verbs": []string{"create"},
		}}},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "changed-blocks", "namespace": b.Namespace}},
		},
	} {
		if err := b.Create(ctx, object); err != nil {
			return err
		}
	}
	return b.wantRefused(ctx, "client", []string{"PermissionDenied"}, "-s=block-1", "-service-account="+name, "-service-account-namespace="+b.Namespace)
}

// onAnotherNode asks the sidecar of a node that has not got the snapshots.
func (b *backups) onAnotherNode(ctx context.Context) error {
	b.wantTwoNodes()
	if err := b.startClient(ctx, "elsewhere", b.env.otherThan(b.at)); err != nil {
		return err
	}
	for _, flags := range [][]string{{"-s=block-1"}, {"-s=block-2", "-p=block-1"}} {
		if err := b.wantRefused(ctx, "elsewhere", []string{"FailedPrecondition", "CB-SOURCE-ELSEWHERE", b.at}, flags...); err != nil {
			return err
		}
	}
	return nil
}

// wantRefused checks that the answer is an error with some words.
func (b *backups) wantRefused(ctx context.Context, pod string, words []string, flags ...string) error {
	got, err := b.list(ctx, pod, flags...)
	if err == nil {
		return fmt.Errorf("%s with %q has the answer %v, want a refusal with %q", pod, flags, got, words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("%s with %q: the refusal lacks %q: %w", pod, flags, word, err)
		}
	}
	b.Log("%s with %q: %v", pod, flags, err)
	return nil
}

// thousands is a snapshot whose blocks take many messages.
const thousands = "block-3"

// killed kills ten clients, each a little later after its start, and then the sidecar while a client asks again and again. All that they have
// held is free then: the snapshot is deleted.
func (b *backups) killed(ctx context.Context) error {
	if err := b.scatter(ctx); err != nil {
		return err
	}
	if err := b.snapshotOf(ctx, thousands, "block"); err != nil {
		return err
	}
	lister := "/snapshot-metadata-lister -n=" + b.Namespace + " -s=" + thousands + " -p=block-2 >/dev/null 2>&1"
	if _, err := b.Exec(ctx, "client", "", "for i in 05 10 15 20 25 30 35 40 45 50; do "+lister+" & sleep 0.$i; kill -9 $! 2>/dev/null || true; done"); err != nil {
		return err
	}
	parts, err := b.list(ctx, "client", "-s="+thousands, "-p=block-2")
	if err != nil {
		return fmt.Errorf("after clients were killed: %w", err)
	}
	if len(parts) < 10_000 {
		return fmt.Errorf("only %d parts are reported, want each second 4 KiB of 128 MiB", len(parts))
	}
	if _, err := b.Exec(ctx, "client", "", "(while [ ! -e /tmp/enough ]; do "+lister+"; done) </dev/null >/dev/null 2>&1 &"); err != nil {
		return err
	}
	if err := b.killSidecar(ctx); err != nil {
		return err
	}
	if _, err := b.Exec(ctx, "client", "", "touch /tmp/enough"); err != nil {
		return err
	}
	if err := b.Delete(ctx, "volumesnapshot", thousands); err != nil {
		return err
	}
	return b.UntilGone(ctx, "volumesnapshot", thousands, patience)
}

// killSidecar kills the sidecar of the volume's node, and waits until the next one answers.
func (b *backups) killSidecar(ctx context.Context) error {
	before, err := b.restartsOfSidecar(ctx)
	if err != nil {
		return err
	}
	// The sidecar's image has no shell, and its program is the only one of this name on the machine.
	const kill = `
for p in /proc/[0-9]*; do
	case "$(readlink "$p/exe")" in
	*/csi-snapshot-metadata) kill -KILL "${p#/proc/}" ;;
	esac
done`
	if err := inMachine(ctx, b.at, kill); err != nil {
		return err
	}
	return b.Until(ctx, "the next sidecar answers", patience, func(ctx context.Context) (bool, string, error) {
		now, err := b.restartsOfSidecar(ctx)
		if err != nil || now == before {
			return false, "the container was not started again", err
		}
		_, err = b.list(ctx, "client", "-s="+thousands, "-p=block-2")
		return err == nil, "", err
	})
}

// restartsOfSidecar counts how often the sidecar of the volume's node was started again.
func (b *backups) restartsOfSidecar(ctx context.Context) (int, error) {
	pods, err := b.env.driver.pods(ctx)
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(pods, func(p kube.Pod) bool { return p.Spec.NodeName == b.at })
	if at < 0 {
		return 0, fmt.Errorf("the driver has no pod on %s", b.at)
	}
	for _, c := range pods[at].Status.ContainerStatuses {
		if c.Name == blocksSidecar {
			return c.RestartCount, nil
		}
	}
	return 0, fmt.Errorf("pod %s has no container %s", pods[at].Metadata.Name, blocksSidecar)
}
