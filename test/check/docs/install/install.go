// Package install finds how the documents install the driver, from a cluster without it to a pod with a volume, so that a
// test can do what they say.
package install

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/words"
)

// Way is what one page says.
type Way struct {
	Document string
	// Kustomization is the file in the reader's own folder, my-cluster. Helm needs none.
	Kustomization string
	// Commands are a shell's, in order.
	Commands []string
	// TakeOver is the command by which Helm takes over what is installed; only Move has one.
	TakeOver string
	// Upgrade is what docs/upgrade.md has for a newer chart; only Helm has one.
	Upgrade string
	// Removal is what docs/upgrade.md has for the end of the driver.
	Removal []string
}

// Clouds are those that can be installed: each has an overlay.
func Clouds(root string) ([]string, error) { return folders(root, "deploy/overlays", "") }

// Vendors are the clouds with a component that takes over from another driver.
func Vendors(root string) ([]string, error) { return folders(root, "deploy/components", "vendor-") }

// folders are those below dir whose names begin with prefix, without it and in order.
func folders(root, dir, prefix string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if name, is := strings.CutPrefix(entry.Name(), prefix); is && entry.IsDir() {
			names = append(names, name)
		}
	}
	if len(names) < 3 {
		return nil, fmt.Errorf("%s has only %q", dir, names)
	}
	return names, nil
}

// Kustomize returns the way with kubectl alone.
func Kustomize(root, cloud string) (Way, error) {
	w, err := find(root, cloud, "### With kustomize")
	w.Removal = []string{"kubectl delete -k my-cluster --ignore-not-found"}
	return w, err
}

// Helm returns the way with the chart.
func Helm(root, cloud string) (Way, error) {
	w, err := find(root, cloud, "### With Helm")
	namespace := "cloudblock-" + cloud
	w.Upgrade = "helm upgrade cloudblock bin/chart/*.tgz --namespace " + namespace + " --reset-then-reuse-values --wait"
	w.Removal = []string{"helm uninstall cloudblock --namespace " + namespace + " --wait", "kubectl delete namespace " + namespace}
	return w, err
}

// Move returns the way of Kustomize, behind which Helm takes over and then removes, as the chart's README says.
func Move(root, cloud string) (Way, error) {
	w, err := Kustomize(root, cloud)
	if err != nil {
		return w, err
	}
	helm, err := Helm(root, cloud)
	w.Removal = helm.Removal
	for _, c := range helm.Commands {
		if strings.HasPrefix(c, "helm install ") {
			w.TakeOver = c + takeOver
		}
	}
	return w, err
}

// takeOver is what the chart's README adds to the command that installs.
const takeOver = " --take-ownership --force-conflicts"

func find(root, cloud, heading string) (Way, error) {
	w, headings := Way{Document: "docs/install.md"}, []string{heading}
	if cloud == "local" {
		w.Document, headings = "docs/quickstart.md", append(headings, "## 4. A volume")
	}
	text, err := os.ReadFile(filepath.Join(root, w.Document))
	if err != nil {
		return w, err
	}
	for _, h := range headings {
		section, err := commands.Section(words.For(string(text), cloud), h)
		if err != nil {
			return w, fmt.Errorf("%s: %w", w.Document, err)
		}
		if w.Kustomization == "" {
			w.Kustomization = commands.Kustomization(section)
		}
		for _, block := range commands.Blocks(section) {
			if strings.HasPrefix(block, "apiVersion:") {
				continue
			}
			some, err := commands.Statements(block)
			if err != nil {
				return w, fmt.Errorf("%s: %w in:\n%s", w.Document, err, block)
			}
			w.Commands = append(w.Commands, some...)
		}
	}
	return w, nil
}

// Substitutions are all that differs between a page and its commands on the emulated account of `make cluster`.
var Substitutions = []struct{ Page, Here, Why string }{
	{"TOKEN-FILE", "token", "the emulator takes one token, also in place of a key"},
	{"-k my-cluster", "-k emulated", "my-cluster with the URL of the emulator, its certificate and its folder of links to disks"},
	{"helm install cloudblock ", "helm install cloudblock --values emulated.yaml ", "the same for the chart"},
}

// Here returns commands of a page as the emulated account needs them. Local has no account.
func Here(cloud string, page []string) []string {
	if cloud == "local" {
		return page
	}
	var pairs []string
	for _, s := range Substitutions {
		pairs = append(pairs, s.Page, s.Here)
	}
	all := make([]string, len(page))
	for i, c := range page {
		all[i] = strings.NewReplacer(pairs...).Replace(c)
	}
	return all
}

//go:embed emulated
var emulated embed.FS

// tag is that of the images that `make cluster` gives its nodes.
const tag = "unreleased"

// Folder makes what a reader has when the commands begin: deploy, their own folder, and bin with the names of the images and
// the chart.
func (w Way) Folder(ctx context.Context, root, cloud, dir string) error {
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		return err
	}
	if w.Kustomization != "" {
		if err := write(filepath.Join(dir, "my-cluster/kustomization.yaml"), w.Kustomization); err != nil {
			return err
		}
	}
	for _, err := range []error{
		write(filepath.Join(dir, "token"), "emulator-token"),
		copyEmulated("kustomization.yaml", cloud, filepath.Join(dir, "emulated/kustomization.yaml")),
		copyEmulated("values.yaml", cloud, filepath.Join(dir, "emulated.yaml")),
		run(ctx, root, "build/names.sh", "component", filepath.Join(dir, "bin/images")),
		run(ctx, root, "build/chart.sh", filepath.Join(dir, "bin/chart")),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// BlockMetadata changes the reader's folder for a cluster in which pods do not reach the metadata service.
func BlockMetadata(cloud, dir, settings string) error {
	file := filepath.Join(dir, "emulated/kustomization.yaml")
	if err := os.Rename(filepath.Dir(file), filepath.Join(dir, "reached")); err != nil {
		return err
	}
	return copyEmulated("blocked.yaml", cloud, file, "SETTINGS", settings)
}

// copyEmulated writes one of the embedded files in the words of a cloud.
func copyEmulated(name, cloud, to string, words ...string) error {
	text, err := emulated.ReadFile("emulated/" + name)
	if err != nil {
		return err
	}
	return write(to, strings.NewReplacer(append(words, "CLOUD", cloud)...).Replace(string(text)))
}

func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

// run runs one of the project's scripts for the images that the nodes have.
func run(ctx context.Context, root, script string, args ...string) error {
	path, err := filepath.Abs(filepath.Join(root, script))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "REGISTRY=", "TAG="+tag)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return nil
}
