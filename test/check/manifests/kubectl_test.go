package manifests_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// cloudblock runs the plugin with the fake kubectl over a folder, by the shell that is named.
func cloudblock(t *testing.T, dir string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	bin := t.TempDir()
	script := "#!/bin/sh\nexec '" + fake(t) + "' '" + dir + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(deploy, "kubectl-cloudblock")}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// fake returns the fake kubectl, a program of its own because the plugin starts it often and this one starts slowly.
func fake(t *testing.T) string {
	t.Helper()
	path, err := builtFake()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	fakeDir   string
	builtFake = sync.OnceValues(func() (string, error) {
		var err error
		if fakeDir, err = os.MkdirTemp("", "fake-kubectl-"); err != nil {
			return "", err
		}
		path := filepath.Join(fakeDir, "kubectl")
		if out, err := exec.Command("go", "build", "-o", path, "./kubectl").CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return path, nil
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	if fakeDir != "" {
		_ = os.RemoveAll(fakeDir)
	}
	os.Exit(code)
}

// found is a finding in the plugin's JSON.
type found struct{ Check, State, Message, Remedy string }

// TestKubectlCloudblockFindsWhatIsWrong: each planted fault is found, with its remedy, and nothing else is.
func TestKubectlCloudblockFindsWhatIsWrong(t *testing.T) {
	withoutFlag := func(s *state) {
		for i, d := range s.deployments {
			if d.Name == "snapshot-controller" {
				c := &s.deployments[i].Spec.Template.Spec.Containers[0]
				c.Args = slices.DeleteFunc(slices.Clone(c.Args), func(a string) bool { return strings.HasPrefix(a, "--enable-distributed") })
			}
		}
	}
	tests := map[string]struct {
		overlay string
		plant   func(s *state)
		want    found // Message and Remedy are parts
	}{
		"nothing, on local":   {"local", func(*state) {}, found{"snapshots", "ok", "are there", ""}},
		"nothing, on a cloud": {"linode", func(*state) {}, found{"snapshots", "ok", "not installed", ""}},
		"no driver":           {"local", func(s *state) { s.daemonSets = nil }, found{"driver", "wrong", "no DaemonSet", "docs/quickstart.md"}},
		"missing definitions": {"local", func(s *state) { s.crds = s.crds[:1] }, found{"snapshots", "wrong", "volumesnapshotcontents volumesnapshots", "external-snapshotter"}},
		"no snapshot-controller": {"local", func(s *state) { s.deployments = nil },
			found{"snapshots", "wrong", "no snapshot-controller", "deploy/snapshot-controller"}},
		"a snapshot-controller without its flag":       {"local", withoutFlag, found{"snapshots", "wrong", "without --enable-distributed-snapshotting", "add that flag"}},
		"the same, where the flag is not needed":       {"digitalocean", withoutFlag, found{"snapshots", "ok", "are there", ""}},
		"no CSIDriver":                                 {"local", func(s *state) { s.csiDrivers = nil }, found{"csidriver", "wrong", "no CSIDriver local.csi.cloudblock.io", "apply the overlay"}},
		"a node on which the driver is not registered": {"local", func(s *state) { s.csiNodes[1].Spec.Drivers = nil }, found{"nodes", "wrong", "not registered on: node-2", "node-driver-registrar"}},
		"an image that cannot be pulled":               {"local", func(s *state) { s.waits("cloudblock-node-node-2", "node", "ImagePullBackOff") }, found{"images", "wrong", "node-2, container node: ImagePullBackOff", "pull secret"}},
		"a Secret that is missing":                     {"linode", func(s *state) { s.waits("cloudblock-controller-node-1", "controller", "CreateContainerConfigError") }, found{"pods", "wrong", "CreateContainerConfigError", "create the Secret"}},
		"a program that ends":                          {"linode", func(s *state) { s.waits("cloudblock-node-node-1", "node", "CrashLoopBackOff") }, found{"pods", "wrong", "again and again", "--previous"}},
		"a program that is not ready": {"linode", func(s *state) {
			s.pod("cloudblock-controller-node-1").Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "controller",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
		}, found{"pods", "wrong", "is not ready", "/readyz"}},
		"a pod without a node": {"linode", func(s *state) {
			p := s.pod("cloudblock-controller-node-1")
			p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
		}, found{"pods", "wrong", "is not scheduled", "describe pod"}},
		"no pods":              {"linode", func(s *state) { s.pods = nil }, found{"pods", "wrong", "no pod of the driver runs", "quotas"}},
		"no classes":           {"local", func(s *state) { s.classes[0].Provisioner = "other.io"; s.classes = s.classes[:1] }, found{"classes", "warning", "no StorageClass has the provisioner", "apply the classes"}},
		"no default class":     {"local", func(s *state) { s.classes[0].Annotations = nil }, found{"default", "warning", "stay Pending", "is-default-class"}},
		"two default ones":     {"local", func(s *state) { s.classes[1].Annotations = s.classes[0].Annotations }, found{"default", "warning", "several", "leave the annotation on one"}},
		"what may not be read": {"local", func(s *state) { s.forbidden = []string{"customresourcedefinitions"} }, found{"crds", "warning", "Forbidden", "the right to read"}},
	}
	controller := render(t, filepath.Join(deploy, "snapshot-controller"))
	overlays := map[string][]byte{"linode": render(t, filepath.Join(deploy, "overlays", "linode"))} // which has no snapshots
	for _, name := range []string{"local", "digitalocean"} {
		overlays[name] = combination{name, []string{"snapshots"}}.render(t)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newState(t, overlays[tc.overlay], controller)
			tc.plant(s)
			stdout, stderr, exit := cloudblock(t, s.write(t), "doctor", "--output=json")
			var findings []found
			if err := json.Unmarshal([]byte(stdout), &findings); err != nil || stderr != "" {
				t.Fatalf("it prints %q and %q: %v", stdout, stderr, err)
			}
			is := func(f found) bool {
				return f.Check == tc.want.Check && f.State == tc.want.State && strings.Contains(f.Message, tc.want.Message) && strings.Contains(f.Remedy, tc.want.Remedy)
			}
			if !slices.ContainsFunc(findings, is) {
				t.Errorf("it finds %q, want %q", findings, tc.want)
			}
			for _, f := range findings {
				if f.State != "ok" && !is(f) {
					t.Errorf("it finds %q too", f)
				}
			}
			if wrong := tc.want.State == "wrong"; exit > 1 || (exit == 1) != wrong {
				t.Errorf("it exits with %d after %q", exit, findings)
			}
		})
	}
}

func TestKubectlCloudblockWithoutACluster(t *testing.T) {
	stdout, _, exit := cloudblock(t, "/nowhere")
	if exit != 1 || !strings.Contains(stdout, "the API server does not answer") || !strings.Contains(stdout, "=> correct the context") {
		t.Errorf("without a cluster it exits with %d and prints %q", exit, stdout)
	}
	_, stderr, exit := cloudblock(t, "/nowhere", "volumes", "--output=json")
	if exit != 1 || !strings.HasPrefix(stderr, "wrong    cluster      the API server does not answer: The connection") || !strings.Contains(stderr, "=> correct the context") {
		t.Errorf("volumes without a cluster exits with %d and prints %q", exit, stderr)
	}
	for _, args := range [][]string{{"--output=xml"}, {"volumes", "--all"}, {"--output"}} {
		if _, stderr, exit := cloudblock(t, "/nowhere", args...); exit != 2 || !strings.Contains(stderr, "Usage: kubectl cloudblock") {
			t.Errorf("%q exits with %d and prints %q", args, exit, stderr)
		}
	}
	if stdout, _, exit := cloudblock(t, "/nowhere", "--help"); exit != 0 || !strings.Contains(stdout, "Usage: kubectl cloudblock") {
		t.Errorf("--help exits with %d and prints %q", exit, stdout)
	}
}

// TestKubectlCloudblockTakesFlagsAsKubectlDoes: with a blank or an equals sign between a flag and its value.
func TestKubectlCloudblockTakesFlagsAsKubectlDoes(t *testing.T) {
	dir := newState(t, render(t, filepath.Join(deploy, "overlays", "linode"))).write(t)
	for args, want := range map[string]string{
		"--context other":                          "pods in cloudblock-linode",
		"--context=other -o json":                  "pods in cloudblock-linode",
		"--context missing":                        `context "missing" does not exist`,
		"--namespace cloudblock-linode":            "pods in cloudblock-linode",
		"doctor --namespace=elsewhere":             "no DaemonSet of elsewhere has the label",
		"volumes --context other -n elsewhere":     "no DaemonSet of cloudblock-csi in the namespace elsewhere",
		"volumes --context=missing --output=table": `context "missing" does not exist`,
		"--context": "--context: it needs a value",
	} {
		stdout, stderr, _ := cloudblock(t, dir, strings.Fields(args)...)
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s prints %q and %q, want %q", args, stdout, stderr, want)
		}
	}
}

// TestKubectlCloudblockBelievesNoPod: what a pod prints reaches neither the terminal as a command nor the list as a part of it, and
// no command runs in a pod outside of the driver's namespace.
func TestKubectlCloudblockBelievesNoPod(t *testing.T) {
	good := `[{"id": "node-2/0123456789abcdef0123456789abcdef", "size": 1073741824, "inUse": true, "problem": "a \"b\" \u00e9 {[,]}", "x": [-1.5e3, null, {}]}]`
	for name, evil := range map[string]string{
		"a forged value":       `[]", "x": "y`,
		"another node":         `[]}, {"node": "node-9", "volumes": [{"id": "forged"}]`,
		"an object":            `{"id": "a"}`,
		"a string with a line": "[{\"id\": \"a\nb\"}]",
		"no end":               `[{"id": "a"}`,
		"a comma too many":     `[{"id": "a"},]`,
		"a word":               `[yes]`,
		"two values":           `[1 2]`,
		"a wrong escape":       `["\x"]`,
		"a mark of the parser": "[{\"a\": \t}]",
	} {
		s := newState(t, render(t, filepath.Join(deploy, "overlays", "local")))
		s.volumes["cloudblock-node-node-1"] = [2]string{"\x1b]0;evil\x07\xc2\x9b31mred\x7f\n", evil}
		s.volumes["cloudblock-node-node-2"] = [2]string{"ID  CLAIM\n", good}
		dir := s.write(t)
		stdout, stderr, exit := cloudblock(t, dir, "volumes", "--output=json")
		var nodes []struct {
			Node    string
			Volumes []map[string]any
		}
		if err := json.Unmarshal([]byte(stdout), &nodes); err != nil || exit != 1 || len(nodes) != 1 || nodes[0].Node != "node-2" || len(nodes[0].Volumes) != 1 {
			t.Errorf("%s: it exits with %d and prints %s: %v", name, exit, stdout, err)
		}
		if !strings.Contains(stderr, "node-1: what the pod cloudblock-node-node-1 prints is no list in JSON") {
			t.Errorf("%s: it says %q", name, stderr)
		}
		table, _, exit := cloudblock(t, dir, "volumes")
		if exit != 0 || !strings.Contains(table, "  ]0;evil31mred\n") {
			t.Errorf("the table exits with %d and is %q, want the text without control characters", exit, table)
		}
	}
	foreign := newState(t, render(t, filepath.Join(deploy, "overlays", "local")))
	for i := range foreign.daemonSets {
		foreign.daemonSets[i].Namespace = "tenant"
	}
	for i := range foreign.pods {
		foreign.pods[i].Namespace = "tenant"
	}
	if stdout, stderr, exit := cloudblock(t, foreign.write(t), "volumes"); exit != 1 || !strings.Contains(stderr, "no DaemonSet of cloudblock-csi in the namespace cloudblock-local") {
		t.Errorf("with the label in another namespace it exits with %d and prints %q, %q", exit, stdout, stderr)
	}
}

// TestKubectlCloudblockListsTheVolumesOfAllNodes: a node that does not answer hides no other.
func TestKubectlCloudblockListsTheVolumesOfAllNodes(t *testing.T) {
	s := newState(t, render(t, filepath.Join(deploy, "overlays", "local")))
	const id = "node-1/0123456789abcdef0123456789abcdef"
	s.volumes["cloudblock-node-node-1"] = [2]string{"ID  CLAIM\n" + id + "  shop/data\n", `[{"id": "` + id + `", "size": 1073741824}]` + "\n"}
	s.volumes["cloudblock-node-node-2"] = [2]string{"ID  CLAIM\n", "[]\n"}
	type node struct {
		Node    string
		Volumes []struct {
			ID   string
			Size int64
		}
	}
	list := func(dir string) (nodes []node, stderr string, exit int) {
		stdout, stderr, exit := cloudblock(t, dir, "volumes", "--output=json", "--context=other")
		if err := json.Unmarshal([]byte(stdout), &nodes); err != nil {
			t.Fatalf("%q: %v", stdout, err)
		}
		return nodes, stderr, exit
	}
	nodes, _, exit := list(s.write(t))
	if exit != 0 || len(nodes) != 2 || nodes[0].Node != "node-1" || len(nodes[0].Volumes) != 1 || nodes[0].Volumes[0].ID != id || len(nodes[1].Volumes) != 0 {
		t.Errorf("it exits with %d and lists %+v", exit, nodes)
	}
	if stdout, _, exit := cloudblock(t, s.write(t), "volumes"); exit != 0 || !strings.Contains(stdout, "node node-1\n  ID") || !strings.Contains(stdout, id) {
		t.Errorf("the table exits with %d:\n%s", exit, stdout)
	}
	delete(s.volumes, "cloudblock-node-node-1")
	nodes, stderr, exit := list(s.write(t))
	if exit != 1 || len(nodes) != 1 || nodes[0].Node != "node-2" || !strings.Contains(stderr, "node-1: error: unable to upgrade connection") {
		t.Errorf("without an answer of node-1 it exits with %d, lists %+v and says %q", exit, nodes, stderr)
	}
	if _, stderr, exit := cloudblock(t, newState(t, render(t, filepath.Join(deploy, "overlays", "linode"))).write(t), "volumes"); exit != 1 || !strings.Contains(stderr, "local volumes") {
		t.Errorf("on a cloud it exits with %d and says %q", exit, stderr)
	}
}

// TestKubectlCloudblockIsPortableAndReads: the shells of Debian and of busybox parse the plugin, and no command of it changes a
// cluster.
func TestKubectlCloudblockIsPortableAndReads(t *testing.T) {
	script := filepath.Join(deploy, "kubectl-cloudblock")
	shells := 0
	for _, shell := range [][]string{{"dash", "-n"}, {"busybox", "sh", "-n"}, {"sh", "-n"}} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			continue
		}
		shells++
		if out, err := exec.CommandContext(t.Context(), shell[0], append(shell[1:], script)...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", shell, err, out)
		}
	}
	text, err := os.ReadFile(script)
	if err != nil || shells == 0 {
		t.Fatal(err, shells)
	}
	for _, verb := range []string{"apply", "delete", "create", "patch", "annotate", "label", "scale", "edit", "replace"} {
		if strings.Contains(string(text), "kube "+verb) || strings.Contains(string(text), "kubectl $flags "+verb) {
			t.Errorf("the plugin changes the cluster: kube %s", verb)
		}
	}
}
