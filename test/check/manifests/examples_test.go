package manifests_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestExamples: each names classes that an overlay brings, each overlay has an example, and all are in a namespace of their
// own, so that their removal takes nothing else away.
func TestExamples(t *testing.T) {
	var classes, snapshotClasses []string
	unused := map[string]bool{}
	for _, overlay := range overlays(t) {
		unused[overlay] = true
		for _, c := range parse(t, render(t, sets()[overlay])).classes {
			classes = append(classes, c.Name)
		}
		if slices.Contains(available(t, overlay), "snapshots") {
			for _, c := range parse(t, combination{overlay, []string{"snapshots"}}.render(t)).snapshotClasses {
				snapshotClasses = append(snapshotClasses, c.Metadata.Name)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(deploy, "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var secrets []string
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var head metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				t.Fatal(err)
			}
			if own := "cloudblock-examples"; head.Namespace != own && head.Kind != "StorageClass" && head.Kind+head.Name != "Namespace"+own {
				t.Errorf("%s: %s %s is in the namespace %q, want %s", file, head.Kind, head.Name, head.Namespace, own)
			}
			switch head.Kind {
			case "Namespace":
				read[corev1.Namespace](t, []byte(document))
			case "StorageClass": // before the claims that name it
				c := read[storagev1.StorageClass](t, []byte(document))
				classes = append(classes, c.Name)
				checkSecrets(t, file, c.Parameters, secrets)
			case "Secret":
				s := read[corev1.Secret](t, []byte(document))
				secrets = append(secrets, s.Namespace+"/"+s.Name)
			case "PersistentVolumeClaim":
				name := *read[corev1.PersistentVolumeClaim](t, []byte(document)).Spec.StorageClassName
				if !slices.Contains(classes, name) {
					t.Errorf("%s: no overlay has the class %s", file, name)
				}
				delete(unused, strings.Split(name, "-")[1])
			case "Pod":
				read[corev1.Pod](t, []byte(document))
			case "VolumeSnapshot":
				var s struct {
					Spec struct {
						Class string `json:"volumeSnapshotClassName"`
					}
				}
				if err := yaml.Unmarshal([]byte(document), &s); err != nil || !slices.Contains(snapshotClasses, s.Spec.Class) {
					t.Errorf("%s: no component has the class %s: %v", file, s.Spec.Class, err)
				}
			default:
				t.Errorf("%s: a kind that no rule knows: %s", file, head.Kind)
			}
		}
	}
	for overlay := range unused {
		t.Errorf("no example is for %s", overlay)
	}
}

// checkSecrets: the secrets that a class of an encrypted volume names, for staging and for growth, are in its file.
func checkSecrets(t *testing.T, file string, parameters map[string]string, secrets []string) {
	for _, use := range []string{"node-stage", "node-expand"} {
		name := parameters["csi.storage.k8s.io/"+use+"-secret-namespace"] + "/" + parameters["csi.storage.k8s.io/"+use+"-secret-name"]
		if parameters["luks"] == "true" && !slices.Contains(secrets, name) {
			t.Errorf("%s: the class names %s as its %s secret, and the file has %v", file, name, use, secrets)
		}
	}
}
