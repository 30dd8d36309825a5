package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// nameImages writes the component that `make images` writes into the folder images.
func nameImages(t *testing.T, dir string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../../build/names.sh", "component", filepath.Join(dir, "images"))
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("names.sh component: %v\n%s", err, out)
	}
}

// named writes an overlay over a cloud's with the component that `make images` writes, and returns its folder.
func named(t *testing.T, cloud string, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	nameImages(t, dir, env...)
	overlay := relative(t, filepath.Join(dir, "overlay"), filepath.Join(deploy, "overlays", cloud))
	text := "resources: [" + overlay + "]\ncomponents: [../images]\n"
	must(t, os.Mkdir(filepath.Join(dir, "overlay"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "overlay", "kustomization.yaml"), []byte(text), 0o600))
	return filepath.Join(dir, "overlay")
}

// An overlay of an operator runs the images of one registry and one build, and leaves the sidecars alone.
func TestComponentNamesEveryImageOfTheDriver(t *testing.T) {
	const registry = "registry.example.com:5000/storage/csi"
	for _, cloud := range overlays(t) {
		ours := 0
		stock := parse(t, render(t, filepath.Join(deploy, "overlays", cloud)))
		mine := parse(t, render(t, named(t, cloud, "REGISTRY="+registry, "TAG=v1.2.3-4-gabcdef0")))
		for name, pod := range mine.pods {
			for i, c := range pod.Containers {
				want := stock.pods[name].Containers[i].Image
				if program, is := strings.CutPrefix(want, "ghcr.io/cloudblock-csi/"); is {
					ours++
					want = registry + "/" + strings.TrimSuffix(program, ":unreleased") + ":v1.2.3-4-gabcdef0"
				}
				if c.Image != want || c.ImagePullPolicy != corev1.PullIfNotPresent {
					t.Errorf("%s, %s, container %s has %s (%s), want %s", cloud, name, c.Name, c.Image, c.ImagePullPolicy, want)
				}
			}
		}
		if ours < 2 {
			t.Errorf("%s runs %d images of the driver, want both", cloud, ours)
		}
	}
}

// A name that stands for two builds stays in no registry: a node that has the older one never pulls again.
func TestNamesThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		command string
		env     []string
		ok      bool
	}{
		"a release":                      {"check-push", []string{"TAG=v1.2.3"}, true},
		"a commit":                       {"check-push", []string{"TAG=", "VERSION=v1.2.3-4-gabcdef0"}, true},
		"a commit and what was edited":   {"check-push", []string{"TAG=", "VERSION=v1.2.3-4-gabcdef0-dirty"}, false},
		"the tag that is in the tree":    {"check-push", []string{"TAG=unreleased"}, false},
		"a tag that moves":               {"check-push", []string{"TAG=latest"}, false},
		"a version without a repository": {"check-push", []string{"TAG=", "VERSION=unknown"}, false},
		"a tag with a slash":             {"image", []string{"TAG=a/b"}, false},
		"a registry with a scheme":       {"image", []string{"REGISTRY=https://registry.example.com/a", "TAG=v1"}, false},
		"a registry with a port":         {"image", []string{"REGISTRY=registry.example.com:5000/a", "TAG=v1"}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "../../../build/names.sh", tc.command, "node")
			cmd.Env = append(os.Environ(), tc.env...)
			out, err := cmd.CombinedOutput()
			if (err == nil) != tc.ok {
				t.Errorf("names.sh %s with %v = %v, want success: %v\n%s", tc.command, tc.env, err, tc.ok, out)
			}
		})
	}
}

// The workflow of a release takes the owner of the repository as GitHub spells it, and the names of images have no capitals.
func TestARegistryOfAnOwnerWithCapitals(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "../../../build/names.sh", "image", "node")
	cmd.Env = append(os.Environ(), "REGISTRY=ghcr.io/SomeOrg", "TAG=v1.2.3")
	const want = "ghcr.io/someorg/node:v1.2.3\n"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("names.sh = %q, %v, want %q", out, err, want)
	}
}
