//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// installation is the driver as `make cluster` installs it.
type installation struct {
	env *env
	// manifests is the folder that is applied.
	manifests string
	// fresh has the present image of each of the driver's own containers, by the container's name.
	fresh map[string]string
}

// installation returns that of the running cluster.
func (e *env) installation(t *testing.T) installation {
	t.Helper()
	i := installation{env: e, manifests: filepath.Join(filepath.Dir(e.Kubeconfig), "run", "driver"), fresh: map[string]string{}}
	for _, w := range e.driver.workloads {
		for _, c := range w.Spec.Template.Spec.Containers {
			if ours(c) {
				i.fresh[c.Name] = c.Image
			}
		}
	}
	if got := slices.Sorted(maps.Keys(i.fresh)); !slices.Equal(got, []string{"controller", "node"}) {
		t.Fatalf("the driver's own containers are %v, want controller and node", got)
	}
	return i
}

// restore leaves the driver as the manifests have it, whatever happened, since the clean-up needs it.
func (i installation) restore(t *testing.T) {
	t.Helper()
	i.env.Log = t.Logf
	if err := i.deploy(context.Background()); err != nil {
		t.Errorf("install the driver again: %v", err)
	}
}

// dump writes the pods, the events and the logs of the driver when the test has failed.
func (i installation) dump(t *testing.T, name string) {
	t.Helper()
	if t.Failed() {
		i.env.dump(context.Background(), t, i.env.driver.Client, name+"-driver")
	}
}

// remove deletes what is installed, also by another way under the same names.
func (i installation) remove(ctx context.Context) error {
	if _, err := i.env.Run(ctx, "delete", "-k", i.manifests, "--ignore-not-found", "--timeout="+patience.String()); err != nil {
		return err
	}
	return i.env.UntilGone(ctx, "namespace", i.env.driver.Namespace, patience)
}

// deploy installs what the clone has, and waits until it runs.
func (i installation) deploy(ctx context.Context) error {
	err := i.env.Until(ctx, "the manifests are applied", patience, func(ctx context.Context) (bool, string, error) {
		_, err := i.env.Run(ctx, "apply", "--server-side", "--force-conflicts", "-k", i.manifests)
		return err == nil, "", err
	})
	if err != nil {
		return err
	}
	for _, w := range i.env.driver.workloads {
		if _, err := i.env.driver.Run(ctx, "rollout", "status", w.Kind+"/"+w.Metadata.Name, "--timeout="+patience.String()); err != nil {
			return err
		}
		for _, c := range w.Spec.Template.Spec.Containers {
			if !ours(c) {
				continue
			}
			if err := i.runs(ctx, w, c.Name, i.fresh[c.Name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// runs waits until all pods of a workload that are to stay have an image and are ready, and logs which version it is.
func (i installation) runs(ctx context.Context, w kube.Workload, container, image string) error {
	d, version := i.env.driver, ""
	err := d.Until(ctx, w.Metadata.Name+" runs "+image, patience, func(ctx context.Context) (bool, string, error) {
		pods, err := d.podsOf(ctx, w)
		if err != nil {
			return false, "", err
		}
		for _, p := range pods {
			has := slices.ContainsFunc(p.Spec.Containers, func(c kube.Container) bool { return c.Name == container && c.Image == image })
			if !has || !p.Ready() {
				return false, fmt.Sprintf("pod %s has the image: %t; %s", p.Metadata.Name, has, p.State()), nil
			}
			if version, err = d.ExecArgs(ctx, p.Metadata.Name, container, "/cloudblock-"+container, "--version"); err != nil {
				return false, "", err
			}
		}
		return len(pods) == w.Wanted(), fmt.Sprintf("%d pods of %d", len(pods), w.Wanted()), nil
	})
	d.Log("%s: %s", image, strings.TrimSpace(version))
	return err
}
