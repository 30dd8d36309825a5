// Package charts_test renders the Helm chart and compares it with the overlays, which are the reference. It is a module of
// its own, so that Helm and the API's types stay out of the programs' dependencies.
package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	deploy   = "../../../deploy"
	chartDir = deploy + "/charts/cloudblock-csi"
	// oldVersion and newestVersion are Kubernetes without and with all that the chart decides by the version; newVersion lacks
	// what 1.37 brought.
	oldVersion, newVersion, newestVersion = "v1.30.0", "v1.36.0", "v1.37.0"

	snapshotAPI   = "snapshot.storage.k8s.io/v1"
	monitoringAPI = "monitoring.coreos.com/v1"
)

// clouds are those that the chart has a file for.
func clouds(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(chartDir, "clouds", "*.yaml"))
	if err != nil || len(found) < 4 {
		t.Fatalf("found the clouds %v: %v", found, err)
	}
	for i, file := range found {
		found[i] = strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return found
}

var loaded = sync.OnceValues(func() (chart.Charter, error) { return loader.Load(chartDir) })

// cluster is what the chart decides by.
type cluster struct {
	namespace string
	version   string
	apis      []string // beyond those of Kubernetes itself
}

// clusterOf is the cluster that the overlay of a cloud is compared in.
func clusterOf(cloud string) cluster {
	return cluster{namespace: "cloudblock-" + cloud, version: "v1.35.0"}
}

// clusterID is that of the installations that say nothing of it.
const clusterID = "test"

// identified are values with a cluster id, which the chart wants for a cloud.
func identified(values map[string]any) map[string]any {
	all := clone(values)
	if all["cloud"] == "local" {
		return all
	}
	settings, _ := all["settings"].(map[string]any)
	if settings == nil {
		settings = map[string]any{}
	}
	if _, set := settings["clusterId"]; !set {
		settings["clusterId"] = clusterID
	}
	all["settings"] = settings
	return all
}

// files renders each template of the chart, as `helm template` does.
func (c cluster) files(values map[string]any) (map[string]string, error) {
	ch, err := loaded()
	if err != nil {
		return nil, err
	}
	return c.filesOf(ch, values)
}

// filesOf is files of another chart.
func (c cluster) filesOf(ch chart.Charter, values map[string]any) (map[string]string, error) {
	version, err := common.ParseKubeVersion(c.version)
	if err != nil {
		return nil, err
	}
	capabilities := &common.Capabilities{KubeVersion: *version, APIVersions: slices.Concat(common.DefaultVersionSet, common.VersionSet(c.apis))}
	options := common.ReleaseOptions{Name: "cloudblock", Namespace: c.namespace, IsInstall: true, Revision: 1}
	// Rendering changes the values.
	all, err := util.ToRenderValues(ch, identified(values), options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(ch, all)
}

func clone(values map[string]any) map[string]any {
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil
	}
	copied := map[string]any{}
	if yaml.Unmarshal(text, &copied) != nil {
		return nil
	}
	return copied
}

// documents renders the objects of the chart.
func (c cluster) documents(values map[string]any) ([]string, error) {
	files, err := c.files(values)
	if err != nil {
		return nil, err
	}
	return documentsOf(files), nil
}

// documentsOf are the objects in rendered files.
func documentsOf(files map[string]string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			found = append(found, split(files[name])...)
		}
	}
	return found
}

// split returns the documents that are not empty.
func split(text string) []string {
	var found []string
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if strings.TrimSpace(document) != "" {
			found = append(found, document)
		}
	}
	return found
}

// objects are manifests by kind and name.
type objects map[string]map[string]any

// render returns the objects of a release, without Helm's labels. What `helm test` makes is no part of it.
func (c cluster) render(t *testing.T, values map[string]any) objects {
	t.Helper()
	documents, err := c.documents(values)
	must(t, err)
	found := parse(t, documents)
	for key, o := range found {
		metadata, _ := o["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"} {
			if value, _ := labels[label].(string); value == "" {
				t.Errorf("%s has no label %s", key, label)
			}
			delete(labels, label)
		}
		if len(labels) == 0 {
			delete(metadata, "labels")
		}
		if at(metadata, "annotations", "helm.sh/hook") != nil {
			delete(found, key)
		}
	}
	return found
}

func parse(t *testing.T, documents []string) objects {
	t.Helper()
	found := objects{}
	for _, document := range documents {
		o := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		metadata, _ := o["metadata"].(map[string]any)
		key := fmt.Sprintf("%v/%v", o["kind"], metadata["name"])
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		found[key] = o
	}
	return found
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}
