//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/install"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// longest is how long the commands of a page may take, from a cluster without the driver to a pod with a volume.
const longest = 5 * time.Minute

// installer is a new operator, who does what a page says.
type installer struct {
	*story
	own installation
	// environment of the operator's shell.
	environment []string
}

// TestInstall takes the driver off and installs it by the commands of the documents, by one way after the other. At the end the
// cluster has its own installation again.
func TestInstall(t *testing.T) {
	s := begin(t, "install")
	i := installer{story: s, own: s.env.installation(t), environment: shell(t, s)}
	t.Cleanup(func() {
		i.own.dump(t, s.Namespace)
		if err := i.own.remove(context.Background()); err != nil {
			t.Errorf("remove what the documents have installed: %v", err)
		}
		i.own.restore(t)
		if err := i.removeExamples(context.Background()); err != nil {
			t.Errorf("remove the examples: %v", err)
		}
	})
	must(t, i.own.remove(t.Context()))
	i.by(t, "kustomize", install.Kustomize, i.follow)
	i.by(t, "Helm", install.Helm, i.upgraded)
	if s.env.cloud != "local" {
		i.by(t, "kustomize, and pods do not reach 169.254.169.254", install.Kustomize, i.blocked)
	}
	i.by(t, "kustomize, and then Helm takes over", install.Move, i.takenOver)
}

// by installs the driver by one way, and removes it and the volume again.
func (i installer) by(t *testing.T, name string, find func(root, cloud string) (install.Way, error),
	follow func(ctx context.Context, w install.Way, dir string) error,
) {
	i.stage(t, name, func(ctx context.Context) error {
		w, err := find(repository, i.env.cloud)
		if err != nil {
			return err
		}
		dir := i.t.TempDir()
		if err := w.Folder(ctx, repository, i.env.cloud, dir); err != nil {
			return err
		}
		if err := follow(ctx, w, dir); err != nil {
			return err
		}
		if err := i.removeExamples(ctx); err != nil {
			return err
		}
		if err := i.env.nothingLeft(ctx); err != nil {
			return err
		}
		if _, err := i.run(ctx, dir, install.Here(i.env.cloud, w.Removal)); err != nil {
			return err
		}
		return i.env.UntilGone(ctx, "namespace", i.env.driver.Namespace, patience)
	})
}

// exampleClient reads the namespace of the examples, which the pages apply.
func (i installer) exampleClient() kube.Client { return i.env.In(exampleNamespace) }

// removeExamples deletes that namespace, as the quickstart says it, and waits until the volumes are gone.
func (i installer) removeExamples(ctx context.Context) error {
	if _, err := i.env.Run(ctx, "delete", "namespace", exampleNamespace, "--ignore-not-found", "--timeout=5m"); err != nil {
		return err
	}
	return i.env.sweep(ctx, i.exampleClient())
}

// follow runs the commands of a page and checks that there is a pod with a volume.
func (i installer) follow(ctx context.Context, w install.Way, dir string) error {
	took, err := i.run(ctx, dir, install.Here(i.env.cloud, w.Commands))
	if err != nil {
		return fmt.Errorf("%s: %w", w.Document, err)
	}
	i.Log("%s: %d commands, %.0f s from a cluster without the driver to a pod with a volume", w.Document, len(w.Commands), took.Seconds())
	if took > longest {
		return fmt.Errorf("%s: the commands took %s, want at most %s", w.Document, took.Round(time.Second), longest)
	}
	claim, err := kube.Get[kube.Claim](ctx, i.exampleClient(), "pvc", "data")
	if err != nil {
		return err
	}
	pod, err := kube.Get[kube.Pod](ctx, i.exampleClient(), "pod", "app")
	if err != nil {
		return err
	}
	if claim.Status.Phase != "Bound" || !pod.Ready() {
		return fmt.Errorf("at the end of %s the claim is %s, want Bound, and the pod is %s, want Ready", w.Document, claim.Status.Phase, pod.State())
	}
	return nil
}

// takenOver follows a page and then lets Helm take over.
func (i installer) takenOver(ctx context.Context, w install.Way, dir string) error {
	if err := i.follow(ctx, w, dir); err != nil {
		return err
	}
	if _, err := i.run(ctx, dir, install.Here(i.env.cloud, []string{w.TakeOver})); err != nil {
		return err
	}
	if err := i.exampleClient().Delete(ctx, "pod", "app"); err != nil {
		return err
	}
	if err := i.exampleClient().UntilGone(ctx, "pod", "app", patience); err != nil {
		return err
	}
	if err := i.exampleClient().Create(ctx, newPod("app", "data", "")); err != nil {
		return err
	}
	_, err := i.exampleClient().UntilReady(ctx, "app", patience)
	return err
}

// upgraded follows a page and then upgrades to the same chart, which replaces no pod of the driver. The chart's own test passes.
func (i installer) upgraded(ctx context.Context, w install.Way, dir string) error {
	if err := i.follow(ctx, w, dir); err != nil {
		return err
	}
	before, err := i.env.driver.allReady(ctx)
	if err != nil {
		return err
	}
	if _, err := i.run(ctx, dir, install.Here(i.env.cloud, []string{w.Upgrade})); err != nil {
		return err
	}
	after, err := i.env.driver.allReady(ctx)
	if err != nil {
		return err
	}
	for _, b := range before {
		if !slices.ContainsFunc(after, func(p kube.Pod) bool { return p.Metadata.UID == b.Metadata.UID }) {
			return fmt.Errorf("%s has replaced the driver's pod %s", w.Upgrade, b.Metadata.Name)
		}
	}
	return i.helmTest(ctx, dir)
}

// helmTest runs the test of the chart, which leaves no volume.
func (i installer) helmTest(ctx context.Context, dir string) error {
	namespace := i.env.driver.Namespace
	if _, err := i.run(ctx, dir, []string{"helm test cloudblock --namespace " + namespace + " --logs --timeout 5m"}); err != nil {
		return err
	}
	return i.env.Until(ctx, "the volume of helm test is gone", patience, func(ctx context.Context) (bool, string, error) {
		left, err := i.env.objectsOf(ctx, namespace)
		return len(left) == 0, strings.Join(left, ", "), err
	})
}

// run runs commands in a shell, each as a page has it, and returns how long all of them took.
func (i installer) run(ctx context.Context, dir string, commands []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*longest)
	defer cancel()
	begin := time.Now()
	for _, c := range commands {
		one := time.Now()
		cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", c)
		cmd.Dir, cmd.Env, cmd.WaitDelay = dir, i.environment, 10*time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			return time.Since(begin), fmt.Errorf("%s: %w\n%s", c, err, out)
		}
		i.Log("%6.1f s  %s\n%s", time.Since(one).Seconds(), c, strings.TrimSpace(string(out)))
	}
	return time.Since(begin), nil
}

// shell is the environment of an operator who has kubectl, the Helm of test/check/charts, and the test's namespace as their own.
func shell(t *testing.T, s *story) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-n", "helm")
	cmd.Dir = filepath.Join(repository, "test/check/charts")
	cmd.Stderr = os.Stderr
	helm, err := cmd.Output()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	home := t.TempDir()
	return append(operator(t, s, map[string]string{"kubectl": s.Kubectl, "helm": strings.TrimSpace(string(helm))}),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
}

// operator is the environment of an operator who has some programs, and the test's namespace as their own.
func operator(t *testing.T, s *story, programs map[string]string) []string {
	t.Helper()
	bin := t.TempDir()
	for name, program := range programs {
		must(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+configured(t, s.Client))
}

// blocked follows a page where pods do not reach the metadata service, with the component and the settings that
// docs/customize.md has for that.
func (i installer) blocked(ctx context.Context, w install.Way, dir string) error {
	settings, err := i.identity(ctx)
	if err != nil {
		return err
	}
	if err := install.BlockMetadata(i.env.cloud, dir, settings); err != nil {
		return err
	}
	for _, node := range i.env.nodes {
		if err := i.Create(ctx, on(node, withoutVolume("asking-"+node))); err != nil {
			return err
		}
		if _, err := i.UntilReady(ctx, "asking-"+node, patience); err != nil {
			return err
		}
	}
	if err := i.reached(ctx, true); err != nil {
		return err
	}
	for _, node := range i.env.nodes {
		if err := inFirewall(ctx, node, "-I"); err != nil {
			return err
		}
		i.t.Cleanup(func() {
			if err := inFirewall(context.Background(), node, "-D"); err != nil {
				i.t.Error(err)
			}
		})
	}
	if err := i.reached(ctx, false); err != nil {
		return err
	}
	if err := i.follow(ctx, w, dir); err != nil {
		return err
	}
	// Still, so the driver has come up without it.
	if err := i.reached(ctx, false); err != nil {
		return err
	}
	return i.inTheirNetworks(ctx)
}

// identity returns, as settings, what a controller asks the metadata service for.
func (i installer) identity(ctx context.Context) (string, error) {
	node, err := kube.Get[kube.Node](ctx, i.Client, "node", i.env.nodes[0])
	if err != nil {
		return "", err
	}
	settings := "REGION=" + node.Metadata.Labels[i.env.topologyKey]
	if i.env.cloud == "yandex" {
		folder, err := machine.YandexFolder(ctx, "http://10.250.0.254:28101")
		if err != nil {
			return "", err
		}
		settings += ", YANDEX_FOLDER_ID=" + folder
	}
	return settings, nil
}

// reached checks whether a pod in the pods' network of each node gets an answer from the metadata service.
func (i installer) reached(ctx context.Context, want bool) error {
	for _, node := range i.env.nodes {
		answer, err := i.Exec(ctx, "asking-"+node, "", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 169.254.169.254 80 2>&1 || true`)
		if err != nil {
			return err
		}
		i.Log("169.254.169.254 as a pod on %s sees it: %.60q", node, answer)
		if got := strings.HasPrefix(answer, "HTTP/1."); got != want {
			return fmt.Errorf("the metadata service answers a pod on %s: %t, want %t: %q", node, got, want, answer)
		}
	}
	return nil
}

// inFirewall adds (-I) or deletes (-D) the rule of a node that drops what its pods send to the metadata service. The node's
// own network, and the pods in it, reach the service as before.
func inFirewall(ctx context.Context, node, do string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./test/run/cluster", "enter", node,
		"iptables", "-w", "-t", "mangle", do, "PREROUTING", "-i", "cni0", "-d", "169.254.169.254/32", "-j", "DROP")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables %s on %s: %w\n%s", do, node, err, out)
	}
	return nil
}

// inTheirNetworks checks that the node program is in the nodes' network and the controller in the pods'.
func (i installer) inTheirNetworks(ctx context.Context) error {
	for _, w := range i.env.driver.workloads {
		got, err := i.env.driver.Run(ctx, "get", "pods", "--selector", w.Selector(), "--output", "jsonpath={.items[*].spec.hostNetwork}")
		if err != nil {
			return err
		}
		want := ""
		if w.Kind == "DaemonSet" {
			want = strings.TrimSpace(strings.Repeat("true ", len(i.env.nodes)))
		}
		if got != want {
			return fmt.Errorf("hostNetwork of the pods of %s is %q, want %q", w.Metadata.Name, got, want)
		}
	}
	return nil
}
