package charts_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryValueIsUsed: each value changes what the chart renders, for some cloud.
func TestEveryValueIsUsed(t *testing.T) {
	root := schema(t)
	g := generator{t: t, random: rand.New(rand.NewPCG(1, 2)), definitions: at(root, "$defs").(map[string]any)}
	all := clouds(t)
	in := cluster{namespace: "charts", version: newVersion, apis: []string{snapshotAPI, monitoringAPI}}
	// The sidecar for changed blocks has values that count only with it, the label of groups only with one.
	others := func(cloud string, path []string) values {
		set := values{"cloud": cloud, "monitoring": values{"enabled": true}}
		if slices.Contains(path, "nodeGroups") {
			set["nodeGroups"] = values{"label": "group", "groups": []any{values{"name": "one"}}}
		}
		if cloud == "local" && (slices.Contains(path, "snapshotMetadata") || slices.Contains(path, "blocks")) {
			set["local"] = values{"changedBlocks": true}
		}
		return set
	}
	usual := map[string][]string{} // what the others render without the value
	changes := func(path []string, property map[string]any) bool {
		for range 12 {
			value := g.value(property)
			for _, cloud := range all {
				set := others(cloud, path)
				key := fmt.Sprint(set)
				if usual[key] == nil {
					documents, err := in.documents(set)
					must(t, err)
					usual[key] = documents
				}
				put(set, path, value)
				if documents, err := in.documents(set); err == nil && !reflect.DeepEqual(documents, usual[key]) {
					return true
				}
			}
		}
		return false
	}
	leaves := 0
	g.leaves(nil, root, func(path []string, property map[string]any) {
		// Mounts are of volumes of the operator's: see TestExtras. global is Helm's. The image for volume groups: see TestVolumeGroups.
		if name := path[len(path)-1]; name == "extraVolumeMounts" || name == "global" || slices.Contains(path, "lvm") && path[0] == "image" {
			return
		}
		leaves++
		if !changes(path, property) {
			t.Errorf("the value %s changes nothing", strings.Join(path, "."))
		}
	})
	if leaves < 150 {
		t.Errorf("found only %d values", leaves)
	}
}

// leaves calls back with each property that has none of its own.
func (g generator) leaves(path []string, schema map[string]any, leaf func(path []string, property map[string]any)) {
	if reference, ok := schema["$ref"].(string); ok {
		schema = g.definitions[strings.TrimPrefix(reference, "#/$defs/")].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil || schema["examples"] != nil {
		leaf(path, schema)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) { // the values of the generator depend on the order
		g.leaves(append(slices.Clone(path), name), properties[name].(map[string]any), leaf)
	}
}

// put writes a value below some keys.
func put(set values, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		below, ok := set[key].(map[string]any)
		if !ok {
			below = values{}
			set[key] = below
		}
		set = below
	}
	set[path[len(path)-1]] = value
}

// TestFields: values reach the field that they are named after.
func TestFields(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	const controller, node = "Deployment/cloudblock-controller", "DaemonSet/cloudblock-node"
	tests := map[string]struct {
		values   values
		workload string
		pick     func(template map[string]any) any
		want     any
	}{
		"a mirror": {
			values{"image": values{"registry": "mirror.example:5000/csi", "tag": "v9"}}, node,
			func(p map[string]any) any { return container(p, "node")["image"] }, "mirror.example:5000/csi/node:v9",
		},
		"a digest": {
			values{"image": values{"tag": "v9", "controller": values{"digest": digest}}}, controller,
			func(p map[string]any) any { return container(p, "controller")["image"] }, "ghcr.io/cloudblock-csi/controller@" + digest,
		},
		"a sidecar's mirror": {
			values{"sidecars": values{"registry": "mirror.example/sig", "attacher": values{"tag": "v1"}}}, controller,
			func(p map[string]any) any { return container(p, "csi-attacher")["image"] }, "mirror.example/sig/csi-attacher:v1",
		},
		"a secret of another name": {
			values{"existingSecret": values{"name": "mine", "key": "api"}}, controller,
			func(p map[string]any) any {
				return at(at(p, "spec", "volumes").([]any)[0].(map[string]any), "secret")
			},
			values{"secretName": "mine", "defaultMode": 288.0, "items": []any{values{"key": "api", "path": "token"}}},
		},
		"amounts that are numbers": {
			values{"controller": values{"resources": values{"requests": values{"cpu": 0.5, "memory": 268435456}}}}, controller,
			func(p map[string]any) any { return at(container(p, "controller"), "resources", "requests") }, values{"cpu": 0.5, "memory": 268435456.0},
		},
		"one more label of nodes": {
			values{"node": values{"nodeSelector": values{"cloud": "linode"}}}, node,
			func(p map[string]any) any { return at(p, "spec", "nodeSelector") }, values{"cloud": "linode", "kubernetes.io/os": "linux"},
		},
		"other tolerations": {
			values{"node": values{"tolerations": []any{}}}, node,
			func(p map[string]any) any { return at(p, "spec", "tolerations") }, []any{},
		},
		"a port": {
			values{"ports": values{"livenessprobe": 19808}, "hostNetwork": true}, node,
			func(p map[string]any) any {
				c := container(p, "livenessprobe")
				return fmt.Sprint(c["args"], c["ports"], at(container(p, "node"), "livenessProbe", "httpGet"))
			},
			"[--csi-address=/csi/csi.sock --http-endpoint=127.0.0.1:19808 --probe-timeout=4s] [map[containerPort:19808 name:node-alive]] " +
				"map[host:127.0.0.1 path:/healthz port:19808]",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.values["cloud"] = "linode"
			o := clusterOf("linode").render(t, tc.values)
			if got := tc.pick(at(o[tc.workload], "spec", "template").(map[string]any)); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestNamesOfVolumes: whatever name a pool has, its volume has another name than those that each pod has.
func TestNamesOfVolumes(t *testing.T) {
	pools := []any{}
	for _, name := range []string{"locks", "dir", "plugin", "lvm", "registration", "cgroup"} {
		pools = append(pools, values{"name": name, "dir": "/mnt/" + name})
	}
	o := clusterOf("local").render(t, values{"cloud": "local", "ioLimits": true, "local": values{"lvm": true, "morePools": pools}})
	seen := map[any]bool{}
	for _, v := range at(o["DaemonSet/cloudblock-node"], "spec", "template", "spec", "volumes").([]any) {
		name := v.(map[string]any)["name"]
		if seen[name] {
			t.Errorf("two volumes have the name %v", name)
		}
		seen[name] = true
	}
	if len(seen) <= len(pools) {
		t.Errorf("the pod has only the volumes %v", seen)
	}
}

// TestMorePools: both programs of local have each pool in their variable, and its folder.
func TestMorePools(t *testing.T) {
	o := clusterOf("local").render(t, values{"cloud": "local", "local": values{"morePools": []any{values{"name": "fast", "dir": "/mnt/fast"}}}})
	template := at(o["DaemonSet/cloudblock-node"], "spec", "template").(map[string]any)
	for _, program := range []string{"node", "controller"} {
		c := container(template, program)
		if env := fmt.Sprint(c["env"]); !strings.Contains(env, "map[name:CLOUDBLOCK_FLAG_LOCAL_POOL value:/var/lib/cloudblock-csi/pool,fast=/mnt/fast]") {
			t.Errorf("%s has the variables %s", program, env)
		}
		if mounts := fmt.Sprint(c["volumeMounts"]); !strings.Contains(mounts, "map[mountPath:/mnt/fast mountPropagation:HostToContainer name:pool-fast]") {
			t.Errorf("%s has the mounts %s", program, mounts)
		}
	}
	if volumes := fmt.Sprint(at(template, "spec", "volumes")); !strings.Contains(volumes, "map[hostPath:map[path:/mnt/fast type:DirectoryOrCreate] name:pool-fast]") {
		t.Errorf("the volumes are %s", volumes)
	}
}

// TestVolumeGroups: a volume group is in the programs' variable, and no folder. Both programs have the image with LVM.
func TestVolumeGroups(t *testing.T) {
	pools := []any{values{"name": "group", "dir": "lvm:vg"}}
	digest := "sha256:" + strings.Repeat("ab", 32)
	o := clusterOf("local").render(t, values{
		"cloud": "local", "local": values{"lvm": true, "morePools": pools}, "image": values{"lvm": values{"repository": "mine", "digest": digest}},
	})
	template := at(o["DaemonSet/cloudblock-node"], "spec", "template").(map[string]any)
	for _, program := range []string{"node", "controller"} {
		if env := fmt.Sprint(container(template, program)["env"]); !strings.Contains(env, "/var/lib/cloudblock-csi/pool,group=lvm:vg]") {
			t.Errorf("%s has the variables %s", program, env)
		}
		if got, want := container(template, program)["image"], "ghcr.io/cloudblock-csi/mine@"+digest; got != want {
			t.Errorf("%s has the image %s, want %s", program, got, want)
		}
	}
	if text := fmt.Sprint(template); strings.Contains(text, "pool-group") {
		t.Errorf("the volume group is mounted: %s", text)
	}
}

// TestExtras: more variables, volumes and arguments reach the containers that they are for.
func TestExtras(t *testing.T) {
	extras := func(name string) values {
		return values{
			"extraEnv":          []any{values{"name": "EXTRA", "value": name}},
			"extraVolumes":      []any{values{"name": name, "emptyDir": values{}}},
			"extraVolumeMounts": []any{values{"name": name, "mountPath": "/" + name}},
			"podLabels":         values{"extra": name},
			"podAnnotations":    values{"extra": name},
		}
	}
	for _, cloud := range clouds(t) {
		o := clusterOf(cloud).render(t, values{
			"cloud": cloud, "controller": extras("one"), "node": extras("two"),
			"sidecars": values{"provisioner": values{"extraArgs": []any{"--v=5"}}},
		})
		for name, program := range map[string]string{"one": "controller", "two": "node"} {
			workload := "DaemonSet/cloudblock-node"
			if program == "controller" && cloud != "local" {
				workload = "Deployment/cloudblock-controller"
			}
			template := at(o[workload], "spec", "template").(map[string]any)
			c := container(template, program)
			text := fmt.Sprint(c["env"], c["volumeMounts"], at(template, "spec", "volumes"))
			for _, want := range []string{"map[name:EXTRA value:" + name + "]", "map[mountPath:/" + name + " name:" + name + "]", "map[emptyDir:map[] name:" + name + "]"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: the container %s lacks %s", cloud, program, want)
				}
			}
			if own := program == "node" || cloud != "local"; own && (at(template, "metadata", "labels", "extra") != name || at(template, "metadata", "annotations", "extra") != name) {
				t.Errorf("%s: the pods of %s have the metadata %v", cloud, program, template["metadata"])
			}
			if program == "controller" && !strings.HasSuffix(fmt.Sprint(container(template, "csi-provisioner")["args"]), " --v=5]") {
				t.Errorf("%s: csi-provisioner has the arguments %v", cloud, container(template, "csi-provisioner")["args"])
			}
		}
	}
}

// container returns a container of a pod template by its name.
func container(template map[string]any, name string) map[string]any {
	containers, _ := at(template, "spec", "containers").([]any)
	for _, c := range containers {
		if c, _ := c.(map[string]any); c["name"] == name {
			return c
		}
	}
	return nil
}
