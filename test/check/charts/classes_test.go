package charts_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

const isDefault = "storageclass.kubernetes.io/is-default-class"

// TestOneSwitchForTheDefaultClass: the class that the value names is the default, and no other one, whatever the lists say.
func TestOneSwitchForTheDefaultClass(t *testing.T) {
	two := []any{values{"name": "one", "default": true}, values{"name": "two"}}
	tests := map[string]struct {
		values values
		want   []string
	}{
		"none by itself":            {values{"cloud": "linode"}, nil},
		"a class of the cloud":      {values{"cloud": "linode", "defaultStorageClass": "cloudblock-linode-xfs"}, []string{"cloudblock-linode-xfs"}},
		"the vendor's":              {values{"cloud": "linode", "vendor": "linodebs.csi.linode.com"}, []string{"linode-block-storage-retain"}},
		"instead of the vendor's":   {values{"cloud": "linode", "vendor": "linodebs.csi.linode.com", "defaultStorageClass": "cloudblock-linode"}, []string{"cloudblock-linode"}},
		"the operator's":            {values{"cloud": "local", "storageClasses": two}, []string{"one"}},
		"instead of the operator's": {values{"cloud": "local", "storageClasses": two, "defaultStorageClass": "two"}, []string{"two"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			o := clusterOf("linode").render(t, tc.values)
			for _, key := range slices.Sorted(maps.Keys(o)) {
				if o[key]["kind"] == "StorageClass" && at(o[key], "metadata", "annotations", isDefault) == "true" {
					got = append(got, at(o[key], "metadata", "name").(string))
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the default classes are %q, want %q", got, tc.want)
			}
		})
	}
}

// TestClasses: the fields of the operator's own classes.
func TestClasses(t *testing.T) {
	topologies := []any{values{"matchLabelExpressions": []any{values{"key": "topology.kubernetes.io/zone", "values": []any{"ru-central1-a"}}}}}
	metadata := values{"name": "own", "labels": values{"team": "one"}, "annotations": values{"note": "two"}}
	with := func(more values) []any {
		class := clone(metadata)
		maps.Copy(class, more)
		return []any{class}
	}
	in := cluster{namespace: "storage", version: newVersion, apis: []string{snapshotAPI}}
	o := in.render(t, values{
		"cloud":                   "yandex",
		"storageClasses":          with(values{"default": true, "allowedTopologies": topologies}),
		"snapshotClasses":         with(values{"default": true}),
		"volumeAttributesClasses": with(values{"parameters": values{"tags": "team=shop"}}),
	})
	marked := func(key string) values {
		all := clone(metadata)
		all["annotations"] = values{"note": "two", key: "true"}
		return all
	}
	want := objects{
		"StorageClass/own": {
			"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": marked(isDefault), "provisioner": "yandex.csi.cloudblock.io",
			"allowedTopologies": topologies, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
		},
		"VolumeSnapshotClass/own": {
			"apiVersion": snapshotAPI, "kind": "VolumeSnapshotClass", "metadata": marked("snapshot.storage.kubernetes.io/is-default-class"),
			"driver": "yandex.csi.cloudblock.io", "deletionPolicy": "Delete",
		},
		"VolumeAttributesClass/own": {
			"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": metadata,
			"driverName": "yandex.csi.cloudblock.io", "parameters": values{"tags": "team=shop"},
		},
	}
	for key, object := range want {
		if !reflect.DeepEqual(o[key], map[string]any(object)) {
			t.Errorf("%s is %v, want %v", key, o[key], object)
		}
	}
}
