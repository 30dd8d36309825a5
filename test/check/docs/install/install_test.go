package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

const root = "../../../.."

// listed are the clouds of one of the two lists.
func listed(t *testing.T, list func(root string) ([]string, error)) []string {
	t.Helper()
	names, err := list(root)
	must(t, err)
	return names
}

// word is one that a reader replaces, such as TOKEN-FILE.
var word = regexp.MustCompile(`\b[A-Z]+-FILE\b|\bTAG\b|\bYOUR\b`)

// TestEachPageInstalls: what a page says is complete, and is what kustomize and Helm take. TestInstall of test/run/e2e/cluster
// runs it.
func TestEachPageInstalls(t *testing.T) {
	upgrade, err := os.ReadFile(filepath.Join(root, "docs/upgrade.md"))
	must(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "deploy/charts/cloudblock-csi/README.md"))
	must(t, err)
	if !strings.Contains(string(readme), takeOver+"\n") {
		t.Errorf("the README of the chart does not say %q", takeOver)
	}
	used := map[string]bool{}
	for _, cloud := range listed(t, Clouds) {
		kustomize, err := Kustomize(root, cloud)
		must(t, err)
		helm, err := Helm(root, cloud)
		must(t, err)
		if kustomize.Kustomization == "" || helm.Kustomization != "" {
			t.Errorf("%s: the kustomization is in the section of Helm, or missing", kustomize.Document)
		}
		for _, w := range []Way{kustomize, helm} {
			installs := slices.ContainsFunc(w.Commands, func(c string) bool {
				return strings.HasPrefix(c, "kubectl apply -k my-cluster") || strings.HasPrefix(c, "helm install ")
			})
			waits := slices.ContainsFunc(w.Commands, func(c string) bool {
				return strings.HasPrefix(c, "kubectl -n cloudblock-examples wait --for=condition=Ready pod/app --timeout=5m")
			})
			if !installs || !waits {
				t.Errorf("%s: the commands do not go from no driver to a pod with a volume:\n%s", w.Document, strings.Join(w.Commands, "\n"))
			}
			for _, c := range append(slices.Clone(w.Removal), w.Upgrade) {
				if cloud == "digitalocean" && c != "" && !strings.Contains(string(upgrade), "\n    "+c+"\n") {
					t.Errorf("docs/upgrade.md does not say: %s", c)
				}
			}
			for i, c := range Here(cloud, w.Commands) {
				if found := word.FindString(c); found != "" {
					t.Errorf("%s: %s has no substitution in: %s", w.Document, found, c)
				}
				for _, s := range Substitutions {
					used[s.Page] = used[s.Page] || cloud != "local" && strings.Contains(w.Commands[i], s.Page)
				}
			}
		}
		if cloud != "local" && len(helm.Commands) > 5 {
			t.Errorf("%s: %d commands with Helm, want at most 5", helm.Document, len(helm.Commands))
		}
	}
	for _, s := range Substitutions {
		if !used[s.Page] {
			t.Errorf("no page has %q, which is substituted", s.Page)
		}
	}
}

// TestTheFoldersRender: what the commands apply has the images of `make cluster`, the account and the settings.
func TestTheFoldersRender(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles kustomize and Helm; make verify runs it")
	}
	for _, cloud := range listed(t, Clouds) {
		t.Run(cloud, func(t *testing.T) {
			kustomize, err := Kustomize(root, cloud)
			must(t, err)
			dir := t.TempDir()
			must(t, kustomize.Folder(t.Context(), root, cloud, dir))
			wanted := []string{"image: ghcr.io/cloudblock-csi/controller:unreleased"}
			if cloud == "local" {
				wants(t, program(t, "test/check/manifests", "kustomize", "build", filepath.Join(dir, "my-cluster")), wanted)
			} else {
				wanted = append(wanted, "CLUSTER_ID: prod", "API_ENDPOINT: https://10.250.0.254:28443", "mountPath: /emulator/ca.pem", "path: /run/cluster/run/emulator/ca.pem")
				wants(t, program(t, "test/check/manifests", "kustomize", "build", filepath.Join(dir, "emulated")), wanted)
				must(t, BlockMetadata(cloud, dir, "REGION=here"))
				blocked := append(slices.Clone(wanted), "hostNetwork: true", "REGION: here")
				wants(t, program(t, "test/check/manifests", "kustomize", "build", filepath.Join(dir, "emulated")), blocked)
			}
			wants(t, chart(t, cloud, dir), wanted)
		})
	}
}

// TestHelmTakesTheCommands: each command of Helm in the documents exists, with its flags; with --help Helm looks at no more.
func TestHelmTakesTheCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles kustomize and Helm; make verify runs it")
	}
	all, err := commands.Helm(root)
	must(t, err)
	if len(all) < 10 {
		t.Errorf("found only %d commands", len(all))
	}
	for _, c := range all {
		cmd := exec.CommandContext(t.Context(), pinned(t, "test/check/charts", "helm"), append(c.Args, "--help")...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "\nFlags:\n") {
			t.Errorf("%s: helm %s: %v\n%s", c.Document, strings.Join(c.Args, " "), err, out)
		}
	}
}

// chart renders what the `helm install` of the page installs, in a folder that Folder has made.
func chart(t *testing.T, cloud, dir string) string {
	t.Helper()
	w, err := Helm(root, cloud)
	must(t, err)
	archives, err := filepath.Glob(filepath.Join(dir, "bin/chart/*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("bin/chart has %v, %v, want one archive", archives, err)
	}
	for _, c := range Here(cloud, w.Commands) {
		args, is := strings.CutPrefix(c, "helm install ")
		if !is {
			continue
		}
		args = strings.NewReplacer("bin/chart/*.tgz", archives[0], "emulated.yaml", filepath.Join(dir, "emulated.yaml")).Replace(args)
		return program(t, "test/check/charts", append([]string{"helm", "template", "--kube-version=v1.36.3", "--api-versions=snapshot.storage.k8s.io/v1"}, strings.Fields(args)...)...)
	}
	t.Fatalf("%s has no helm install", w.Document)
	return ""
}

// program runs a tool of one of the modules.
func program(t *testing.T, module string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), pinned(t, module, args[0]), args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// built has the tools by their names: `go tool` itself takes a second each time.
var built = map[string]string{}

// pinned returns the program of a tool, which the go.mod of a module pins.
func pinned(t *testing.T, module, name string) string {
	t.Helper()
	if built[name] == "" {
		cmd := exec.CommandContext(t.Context(), "go", "tool", "-n", name)
		cmd.Dir = filepath.Join(root, module)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("build %s: %v", name, err)
		}
		built[name] = strings.TrimSpace(string(out))
	}
	return built[name]
}

func wants(t *testing.T, rendered string, all []string) {
	t.Helper()
	rendered = strings.ReplaceAll(rendered, `"`, "")
	for _, text := range all {
		if !strings.Contains(rendered, text) {
			t.Errorf("what is installed has no %q", text)
		}
	}
}
