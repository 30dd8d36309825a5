package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

type values = map[string]any

// TestDefaultsAreTheOverlays: with no more than the cloud and its cluster id, the chart is what `kubectl apply -k` applies.
func TestDefaultsAreTheOverlays(t *testing.T) {
	for _, cloud := range clouds(t) {
		t.Run(cloud, func(t *testing.T) {
			want := parse(t, split(read(t, filepath.Join(deploy, "testdata", cloud+".yaml"))))
			if cloud != "local" {
				want = operatorsOverlay(t, cloud, "", nil)
			}
			if len(want) < 15 {
				t.Fatalf("the overlay has only %d objects", len(want))
			}
			compare(t, want, clusterOf(cloud).render(t, values{"cloud": cloud}))
		})
	}
}

// TestValuesAreTheComponents: each value that stands for a component changes the same as the component.
func TestValuesAreTheComponents(t *testing.T) {
	for name, tc := range components(t) {
		for _, cloud := range tc.clouds {
			t.Run(name+"/"+cloud, func(t *testing.T) {
				settings := "LOG_LEVEL=debug"
				set := values{"cloud": cloud, "settings": values{"logLevel": "debug"}}
				for key, value := range tc.values {
					set[key] = value
				}
				if slices.Contains(tc.components, "kubelet-dir") {
					settings += ", KUBELET_DIR=" + otherKubelet
				}
				in := clusterOf(cloud)
				in.apis = []string{monitoringAPI} // without which the chart has less than the component `monitoring`
				if tc.version != "" {
					in.version = tc.version
				}
				compare(t, operatorsOverlay(t, cloud, settings, tc.components), in.render(t, set))
			})
		}
	}
}

// partOfOthers are components that operators never add by themselves.
var partOfOthers = []string{"images", "driver-name", "node-bound", "name", "sidecar", "programs"}

// TestEveryComponentIsAValue: what operators can switch on in an overlay, they can in the chart.
func TestEveryComponentIsAValue(t *testing.T) {
	var compared []string
	for _, tc := range components(t) {
		for _, component := range tc.components {
			compared = append(compared, filepath.Base(component))
		}
	}
	err := filepath.WalkDir(deploy, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "kustomization.yaml" || !strings.Contains(read(t, path), "kind: Component") {
			return err
		}
		name := filepath.Base(filepath.Dir(path))
		if !slices.Contains(partOfOthers, name) && !slices.Contains(compared, name) {
			t.Errorf("no value of the chart is compared with the component %s", path)
		}
		return nil
	})
	must(t, err)
}

// component is a value that stands for components.
type component struct {
	clouds     []string
	components []string // below the overlay or below deploy/components
	values     values
	version    string
}

func components(t *testing.T) map[string]component {
	t.Helper()
	snapshots := values{"enabled": true}
	return map[string]component{
		"snapshots":           {withSnapshots(t), []string{"snapshots"}, values{"snapshots": snapshots}, ""},
		"vendor-digitalocean": {[]string{"digitalocean"}, []string{"vendor-digitalocean"}, values{"vendor": "dobs.csi.digitalocean.com"}, ""},
		"vendor-digitalocean with snapshots": {
			[]string{"digitalocean"},
			[]string{"snapshots", "vendor-digitalocean", "vendor-digitalocean/snapshots"},
			values{"vendor": "dobs.csi.digitalocean.com", "snapshots": snapshots}, "",
		},
		"vendor-linode": {[]string{"linode"}, []string{"vendor-linode"}, values{"vendor": "linodebs.csi.linode.com"}, ""},
		"vendor-linode with snapshots": {
			[]string{"linode"},
			[]string{"vendor-linode", "snapshots"},
			values{"vendor": "linodebs.csi.linode.com", "snapshots": snapshots}, "",
		},
		"vendor-yandex": {[]string{"yandex"}, []string{"vendor-yandex"}, values{"vendor": "yandex.csi.flant.com"}, ""},
		"vendor-yandex with snapshots": {
			[]string{"yandex"},
			[]string{"snapshots", "vendor-yandex"},
			values{"vendor": "yandex.csi.flant.com", "snapshots": snapshots}, "",
		},
		"instance-account": {[]string{"yandex"}, []string{"instance-account"}, values{"yandex": values{"instanceAccount": true}}, ""},
		"instance-account under the vendor's name": {
			[]string{"yandex"},
			[]string{"vendor-yandex", "instance-account"},
			values{"vendor": "yandex.csi.flant.com", "yandex": values{"instanceAccount": true}}, "",
		},
		"host-network": {attaching(t), []string{"host-network"}, values{"hostNetwork": true}, ""},
		"selinux":      {clouds(t), []string{"selinux"}, values{"selinux": true}, ""},
		"io-limits":    {clouds(t), []string{"io-limits"}, values{"ioLimits": true}, ""},
		"kubelet-dir":  {clouds(t), []string{"kubelet-dir"}, values{"kubeletDir": otherKubelet}, ""},
		"pull-secrets": {clouds(t), []string{"pull-secrets"}, values{"imagePullSecrets": []any{values{"name": "registry"}}}, ""},
		"unbound":      {[]string{"local"}, []string{"unbound"}, values{"local": values{"nodeBound": false}}, ""},
		// Tokens name their node from 1.32 on.
		"unbound on 1.31":  {[]string{"local"}, []string{"unbound"}, nil, "v1.31.9-vendor.1"},
		"bound on 1.32":    {[]string{"local"}, nil, nil, "v1.32.0-vendor.1"},
		"monitoring":       {clouds(t), []string{"monitoring"}, values{"monitoring": values{"enabled": true}}, ""},
		"node-allocatable": {attaching(t), []string{"node-allocatable"}, nil, newVersion},
		"driver-required":  {attaching(t), []string{"node-allocatable", "driver-required"}, nil, newestVersion},
		"local on 1.37":    {[]string{"local"}, nil, nil, newestVersion},
		"all of a cloud": {
			[]string{"digitalocean"},
			[]string{"snapshots", "vendor-digitalocean", "vendor-digitalocean/snapshots", "host-network", "selinux", "io-limits", "kubelet-dir", "pull-secrets", "monitoring"},
			values{
				"vendor": "dobs.csi.digitalocean.com", "snapshots": snapshots, "hostNetwork": true, "selinux": true, "kubeletDir": otherKubelet,
				"monitoring": values{"enabled": true}, "ioLimits": true,
				"imagePullSecrets": []any{values{"name": "registry"}},
			}, "",
		},
		"all of local": {
			[]string{"local"},
			[]string{"snapshots", "source-node", "changed-blocks", "selinux", "io-limits", "kubelet-dir", "pull-secrets"},
			values{
				"local": values{"sourceNode": true, "changedBlocks": true}, "snapshots": snapshots, "selinux": true, "ioLimits": true, "kubeletDir": otherKubelet,
				"imagePullSecrets": []any{values{"name": "registry"}},
			}, newVersion,
		},
		"changed-blocks": {[]string{"local"}, []string{"changed-blocks"}, values{"local": values{"changedBlocks": true}}, ""},
		"lvm":            {[]string{"local"}, []string{"lvm"}, values{"local": values{"lvm": true}}, ""},
		"source-node": {
			[]string{"local"},
			[]string{"snapshots", "source-node"},
			values{"local": values{"sourceNode": true}, "snapshots": snapshots}, newVersion,
		},
	}
}

const otherKubelet = "/var/lib/k0s/kubelet"

// operatorsOverlay renders an overlay with components and settings, and of a cloud with a cluster id, as docs/customize.md has it.
func operatorsOverlay(t *testing.T, cloud, settings string, components []string) objects {
	t.Helper()
	if cloud != "local" {
		settings = strings.Trim("CLUSTER_ID="+clusterID+", "+settings, ", ")
	}
	dir := t.TempDir()
	from := func(parts ...string) string {
		absolute, err := filepath.Abs(filepath.Join(append([]string{deploy}, parts...)...))
		must(t, err)
		relative, err := filepath.Rel(dir, absolute)
		must(t, err)
		return relative
	}
	// Without the hash the ConfigMap has the chart's name; the chart restarts pods by an annotation.
	text := fmt.Sprintf("kind: Kustomization\nresources: [%s]\ngeneratorOptions: {disableNameSuffixHash: true}\nconfigMapGenerator:\n"+
		"- name: cloudblock-settings\n  namespace: cloudblock-%s\n  literals: [%s]\ncomponents:\n", from("overlays", cloud), cloud, settings)
	for _, component := range components {
		folder := from("components", component)
		if exists(filepath.Join(deploy, "overlays", cloud, component)) {
			folder = from("overlays", cloud, component)
		}
		text += "- " + folder + "\n"
	}
	if len(components) == 0 {
		text = strings.TrimSuffix(text, "components:\n")
	}
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	out, err := resources.AsYaml()
	must(t, err)
	return parse(t, split(string(out)))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// compare reports each field in which the chart's objects differ from the overlay's.
func compare(t *testing.T, overlay, chart objects) {
	t.Helper()
	for key, want := range overlay {
		if strings.HasPrefix(key, "Namespace/") { // Helm's --create-namespace
			continue
		}
		if chart[key] == nil {
			t.Errorf("the chart has no %s", key)
			continue
		}
		normalize(want)
		normalize(chart[key])
		for _, difference := range differences("", want, chart[key]) {
			t.Errorf("%s %s", key, difference)
		}
	}
	for key := range chart {
		if overlay[key] == nil {
			t.Errorf("the overlay has no %s", key)
		}
	}
}

// normalize writes out what the API server would, and orders lists whose order means nothing.
func normalize(o map[string]any) {
	if o["kind"] == "StorageClass" {
		usual := map[string]any{"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
		for field, value := range usual {
			if o[field] == nil {
				o[field] = value
			}
		}
	}
	spec, _ := o["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	if template == nil {
		return
	}
	metadata, _ := template["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	delete(annotations, "checksum/settings")
	pod, _ := template["spec"].(map[string]any)
	for _, list := range []string{"containers", "volumes"} {
		items, _ := pod[list].([]any)
		slices.SortFunc(items, func(a, b any) int {
			return strings.Compare(fmt.Sprint(a.(map[string]any)["name"]), fmt.Sprint(b.(map[string]any)["name"]))
		})
	}
}

// differences lists the fields below a path that two values differ in.
func differences(path string, want, got any) []string {
	var found []string
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for _, m := range []map[string]any{want, got} {
			for key := range m {
				keys[key] = true
			}
		}
		for key := range keys {
			found = append(found, differences(path+"."+key, want[key], got[key])...)
		}
		return found
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			break
		}
		for i := range want {
			found = append(found, differences(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])...)
		}
		return found
	}
	if !reflect.DeepEqual(want, got) {
		found = append(found, fmt.Sprintf("%s is %v, and %v in the overlay", path, got, want))
	}
	return found
}
