package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// strict decodes into the API's types. A field that the API does not have is a mistake.
var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// TestRandomValues: what the schema takes is rendered, and is what the API has.
func TestRandomValues(t *testing.T) {
	versions := []string{oldVersion, "v1.31.5", "v1.32.1", "v1.34.2-vendor.1", "v1.35.0", newVersion, "v1.37.0"}
	changed := map[string]int{}
	for i, set := range randomSets(t, versions, snapshotAPI) {
		checkSet(t, i, set)
		for name := range set.values {
			changed[name]++
		}
	}
	properties := at(schema(t), "properties").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if changed[name] < setsInAll/20 {
			t.Errorf("only %d of the sets have the value %s", changed[name], name)
		}
	}
}

func checkSet(t *testing.T, i int, set randomSet) {
	t.Helper()
	for key, o := range parse(t, set.documents) {
		text, err := yaml.Marshal(o)
		must(t, err)
		if o["kind"] == "VolumeSnapshotClass" {
			checkSnapshotClass(t, text)
			continue
		}
		if o["apiVersion"] == monitoringAPI { // whose Go types are another project's
			continue
		}
		if _, _, err := strict.Decode(text, nil, nil); err != nil {
			shown, _ := yaml.Marshal(set.values)
			t.Errorf("set %d: %s: %v\nof the values\n%s", i, key, err, shown)
		}
	}
	smallest := 9
	if at(set.values, "controller", "enabled") == false || at(set.values, "node", "enabled") == false {
		smallest = 2 // of the node part alone a DaemonSet and the settings
	}
	if len(set.documents) < smallest {
		t.Errorf("set %d makes only %d objects", i, len(set.documents))
	}
}

// checkSnapshotClass decodes the kind whose Go type is in another module.
func checkSnapshotClass(t *testing.T, text []byte) {
	t.Helper()
	var class struct {
		APIVersion, Kind, Driver, DeletionPolicy string
		Metadata                                 struct {
			Name                string
			Labels, Annotations map[string]string
		}
		Parameters map[string]string
	}
	if err := yaml.UnmarshalStrict(text, &class); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	if class.APIVersion != snapshotAPI || class.Driver == "" || !slices.Contains([]string{"Delete", "Retain"}, class.DeletionPolicy) {
		t.Errorf("a VolumeSnapshotClass is %s", fmt.Sprint(class))
	}
}
