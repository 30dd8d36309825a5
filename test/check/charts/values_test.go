package charts_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestWrongValues: a value that the chart would ignore, or that a program or the API would refuse later, is refused at once.
func TestWrongValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 63)
	tests := map[string]struct {
		values values
		want   string
	}{
		"no cloud":                        {values{}, "at '/cloud': value must be one of '" + strings.Join(clouds(t), "', '") + "'"},
		"no cluster id":                   {values{"cloud": "yandex", "settings": values{"clusterId": ""}}, "settings.clusterId is required: a name that no other cluster"},
		"an unknown cloud":                {values{"cloud": "aws"}, "/cloud"},
		"an unknown value":                {values{"cloud": "linode", "clusterID": "a"}, "additional properties 'clusterID' not allowed"},
		"a misspelt setting":              {values{"cloud": "linode", "settings": values{"clusterID": "a"}}, "additional properties 'clusterID' not allowed"},
		"the token as a value":            {values{"cloud": "linode", "token": "secret"}, "additional properties 'token' not allowed"},
		"a driver name of no vendor":      {values{"cloud": "linode", "vendor": "linode"}, "vendor: on linode it is linodebs.csi.linode.com or empty, and this is \"linode\""},
		"the vendor of another cloud":     {values{"cloud": "linode", "vendor": "dobs.csi.digitalocean.com"}, "vendor: on linode it is linodebs.csi.linode.com"},
		"a vendor for local":              {values{"cloud": "local", "vendor": "linodebs.csi.linode.com"}, "vendor: local has no other driver"},
		"host network for local":          {values{"cloud": "local", "hostNetwork": true}, "/hostNetwork"},
		"a secret for local":              {values{"cloud": "local", "existingSecret": values{"name": "token"}}, "/existingSecret/name"},
		"an instance's account elsewhere": {values{"cloud": "linode", "yandex": values{"instanceAccount": true}}, "/yandex/instanceAccount"},
		"an account and a secret":         {values{"cloud": "yandex", "yandex": values{"instanceAccount": true}, "existingSecret": values{"name": "a"}}, "/existingSecret/name"},
		"a region for local":              {values{"cloud": "local", "settings": values{"region": "fra1"}}, "/settings/region"},
		"a label of local's nodes":        {values{"cloud": "local", "settings": values{"topologyKey": []any{"example.com/host=node"}}}, "/settings/topologyKey"},
		"a pool of local elsewhere":       {values{"cloud": "linode", "local": values{"morePools": []any{values{"name": "a", "dir": "/a"}}}}, "/local/morePools"},
		"policies of local elsewhere":     {values{"cloud": "yandex", "local": values{"sourceNode": true}}, "/local/sourceNode"},
		"changed blocks elsewhere":        {values{"cloud": "yandex", "local": values{"changedBlocks": true}}, "/local/changedBlocks"},
		"a folder of another cloud":       {values{"cloud": "linode", "settings": values{"yandexFolderId": "b1g"}}, "/settings/yandexFolderId"},
		"a Linode's setting elsewhere":    {values{"cloud": "yandex", "settings": values{"linodePersist": "auto"}}, "/settings/linodePersist"},
		"a level of no log":               {values{"cloud": "local", "settings": values{"logLevel": "trace"}}, "/settings/logLevel"},
		"a number in words":               {values{"cloud": "local", "settings": values{"maxVolumes": "ten"}}, "/settings/maxVolumes"},
		"a tag with a comma":              {values{"cloud": "linode", "settings": values{"tag": []any{"a=b,c=d"}}}, "/settings/tag/0"},
		"a relative folder":               {values{"cloud": "local", "kubeletDir": "var/lib/kubelet"}, "/kubeletDir"},
		"a folder with a slash behind":    {values{"cloud": "local", "local": values{"pool": "/data/"}}, "/local/pool"},
		"no replicas":                     {values{"cloud": "linode", "controller": values{"replicas": 0}}, "/controller/replicas"},
		"a short digest":                  {values{"cloud": "linode", "image": values{"node": values{"digest": digest}}}, "/image/node/digest"},
		"a tag in the repository":         {values{"cloud": "linode", "image": values{"node": values{"repository": "node:v1"}}}, "/image/node/repository"},
		"a pull policy of ours":           {values{"cloud": "linode", "image": values{"pullPolicy": "Sometimes"}}, "/image/pullPolicy"},
		"a pull secret without its key":   {values{"cloud": "linode", "imagePullSecrets": []any{"registry"}}, "/imagePullSecrets/0"},
		"the label of the selector":       {values{"cloud": "linode", "node": values{"podLabels": values{"app.kubernetes.io/name": "x"}}}, "/node/podLabels"},
		"a variable that sets a flag":     {values{"cloud": "linode", "node": values{"extraEnv": []any{values{"name": "CLOUDBLOCK_FLAG_REGION"}}}}, "/node/extraEnv/0"},
		"a resource that is none":         {values{"cloud": "linode", "node": values{"resources": values{"limit": values{}}}}, "/node/resources"},
		"an amount that is none":          {values{"cloud": "linode", "node": values{"resources": values{"limits": values{"memory": "1GB"}}}}, "/node/resources/limits/memory"},
		"an argument without dashes":      {values{"cloud": "linode", "sidecars": values{"resizer": values{"extraArgs": []any{"v=5"}}}}, "/sidecars/resizer/extraArgs/0"},
		"a port of the system":            {values{"cloud": "linode", "ports": values{"node": 80}}, "/ports/node"},
		"a class without a name":          {values{"cloud": "linode", "storageClasses": []any{values{"fsType": "ext4"}}}, "/storageClasses"},
		"a class with a provisioner":      {values{"cloud": "linode", "storageClasses": []any{values{"name": "a", "provisioner": "b"}}}, "/storageClasses"},
		"a filesystem that is not here":   {values{"cloud": "linode", "storageClasses": []any{values{"name": "a", "fsType": "ntfs"}}}, "/storageClasses"},
		"a policy that is none":           {values{"cloud": "yandex", "snapshotClasses": []any{values{"name": "a", "deletionPolicy": "Keep"}}}, "/snapshotClasses"},
		"a period that the API refuses":   {values{"cloud": "linode", "nodeAllocatableUpdatePeriodSeconds": 5}, "/nodeAllocatableUpdatePeriodSeconds"},
		"words for a requirement":         {values{"cloud": "local", "preventPodSchedulingIfMissing": "yes"}, "/preventPodSchedulingIfMissing"},
		"words for true":                  {values{"cloud": "local", "selinux": "yes"}, "/selinux"},
		"automatic in another word":       {values{"cloud": "local", "local": values{"nodeBound": "automatic"}}, "/local/nodeBound"},
		"a toleration with another word":  {values{"cloud": "local", "node": values{"tolerations": []any{values{"operator": "Is"}}}}, "/node/tolerations/0/operator"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := clusterOf("linode").documents(tc.values); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the chart answers %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// TestVersionsDecide: what the chart decides by the version and the APIs of the cluster.
func TestVersionsDecide(t *testing.T) {
	on := func(version string, apis ...string) cluster { return cluster{"cloudblock", version, apis} }
	period := func(o objects, driver string) any {
		spec, _ := o["CSIDriver/"+driver]["spec"].(map[string]any)
		return spec["nodeAllocatableUpdatePeriodSeconds"]
	}
	const linode = "linode.csi.cloudblock.io"
	required := func(o objects) any {
		spec, _ := o["CSIDriver/"+linode]["spec"].(map[string]any)
		return spec["preventPodSchedulingIfMissing"]
	}
	tests := map[string]struct {
		in     cluster
		values values
		check  func(o objects) any
		want   any
	}{
		"with a vendor's suffix too":           {on("v1.36.1-eks-1"), values{"cloud": "linode"}, func(o objects) any { return period(o, linode) }, 60.0},
		"before, when the operator says so":    {on("v1.34.0"), values{"cloud": "linode", "nodeAllocatableUpdatePeriodSeconds": 30}, func(o objects) any { return period(o, linode) }, 30.0},
		"never, when the operator says so":     {on("v1.36.0"), values{"cloud": "linode", "nodeAllocatableUpdatePeriodSeconds": 0}, func(o objects) any { return period(o, linode) }, nil},
		"unless the operator says so":          {on("v1.37.2"), values{"cloud": "linode", "preventPodSchedulingIfMissing": false}, required, nil},
		"before, too, when the operator does":  {on("v1.35.0"), values{"cloud": "linode", "preventPodSchedulingIfMissing": true}, required, true},
		"snapshots where the cluster has them": {on("v1.36.0", snapshotAPI), values{"cloud": "yandex"}, func(o objects) any { return o["VolumeSnapshotClass/cloudblock-yandex"] != nil }, true},
		"no snapshots that cost as much as volumes by themselves": {
			on("v1.36.0", snapshotAPI), values{"cloud": "linode"},
			func(o objects) any { return o["ClusterRole/cloudblock-snapshotter-linode"] != nil }, false,
		},
		"those when the operator says so": {
			on("v1.36.0"), values{"cloud": "linode", "snapshots": values{"enabled": true}},
			func(o objects) any { return o["ClusterRole/cloudblock-snapshotter-linode"] != nil }, true,
		},
		"no snapshots when the operator says so": {
			on("v1.36.0", snapshotAPI), values{"cloud": "yandex", "snapshots": values{"enabled": false}},
			func(o objects) any { return o["ClusterRole/cloudblock-snapshotter-yandex"] != nil }, false,
		},
		"bound before 1.32 when the operator says so": {
			on("v1.31.0"), values{"cloud": "local", "local": values{"nodeBound": true}},
			func(o objects) any { return o["ValidatingAdmissionPolicy/cloudblock-local-volumes"] != nil }, true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.check(tc.in.render(t, tc.values)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	refused := map[string]struct {
		in   cluster
		want string
	}{
		"source-node before 1.36":       {on("v1.35.0", snapshotAPI), "local.sourceNode needs Kubernetes 1.36, and this is v1.35.0"},
		"source-node without snapshots": {on("v1.36.0"), "local.sourceNode needs snapshots"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := tc.in.documents(values{"cloud": "local", "local": values{"sourceNode": true}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the chart answers %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// byOtherValues are the settings of the programs that the chart gives as arguments, from values with other names.
var byOtherValues = []string{"cgroup-dir", "cloud", "credentials-file", "driver-name", "endpoint", "http-endpoint", "kubelet-dir", "linode-snapshots", "local-pool"}

// TestSettings: each flag that a variable can set is a value of the chart, under its name, and reaches the ConfigMap.
func TestSettings(t *testing.T) {
	const given = "7"
	for _, flag := range driverSettings(t) {
		if slices.Contains(byOtherValues, flag) {
			continue
		}
		words := strings.Split(flag, "-")
		for i := range words[1:] {
			words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
		}
		name := strings.Join(words, "")
		cloud, value, want := "digitalocean", any(given), given
		switch name {
		case "yandexFolderId":
			cloud = "yandex"
		case "yandexMaxOperations":
			cloud, value, want = "yandex", 10000, "10000"
		case "linodePersist", "linodeKubernetesTags":
			cloud, value, want = "linode", true, "true"
		case "maxVolumes", "reservedAttachments":
			value = 7
		case "tag":
			value, want = []any{"a=b", "c=d"}, "a=b,c=d"
		case "topologyKey":
			value, want = []any{"example.com/region=region"}, "example.com/region=region"
		case "logLevel":
			value, want = "warn", "warn"
		case "logFormat":
			value, want = "console", "console"
		case "apiEndpoint", "metadataEndpoint":
			value, want = "https://example.com", "https://example.com"
		case "apiCaFile", "deviceDir":
			value, want = "/folder/name", "/folder/name"
		case "apiLimits":
			value, want = "10/1s,20/1m", "10/1s,20/1m"
		case "operationTimeout":
			value, want = "1h", "1h"
		}
		o := clusterOf(cloud).render(t, values{"cloud": cloud, "settings": values{name: value}})
		data, _ := o["ConfigMap/cloudblock-settings"]["data"].(map[string]any)
		expected := values{"CLUSTER_ID": clusterID}
		expected[strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))] = want
		if !reflect.DeepEqual(data, expected) {
			t.Errorf("settings.%s = %v makes %v, want %v", name, value, data, expected)
		}
	}
}

// TestSettingsRestartPods: a pod reads its settings at its start.
func TestSettingsRestartPods(t *testing.T) {
	checksum := func(cloud, workload string, set values) any {
		o := clusterOf(cloud).render(t, values{"cloud": cloud, "settings": set})
		annotations := at(o[workload], "spec", "template", "metadata", "annotations")
		return annotations.(map[string]any)["checksum/settings"]
	}
	for _, workload := range []string{"Deployment/cloudblock-controller", "DaemonSet/cloudblock-node"} {
		one, other := checksum("linode", workload, values{"region": "a"}), checksum("linode", workload, values{"region": "b"})
		if one == nil || one == other {
			t.Errorf("%s has the checksums %v and %v", workload, one, other)
		}
	}
}

// at returns what is below some keys.
func at(o map[string]any, keys ...string) any {
	var found any = o
	for _, key := range keys {
		m, _ := found.(map[string]any)
		found = m[key]
	}
	return found
}

// driverSettings are the flags of both programs that a variable can set.
func driverSettings(t *testing.T) []string {
	t.Helper()
	flags := map[string]bool{}
	for _, program := range []string{"./cmd/controller", "./cmd/node"} {
		cmd := exec.CommandContext(t.Context(), "go", "run", program, "--help")
		cmd.Dir = "../../.."
		help, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s --help: %v\n%s", program, err, help)
		}
		for _, flag := range regexp.MustCompile(`(?m)^  --([a-z-]+)`).FindAllStringSubmatch(string(help), -1) {
			flags[flag[1]] = true
		}
	}
	for _, flag := range []string{"node-id", "version"} {
		if !flags[flag] {
			t.Errorf("no program has the flag --%s, which has no variable", flag)
		}
		delete(flags, flag)
	}
	if len(flags) < 20 {
		t.Fatalf("found only the settings %v", flags)
	}
	return slices.Sorted(maps.Keys(flags))
}

// TestTheSchemaIsStrict: every object refuses what it does not know, except those that Kubernetes or the operator define.
func TestTheSchemaIsStrict(t *testing.T) {
	open := []string{"$defs.affinity", "$defs.containers", "$defs.extraEnv", "$defs.extraVolumes", "properties.global", "properties.monitoring.properties.from"}
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch node := node.(type) {
		case map[string]any:
			allowed := slices.ContainsFunc(open, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
			if node["type"] == "object" && node["additionalProperties"] == nil && !allowed {
				t.Errorf("%s takes any property", path)
			}
			if _, pattern := node["pattern"]; node["type"] == "string" && !pattern && node["examples"] == nil && !strings.Contains(path, "additionalProperties") && !allowed &&
				!strings.HasSuffix(path, "subPath") {
				t.Errorf("%s takes any string", path)
			}
			for _, key := range slices.Sorted(maps.Keys(node)) {
				if key != "examples" && key != "allOf" {
					walk(strings.TrimPrefix(path+"."+key, "."), node[key])
				}
			}
		case []any:
			for i, item := range node {
				walk(path+"."+strconv.Itoa(i), item)
			}
		}
	}
	walk("", schema(t))
}

func schema(t *testing.T) map[string]any {
	t.Helper()
	found := map[string]any{}
	must(t, json.Unmarshal([]byte(read(t, filepath.Join(chartDir, "values.schema.json"))), &found))
	return found
}
