//go:build cluster

// Package cluster tests the driver in a running cluster, with the stock sidecars and a real kubelet,
// through kubectl. KUBECONFIG and KUBECTL name the cluster; the default is the one of `make cluster`.
package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

var must = expect.NoError

const (
	mib = int64(1) << 20
	gib = int64(1) << 30

	// patience is how long anything may take that a cluster does by itself. Everything but a
	// saboteur's work takes seconds; some of the stock components look only once a minute.
	patience = 4 * time.Minute

	busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
)

// env is the cluster and the driver in it.
type env struct {
	kube.Client
	place
	driver driver
	store  store
	nodes  []string
}

// connect finds the driver in the cluster.
func connect(t *testing.T) *env {
	t.Helper()
	client, err := kube.FromEnvironment(os.Getenv)
	must(t, err)
	client.Log = t.Logf
	e := &env{Client: client}
	if e.place, err = here(); err != nil {
		t.Fatal(err)
	}
	if err := e.discover(t.Context()); err != nil {
		t.Fatalf("%v\nIs such a cluster running? `make cluster CLOUD=%s` starts one", err, e.cloud)
	}
	return e
}

func (e *env) discover(ctx context.Context) error {
	nodes, err := kube.List[kube.Node](ctx, e.Client, "nodes", "--selector", e.topologyKey)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Ready() && !n.Spec.Unschedulable {
			e.nodes = append(e.nodes, n.Metadata.Name)
		}
	}
	if len(e.nodes) == 0 {
		return fmt.Errorf("none of %d nodes is ready and has the driver's label %s", len(nodes), e.topologyKey)
	}
	for fs, name := range e.classes {
		class, err := kube.Get[kube.Class](ctx, e.Client, "storageclass", name)
		if err != nil {
			return err
		}
		if got := class.Parameters["csi.storage.k8s.io/fstype"]; class.Provisioner != e.place.driver || got != fs {
			return fmt.Errorf("class %s makes %q on %s, want %s on %s", name, got, class.Provisioner, fs, e.place.driver)
		}
	}
	if e.driver, err = findDriver(ctx, e.Client, e.cloud); err != nil {
		return err
	}
	e.store, err = e.find(e.driver)
	return err
}

// namespace makes a namespace that is removed at the end with all its volumes, whatever happens. When
// the test failed, everything one wants to know is printed first.
func (e *env) namespace(t *testing.T, name string) kube.Client {
	t.Helper()
	ns := fmt.Sprintf("e2e-%s-%x", name, time.Now().UnixNano()&0xffffff)
	if _, err := e.Run(t.Context(), "create", "namespace", ns); err != nil {
		t.Fatal(err)
	}
	client := e.In(ns)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if t.Failed() {
			e.dump(ctx, t, client, ns)
		}
		if err := e.sweep(ctx, client); err != nil {
			t.Errorf("clean up %s: %v", ns, err)
		}
		if _, err := e.Run(ctx, "delete", "namespace", ns, "--timeout=3m"); err != nil {
			t.Errorf("clean up %s: %v", ns, err)
		}
	})
	return client
}

// dump writes a namespace's events and pods, and the logs of the driver and the kubelets, into a file of the reports.
func (e *env) dump(ctx context.Context, t *testing.T, namespace kube.Client, name string) {
	t.Helper()
	var text strings.Builder
	namespace.Dump(ctx, &text)
	for _, w := range e.driver.workloads {
		e.driver.DumpLogs(ctx, &text, w.Selector(), 300)
	}
	e.DumpKubelets(&text, 300)
	path := filepath.Join(reports(t), name+".txt")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
	t.Logf("events, pods, and the logs of the driver and the kubelets: %s", path)
}

// reports is the folder for what does not fit into a test's output.
func reports(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CLOUDBLOCK_REPORTS")
	if dir == "" {
		cache, err := kube.Cache()
		must(t, err)
		dir = filepath.Join(cache, "cluster", "reports")
	}
	must(t, os.MkdirAll(dir, 0o755))
	return dir
}

// sweep deletes everything in a namespace and waits until its volumes and snapshots are gone too.
func (e *env) sweep(ctx context.Context, c kube.Client) error {
	for _, kinds := range []string{"pods", "volumesnapshots", "pvc"} {
		if err := c.Delete(ctx, kinds, "--all"); err != nil {
			return err
		}
	}
	return c.Until(ctx, "the volumes and snapshots of "+c.Namespace+" are gone", patience, func(ctx context.Context) (bool, string, error) {
		left, err := e.objectsOf(ctx, c.Namespace)
		return len(left) == 0, strings.Join(left, ", "), err
	})
}

// objectsOf names the volumes and snapshot contents that belong to a namespace.
func (e *env) objectsOf(ctx context.Context, namespace string) ([]string, error) {
	volumes, err := kube.List[kube.Volume](ctx, e.Client, "pv")
	if err != nil {
		return nil, err
	}
	contents, err := kube.List[kube.SnapshotContent](ctx, e.Client, "volumesnapshotcontents")
	if err != nil {
		return nil, err
	}
	claims, err := kube.List[kube.Claim](ctx, e.In(namespace), "pvc")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, c := range claims {
		left = append(left, "claim "+c.Metadata.Name)
	}
	for _, v := range volumes {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == namespace {
			left = append(left, "volume "+v.Metadata.Name+" "+v.Status.Phase)
		}
	}
	for _, s := range contents {
		if s.Spec.VolumeSnapshotRef.Namespace == namespace {
			left = append(left, "snapshot content "+s.Metadata.Name)
		}
	}
	return left, nil
}

// gate reports whether a feature gate of the API server is on. In a cluster of `make cluster` it is then on in the other programs too.
func (e *env) gate(ctx context.Context, name string) (bool, error) {
	text, err := e.Run(ctx, "get", "--raw", "/metrics")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, `kubernetes_feature_enabled{name="`+name+`",`); found {
			return strings.HasSuffix(strings.TrimSpace(value), " 1"), nil
		}
	}
	return false, nil
}

// room returns how much room the driver says a class has on a node, in bytes.
func (e *env) room(ctx context.Context, class, node string) (int64, error) {
	all, err := kube.List[kube.Capacity](ctx, e.Client, "csistoragecapacities", "--all-namespaces")
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.StorageClassName == class && c.NodeTopology.MatchLabels[e.topologyKey] == node {
			return kube.Bytes(c.Capacity)
		}
	}
	return 0, fmt.Errorf("there is no CSIStorageCapacity of class %s for node %s among %d", class, node, len(all))
}
