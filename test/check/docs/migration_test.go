package docs_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/install"
	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/words"
)

// TestMigrationsCanGoBack: a guide stops the vendor's driver only after the images are there and the server has accepted the
// manifests, deletes nothing of the vendor's before ours runs, and starts again what it has stopped.
func TestMigrationsCanGoBack(t *testing.T) {
	clouds, err := install.Vendors(root)
	must(t, err)
	for _, cloud := range clouds {
		doc := "docs/migrate.md"
		page := read(t, filepath.Join(root, doc))
		if !slices.Contains(words.Clouds(page), cloud) {
			t.Errorf("%s is not for %s", doc, cloud)
		}
		text := words.For(page, cloud)
		at := 0
		for _, step := range []string{"make images ", "kubectl apply -k move --dry-run=server\n", "## The move\n", "--replicas=0", "kubectl apply -k move\n", " delete statefulset/", "## Going back\n", "kubectl delete namespace cloudblock-" + cloud + "\n"} {
			found := strings.Index(text[at:], step)
			if found < 0 {
				t.Fatalf("%s: there is no %q behind the step before it", doc, step)
			}
			at += found
		}
		began := map[string]any{"spec": map[string]any{"replicas": 1.0, "template": map[string]any{"spec": map[string]any{
			"hostNetwork": true, "nodeSelector": map[string]any{"kubernetes.io/os": "linux"}}}}}
		objects := map[string]map[string]any{}
		for _, c := range section(t, doc, text, "## The move") {
			if patch := patchOf(t, c); patch != nil {
				objects[object(c)] = merged(began, patch)
			}
		}
		if len(objects) != 2 {
			t.Errorf("%s: the move stops %v, want a StatefulSet and a DaemonSet", doc, slices.Collect(maps.Keys(objects)))
		}
		for what, is := range objects {
			if reflect.DeepEqual(is, began) {
				t.Errorf("%s: nothing is changed by kubectl %s", doc, what)
			}
		}
		for _, c := range section(t, doc, text, "## Going back") {
			if patch := patchOf(t, c); patch != nil && objects[object(c)] != nil {
				objects[object(c)] = merged(objects[object(c)], patch)
			}
		}
		for what, is := range objects {
			if !reflect.DeepEqual(is, began) {
				t.Errorf("%s: after the move and the way back kubectl %s has left %v, want %v", doc, what, is, began)
			}
		}
	}
}

// patchOf returns what a command changes in an object, or nil.
func patchOf(t *testing.T, c commands.Command) (patch map[string]any) {
	t.Helper()
	for i, arg := range c.Args {
		replicas, scales := strings.CutPrefix(arg, "--replicas=")
		text := `{"spec": {"replicas": ` + replicas + `}}`
		if arg == "-p" {
			text = c.Args[i+1]
		}
		if !scales && arg != "-p" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &patch); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
	return patch
}

// merged returns an object after a merge patch (RFC 7386).
func merged(object, patch map[string]any) map[string]any {
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	for key, value := range patch {
		inner, nested := value.(map[string]any)
		switch {
		case nested:
			old, _ := object[key].(map[string]any)
			object[key] = merged(old, inner)
		case value == nil:
			delete(object, key)
		default:
			object[key] = value
		}
	}
	return object
}

// section returns the commands below a heading.
func section(t *testing.T, doc, text, heading string) []commands.Command {
	t.Helper()
	part, err := commands.Section(text, heading)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	all, err := commands.In(doc, part)
	must(t, err)
	return all
}

// object is a command without its flags: the namespace, the verb and what it is done to.
func object(c commands.Command) string {
	return strings.Join(c.Args[:min(5, len(c.Args))], " ")
}
