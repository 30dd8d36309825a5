package docs_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/docs/commands"
)

// TestMigrationsCanGoBack: a guide stops the vendor's driver only after the images are there and the server has accepted the
// manifests, deletes nothing of the vendor's before ours runs, and starts again what it has stopped.
func TestMigrationsCanGoBack(t *testing.T) {
	for _, cloud := range []string{"digitalocean", "linode", "yandex"} {
		doc := "docs/migrate-" + cloud + ".md"
		text := read(t, filepath.Join(root, doc))
		at := 0
		for _, step := range []string{"make images ", "kubectl apply -k move --dry-run=server\n", "## The move\n", "--replicas=0", "kubectl apply -k move\n", " delete statefulset/", "## Going back\n"} {
			found := strings.Index(text[at:], step)
			if found < 0 {
				t.Fatalf("%s: there is no %q behind the step before it", doc, step)
			}
			at += found
		}
		stopped := map[string]bool{}
		for _, c := range section(t, doc, text, "## The move") {
			if c.Verb() == "scale" || c.Verb() == "patch" {
				stopped[object(c)] = true
			}
		}
		if len(stopped) != 2 {
			t.Errorf("%s: the move stops %v, want a StatefulSet and a DaemonSet", doc, stopped)
		}
		for _, c := range section(t, doc, text, "## Going back") {
			if !slices.Contains(c.Args, "--replicas=0") {
				delete(stopped, object(c))
			}
		}
		for what := range stopped {
			t.Errorf("%s: going back has no command for what the move did: kubectl %s", doc, what)
		}
	}
}

// section returns the commands below a heading.
func section(t *testing.T, doc, text, heading string) []commands.Command {
	t.Helper()
	part, err := commands.Section(text, heading)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	all, err := commands.In(doc, part)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// object is a command without its flags: the namespace, the verb and what it is done to.
func object(c commands.Command) string {
	return strings.Join(c.Args[:min(5, len(c.Args))], " ")
}
