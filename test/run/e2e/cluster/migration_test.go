//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/install"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// vendor is the driver of a cloud's vendor, as it is in a cluster: its name and classes, what the names of its StatefulSet and
// its DaemonSet begin with, and its Secret in kube-system.
type vendor struct {
	driver, prefix, secret, key string
	classes                     map[string]string
}

var vendors = map[string]vendor{
	"digitalocean": {
		driver: "dobs.csi.digitalocean.com", prefix: "csi-do-", secret: "digitalocean", key: "access-token",
		classes: map[string]string{"ext4": "do-block-storage", "xfs": "do-block-storage-xfs"},
	},
}

// migration is an operator who follows docs/migrate.md.
type migration struct {
	installer
	vendor
	guide install.Migration
	// folder is where the commands run, and standIn the manifests of the vendor's driver.
	folder, standIn string
	writing         writer
	// pods have data that every driver has to find.
	pods []string
}

// TestMigration moves a cluster from the vendor's driver to this one and back, by the commands of the guide, while a pod
// writes. The vendor's driver is this one under the vendor's name, in the vendor's objects of kube-system.
func TestMigration(t *testing.T) {
	s := begin(t, "migration")
	m := &migration{vendor: vendors[s.env.cloud], folder: t.TempDir()}
	m.installer = installer{story: s, own: s.env.installation(t), environment: operator(t, s, map[string]string{"kubectl": s.Kubectl})}
	s.env.place.driver, s.env.classes = m.driver, m.classes
	var err error
	if m.guide, err = install.Migrate(repository, s.env.cloud); err == nil {
		err = m.guide.Folder(t.Context(), repository, s.env.cloud, m.folder)
	}
	must(t, err)
	t.Cleanup(func() { m.cleanUp(t) })
	for _, stage := range []struct {
		name string
		run  func(*migration, context.Context) error
	}{
		{"the vendor's driver serves volumes", (*migration).begin},
		{"the move", (*migration).move},
		{"the way back", (*migration).back},
		{"everything deleted", func(m *migration, ctx context.Context) error { return m.wholeWriter(ctx, m.writing) }},
	} {
		s.stage(t, stage.name, func(ctx context.Context) error { return stage.run(m, ctx) })
	}
}

// cleanUp leaves the cluster with its own installation. After a failure the volumes are first deleted by the vendor's driver.
func (m *migration) cleanUp(t *testing.T) {
	ctx := context.Background()
	m.own.dump(t, m.Namespace)
	err := m.own.remove(ctx)
	if t.Failed() {
		err = errors.Join(err, m.remove(ctx), m.install(ctx), m.env.sweep(ctx, m.Client))
	}
	if err := errors.Join(err, m.remove(ctx)); err != nil {
		t.Errorf("remove the vendor's driver: %v", err)
	}
	m.own.restore(t)
}

// begin takes our driver off, installs the vendor's, and starts the pods.
func (m *migration) begin(ctx context.Context) error {
	if err := m.own.remove(ctx); err != nil {
		return err
	}
	rendered, err := m.Run(ctx, "kustomize", filepath.Join(m.folder, "move"))
	if err != nil {
		return err
	}
	m.standIn = filepath.Join(m.folder, "vendor.yaml")
	write(m.t, m.standIn, m.vendors(rendered))
	if err := m.install(ctx); err != nil {
		return err
	}
	if m.writing, err = m.startWriter(ctx, "writer"); err != nil {
		return err
	}
	if err := m.check(ctx, "vendors"); err != nil {
		return err
	}
	free, err := m.add(ctx, "free")
	if err != nil {
		return err
	}
	return m.away(ctx, free)
}

// vendors returns the manifests of our driver under the vendor's name as those of the vendor's driver.
func (m *migration) vendors(rendered string) string {
	return strings.NewReplacer(
		"cloudblock-csi", "cloudblock-csi", // images, and folders of the nodes
		"namespace: "+m.env.driver.Namespace, "namespace: kube-system",
		"kind: Deployment", "kind: StatefulSet",
		"replicas: 2", "replicas: 1",
		"CLUSTER_ID: prod", "CLUSTER_ID: vendors", // what the vendor's driver makes has no mark of this cluster
		"app.kubernetes.io/name: cloudblock-", "app: "+m.prefix,
		"cloudblock-", m.prefix,
	).Replace(rendered)
}

// install installs the vendor's driver.
func (m *migration) install(ctx context.Context) error {
	vendors := m.env.In("kube-system")
	if _, err := vendors.Run(ctx, "create", "secret", "generic", m.secret, "--from-literal="+m.key+"=emulator-token"); err != nil {
		return err
	}
	// A StatefulSet has no strategy, which the API server then leaves out.
	if _, err := vendors.Run(ctx, "apply", "--validate=false", "--filename", m.standIn); err != nil {
		return err
	}
	for _, what := range []string{"statefulset/" + m.prefix + "controller", "daemonset/" + m.prefix + "node"} {
		if _, err := vendors.Run(ctx, "rollout", "status", what, "--timeout="+patience.String()); err != nil {
			return err
		}
	}
	return nil
}

// remove removes it.
func (m *migration) remove(ctx context.Context) error {
	if m.standIn == "" {
		return nil
	}
	vendors := m.env.In("kube-system")
	_, err := vendors.Run(ctx, "delete", "--ignore-not-found", "--timeout="+patience.String(), "--filename", m.standIn)
	return errors.Join(err, vendors.Delete(ctx, "secret", m.secret))
}

func (m *migration) move(ctx context.Context) error {
	for _, commands := range [][]string{m.guide.Before, m.guide.Move} {
		if _, err := m.run(ctx, m.folder, commands); err != nil {
			return err
		}
	}
	return m.check(ctx, "ours")
}

func (m *migration) back(ctx context.Context) error {
	if _, err := m.run(ctx, m.folder, m.guide.Back); err != nil {
		return err
	}
	left, err := m.env.Run(ctx, "get", "clusterroles,clusterrolebindings,namespaces", "--output", "name")
	if err == nil && strings.Contains(left, "/cloudblock-") {
		err = fmt.Errorf("the way back has left something of ours:\n%s", left)
	}
	if err != nil {
		return err
	}
	return m.check(ctx, "vendors-again")
}

// check: the pod that writes goes on, pods that are made again find their data and write more, and volumes live their whole
// lives. One of this stage stays for the next.
func (m *migration) check(ctx context.Context, stage string) error {
	if err := m.goesOn(ctx, m.writing); err != nil {
		return err
	}
	for _, name := range m.pods {
		p, err := m.renewed(ctx, name, "")
		if err != nil {
			return err
		}
		if err := m.wantData(ctx, p, m.sums[name]); err != nil {
			return err
		}
		if err := m.write(ctx, p); err != nil {
			return err
		}
	}
	if err := m.life(ctx, stage+"-life"); err != nil {
		return err
	}
	if _, err := m.add(ctx, stage); err != nil {
		return err
	}
	return m.env.nothingLeft(ctx)
}

// add makes a volume with data, and a pod on it.
func (m *migration) add(ctx context.Context, name string) (kube.Pod, error) {
	p, err := m.filled(ctx, claimOptions{name: name, class: m.classes["xfs"], size: m.env.whole}, "")
	m.pods = append(m.pods, name)
	return p, err
}
