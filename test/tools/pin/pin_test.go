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

func pin(t *testing.T, file string) error {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../../build/pin.sh", file).CombinedOutput()
	t.Logf("%s", out)
	return err
}

func TestPinWritesTheDigestsOfTheRegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	sidecar, mirrored := push(t, host+"/sidecar:v1.2.3"), push(t, host+"/mirror/other:v4.5.6")
	file := filepath.Join(t.TempDir(), "kustomization.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ours = "kind: Component\nimages:\n- name: ghcr.io/cloudblock-csi/node\n  newTag: unreleased\n"
	write(ours + "- name: " + host + "/sidecar\n  newTag: v1.2.3\n  digest: sha256:old\n" +
		"- name: registry.example.com/other\n  newName: " + host + "/mirror/other\n  newTag: v4.5.6\n")
	want := ours + "- name: " + host + "/sidecar\n  newTag: v1.2.3\n  digest: " + sidecar + "\n" +
		"- name: registry.example.com/other\n  newName: " + host + "/mirror/other\n  newTag: v4.5.6\n  digest: " + mirrored + "\n"
	for range 2 { // the second time it replaces its own
		if err := pin(t, file); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("pin.sh wrote %q, %v, want %q", got, err, want)
		}
	}
	lost := ours + "- name: " + host + "/nothing\n  newTag: v1.0.0\n"
	write(lost)
	if err := pin(t, file); err == nil {
		t.Error("pin.sh succeeds for an image that the registry does not have")
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != lost {
		t.Errorf("pin.sh failed and left %q, %v", got, err)
	}
}
