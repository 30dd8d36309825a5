package charts_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestNotes: the notes have the commands for this release, and the namespace, claim and pod of deploy/examples.
func TestNotes(t *testing.T) {
	for _, cloud := range clouds(t) {
		in := clusterOf(cloud)
		in.namespace = "storage"
		notes := notesOf(t, in, values{"cloud": cloud})
		want := []string{"label namespace storage pod-security", "-n storage rollout status daemonset/cloudblock-node"}
		if cloud != "local" {
			want = append(want, "-n storage create secret generic "+cloud+" ", "deployment/cloudblock-controller")
		}
		for _, part := range want {
			if !strings.Contains(notes, part) {
				t.Errorf("%s: the notes lack %q:\n%s", cloud, part, notes)
			}
		}
		examples := []string{"namespace.yaml", cloud + ".yaml"}
		if cloud == "local" {
			examples = []string{"namespace.yaml", "pvc.yaml", "pod.yaml"}
		}
		var documents []string
		for _, file := range examples {
			documents = append(documents, split(read(t, filepath.Join(deploy, "examples", file)))...)
		}
		_, rest, _ := strings.Cut(notes, "\nkubectl apply -f - <<EOF\n")
		manifest, _, ended := strings.Cut(rest, "\nEOF\n")
		got, example := parse(t, split(manifest)), parse(t, documents)
		if !ended || len(got) != 3 || !reflect.DeepEqual(got, example) {
			t.Errorf("%s: the notes apply %v, want deploy/examples: %v", cloud, got, example)
		}
	}
}

// TestNotesFollowTheValues: a vendor's secret, a class of the operator's, and no claim without a class.
func TestNotesFollowTheValues(t *testing.T) {
	tests := map[string]struct {
		values  values
		has     string
		without string
	}{
		"a vendor's secret": {
			values{"cloud": "yandex", "vendor": "yandex.csi.flant.com"},
			"create secret generic csi-credentials \\\n    --from-file=serviceAccountJSON=FILE", "generic yandex",
		},
		"a secret by another name": {
			values{"cloud": "linode", "existingSecret": values{"name": "mine", "key": "api"}},
			"create secret generic mine \\\n    --from-file=api=FILE", "generic linode",
		},
		"an instance's account": {values{"cloud": "yandex", "yandex": values{"instanceAccount": true}}, "account of its instance", "create secret"},
		"a class of the operator's": {
			values{"cloud": "local", "storageClasses": []any{values{"name": "fast"}}}, "storageClassName: \"fast\"\n", "cloudblock-local\n",
		},
		"no class":     {values{"cloud": "local", "storageClasses": []any{}}, "rollout status", "PersistentVolumeClaim"},
		"no snapshots": {values{"cloud": "linode"}, "Snapshots are off: each is billed as a volume, so only snapshots.enabled=true makes them.", "this cloud has none"},
	}
	for name, tc := range tests {
		notes := notesOf(t, clusterOf("linode"), tc.values)
		if !strings.Contains(notes, tc.has) || strings.Contains(notes, tc.without) {
			t.Errorf("%s: want %q and not %q in\n%s", name, tc.has, tc.without, notes)
		}
	}
}

func notesOf(t *testing.T, in cluster, set values) string {
	t.Helper()
	files, err := in.files(set)
	must(t, err)
	return files["cloudblock-csi/templates/NOTES.txt"]
}
