package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed manifests
var manifestFiles embed.FS

// noDriver as the cloud is a cluster with snapshots and nothing else.
const noDriver = "none"

// kubectl is the built one, as the cluster's administrator.
func kubectl(ctx context.Context, l layout, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, l.bin("kubectl"), append([]string{"--kubeconfig=" + l.kubeconfig()}, args...)...)
}

// manifests are what is applied, in this order, each a kustomization's folder.
func manifests(ctx context.Context, l layout, cloud string) ([]string, error) {
	snapshots := l.run("snapshots")
	if err := writeSnapshots(ctx, l, snapshots); err != nil {
		return nil, err
	}
	if cloud == noDriver {
		return []string{snapshots}, nil
	}
	write := writeLocal
	if emulated(cloud) {
		write = writeEmulated
	}
	driver, err := write(l, cloud)
	return []string{snapshots, driver}, err
}

func overlay(l layout, cloud string) string { return l.source("deploy/overlays", cloud) }

// writeLocal adds the components to a copy of deploy/.
func writeLocal(l layout, cloud string) (string, error) {
	dir := l.run("driver")
	if err := copyDeploy(l, dir); err != nil {
		return "", err
	}
	return dir, renderTo(filepath.Join(dir, "kustomization.yaml"), cloud+".yaml.tmpl", nil)
}

// copyDeploy copies deploy/ into a new folder, since kustomize takes nothing from folders above.
func copyDeploy(l layout, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(l.source("deploy")))
}

// writeSnapshots puts the CRDs and the snapshot-controller's manifests of the pinned modules beside
// our changes to them.
func writeSnapshots(ctx context.Context, l layout, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, from := range map[string]struct{ pinned, module, folder string }{
		"crd":                 {sidecarsModule, "external-snapshotter/client/v8", "config/crd"},
		"snapshot-controller": {sidecarsModule, "external-snapshotter/v8", "deploy/kubernetes/snapshot-controller"},
		"changed-blocks":      {metadataModule, "external-snapshot-metadata/client", "config/crd"},
	} {
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/"+from.module)
		cmd.Dir = l.source(from.pinned)
		source, err := output(cmd)
		if err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(strings.TrimSpace(source), from.folder))); err != nil {
			return err
		}
	}
	changes, err := manifestFiles.ReadFile("manifests/kustomization.yaml")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), changes, 0o644)
}

// renderAll is the text of all manifests, to see which images they name.
func renderAll(ctx context.Context, l layout, folders []string) (string, error) {
	var all strings.Builder
	for _, folder := range folders {
		text, err := output(exec.CommandContext(ctx, l.bin("kubectl"), "kustomize", folder))
		if err != nil {
			return "", err
		}
		all.WriteString(text)
		all.WriteString("\n---\n")
	}
	return all.String(), nil
}

// apply sends a folder's manifests. The first try may meet kinds that the same manifests have just
// defined.
func apply(ctx context.Context, l layout, folder string) error {
	return waitFor(ctx, "apply "+folder, 30*time.Second, func(ctx context.Context) error {
		return runCommand(kubectl(ctx, l, "apply", "--server-side", "--force-conflicts", "-k", folder))
	})
}

// waitForWorkloads waits until every pod of what was applied is ready, and then until each node's
// kubelet knows every driver.
func waitForWorkloads(ctx context.Context, l layout, nodes []*node) error {
	list, err := output(kubectl(ctx, l, "get", "deployments,daemonsets", "--all-namespaces", "--no-headers",
		"-o", "custom-columns=NAMESPACE:.metadata.namespace,KIND:.kind,NAME:.metadata.name"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		err := runCommand(kubectl(ctx, l, "rollout", "status", "--timeout=3m", "-n", fields[0], fields[1]+"/"+fields[2]))
		if err != nil {
			return fmt.Errorf("%w\n%s", err, troubles(ctx, l, fields[0]))
		}
	}
	drivers, err := output(kubectl(ctx, l, "get", "csidrivers", "-o", "jsonpath={.items[*].metadata.name}"))
	if err != nil {
		return err
	}
	for _, n := range nodes {
		err := waitFor(ctx, "the drivers on "+n.Name, time.Minute, func(ctx context.Context) error {
			known, err := output(kubectl(ctx, l, "get", "csinode", n.Name, "-o", "jsonpath={.spec.drivers[*].name}"))
			for _, driver := range strings.Fields(drivers) {
				if err == nil && !strings.Contains(" "+known+" ", " "+driver+" ") {
					err = fmt.Errorf("%s is not registered", driver)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// troubles are a namespace's pods and warnings, for the one who has to find out why.
func troubles(ctx context.Context, l layout, namespace string) string {
	pods, err := output(kubectl(ctx, l, "get", "pods", "-n", namespace, "-o", "wide"))
	if err != nil {
		return err.Error()
	}
	events, err := output(kubectl(ctx, l, "get", "events", "-n", namespace, "--field-selector=type=Warning",
		"-o", "custom-columns=OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message"))
	if err != nil {
		return err.Error()
	}
	return pods + events
}

// restartDriver makes the driver's pods again, with the images that were just imported.
func restartDriver(ctx context.Context, l layout, folder string) error {
	namespaces, err := output(kubectl(ctx, l, "get", "-k", folder, "-o",
		`jsonpath={range .items[?(@.kind=="DaemonSet")]}{.metadata.namespace}{"\n"}{end}{range .items[?(@.kind=="Deployment")]}{.metadata.namespace}{"\n"}{end}`))
	if err != nil {
		return err
	}
	for namespace := range strings.FieldsSeq(namespaces) {
		if err := runCommand(kubectl(ctx, l, "rollout", "restart", "daemonset,deployment", "-n", namespace)); err != nil {
			return err
		}
	}
	return nil
}
