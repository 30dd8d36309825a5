package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEachGuideMigrates: a guide goes to this driver and back. TestMigration of test/run/e2e/cluster runs one.
func TestEachGuideMigrates(t *testing.T) {
	for _, cloud := range listed(t, Vendors) {
		m, err := Migrate(root, cloud)
		if err != nil {
			t.Fatal(err)
		}
		for begins, all := range map[string][]string{
			"kubectl apply -k move --dry-run=server": m.Before, "kubectl apply -k move": m.Move, "kubectl delete namespace cloudblock-" + cloud: m.Back,
		} {
			if !slices.Contains(all, begins) {
				t.Errorf("%s: there is no %q in:\n%s", m.Document, begins, strings.Join(all, "\n"))
			}
		}
		text, err := os.ReadFile(filepath.Join(root, m.Document))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leftOut {
			if cloud == "digitalocean" && !strings.Contains(string(text), " "+l.Page) {
				t.Errorf("%s: there is no %q to leave out", m.Document, l.Page)
			}
		}
	}
}

// TestTheMovesRender: what the commands apply has the images of `make cluster`, the account and the settings.
func TestTheMovesRender(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles kustomize; make verify runs it")
	}
	for _, cloud := range listed(t, Vendors) {
		m, err := Migrate(root, cloud)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := m.Folder(t.Context(), root, cloud, dir); err != nil {
			t.Fatal(err)
		}
		wants(t, program(t, "test/check/manifests", "kustomize", "build", filepath.Join(dir, "move")), []string{
			"image: ghcr.io/cloudblock-csi/controller:unreleased", "CLUSTER_ID: prod", "API_ENDPOINT: https://10.250.0.254:28443",
		})
	}
}
