// Package pin_test runs build/pin.sh against a registry of its own.
package pin_test

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push puts a new image into the registry and returns its digest.
func push(t *testing.T, image string) string {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(16, 1, 2)
	if err == nil {
		err = remote.WriteIndex(ref, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

const header = "kind: Component\nimages:\n"

// entry is an image of a kustomization.
func entry(name, newName, tag, digest string) string {
	text := "- name: " + name + "\n"
	if newName != "" {
		text += "  newName: " + newName + "\n"
	}
	text += "  newTag: " + tag + "\n"
	if digest != "" {
		text += "  digest: " + digest + "\n"
	}
	return text
}

func TestPinWritesTheDigestsOfTheRegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ours, sidecar := push(t, host+"/mine/node:v1"), push(t, host+"/sidecar:v1.2.3")
	dir := t.TempDir()
	component, sidecars := filepath.Join(dir, "component.yaml"), filepath.Join(dir, "sidecars.yaml")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pin := func() error {
		out, err := exec.CommandContext(t.Context(), "../../../../build/pin.sh", component, sidecars).CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	const name, patches = "ghcr.io/cloudblock-csi/node", "patches:\n- target: {kind: ServiceAccount}\n"
	write(sidecars, header+entry(name, "", "unreleased", "")+entry(host+"/sidecar", "", "v1.2.3", ""))
	write(component, header+entry(name, host+"/mine/node", `"v1"`, "")+patches)
	want := header + entry(host+"/sidecar", "", "v1.2.3", sidecar) + entry(name, host+"/mine/node", `"v1"`, ours) + patches
	for range 2 { // the second time it replaces its own
		if err := pin(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(component); err != nil || string(got) != want {
			t.Errorf("pin.sh wrote %q, %v, want %q", got, err, want)
		}
	}
	write(sidecars, header+entry(host+"/nothing", "", "v1.0.0", ""))
	if err := pin(); err == nil {
		t.Error("pin.sh succeeds for an image that the registry does not have")
	}
	if got, err := os.ReadFile(component); err != nil || string(got) != want {
		t.Errorf("pin.sh failed and left %q, %v", got, err)
	}
}
