package charts_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestNodeGroups: each group has a DaemonSet of its own, with its own settings over those of `node`, and every node has one place.
func TestNodeGroups(t *testing.T) {
	in := cluster{namespace: "storage", version: newVersion, apis: []string{monitoringAPI}}
	o := in.render(t, values{
		"cloud": "digitalocean", "monitoring": values{"enabled": true}, "node": values{"podLabels": values{"one": "1"}, "nodeSelector": values{"cloud": "do"}},
		"nodeGroups": values{"label": "doks.digitalocean.com/node-pool", "groups": []any{
			values{"name": "small"},
			values{
				"name": "big", "values": []any{"big-1", "big-2"}, "settings": values{"maxVolumes": 8, "topologyKey": []any{"a=region", "b=zone"}},
				"podLabels": values{"two": "2"}, "tolerations": []any{}, "selinux": true, "resources": values{"limits": values{"memory": "2Gi"}},
			},
		}},
	})
	where := func(operator string, names ...any) any {
		return values{"nodeSelectorTerms": []any{values{"matchExpressions": []any{values{"key": "doks.digitalocean.com/node-pool", "operator": operator, "values": names}}}}}
	}
	for name, want := range map[string]any{
		"cloudblock-node": where("NotIn", "small", "big-1", "big-2"), "cloudblock-node-small": where("In", "small"), "cloudblock-node-big": where("In", "big-1", "big-2"),
	} {
		d := o["DaemonSet/"+name]
		if got := at(d, "spec", "template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the nodes are %v, want %v", name, got, want)
		}
		selector := at(d, "spec", "selector", "matchLabels", "app.kubernetes.io/name")
		if label := at(d, "spec", "template", "metadata", "labels", "app.kubernetes.io/name"); selector != name || label != name {
			t.Errorf("%s selects %v, and its pods are %v", name, selector, label)
		}
		if got := at(d, "spec", "template", "spec", "nodeSelector", "cloud"); got != "do" {
			t.Errorf("%s: the selector of all nodes has cloud=%v", name, got)
		}
	}
	big := at(o["DaemonSet/cloudblock-node-big"], "spec", "template").(map[string]any)
	env := fmt.Sprint(container(big, "node")["env"])
	for _, want := range []string{"map[name:CLOUDBLOCK_FLAG_MAX_VOLUMES value:8]", "map[name:CLOUDBLOCK_FLAG_TOPOLOGY_KEY value:a=region,b=zone]"} {
		if !strings.Contains(env, want) {
			t.Errorf("the variables of the group are %s, want %s", env, want)
		}
	}
	got := []any{
		at(container(big, "node"), "resources", "limits", "memory"), at(container(big, "node"), "resources", "requests", "cpu"), at(big, "spec", "tolerations"),
		at(big, "metadata", "labels", "one"), at(big, "metadata", "labels", "two"), at(big, "spec", "securityContext", "seLinuxOptions", "type"),
	}
	if want := []any{"2Gi", "10m", []any{}, "1", "2", "spc_t"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the group has %v, want %v", got, want)
	}
	if text := fmt.Sprint(o["DaemonSet/cloudblock-node"], o["DaemonSet/cloudblock-node-small"]); strings.Contains(text, "spc_t") || strings.Contains(text, "MAX_VOLUMES") || strings.Contains(text, "two:2") {
		t.Errorf("the settings of one group reach another: %s", text)
	}
	names := []any{"cloudblock-controller", "cloudblock-node", "cloudblock-node-small", "cloudblock-node-big"}
	for object, path := range map[string][]string{"PodMonitor/cloudblock": {"spec", "selector"}, "NetworkPolicy/cloudblock-metrics": {"spec", "podSelector"}} {
		selector := at(o[object], path...).(map[string]any)
		if got := at(selector["matchExpressions"].([]any)[0].(map[string]any), "values"); !reflect.DeepEqual(got, names) {
			t.Errorf("%s selects the pods %v, want %v", object, got, names)
		}
	}
}

// TestGroupsAndAffinity: one term of several is enough for the scheduler, so each of the operator's demands the label of the group.
func TestGroupsAndAffinity(t *testing.T) {
	term := func(key string) values {
		return values{"matchExpressions": []any{values{"key": key, "operator": "Exists"}}}
	}
	required := values{"requiredDuringSchedulingIgnoredDuringExecution": values{"nodeSelectorTerms": []any{term("a"), term("b")}}}
	o := clusterOf("linode").render(t, values{
		"cloud": "linode", "node": values{"affinity": values{"nodeAffinity": required}},
		"nodeGroups": values{"label": "pool", "groups": []any{values{"name": "one"}}},
	})
	for name, operator := range map[string]string{"cloudblock-node": "NotIn", "cloudblock-node-one": "In"} {
		got := at(o["DaemonSet/"+name], "spec", "template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		label := values{"key": "pool", "operator": operator, "values": []any{"one"}}
		var want []any
		for _, key := range []string{"a", "b"} {
			both := term(key)
			both["matchExpressions"] = append(both["matchExpressions"].([]any), label)
			want = append(want, both)
		}
		if !reflect.DeepEqual(got, any(want)) {
			t.Errorf("%s: the terms are %v, want %v", name, got, want)
		}
	}
}

// TestGroupsOfLocal: a group has pools of its own, for both programs, and the Service of changed blocks reaches all groups.
func TestGroupsOfLocal(t *testing.T) {
	pools := values{"pool": "/data", "morePools": []any{values{"name": "fast", "dir": "/fast"}}}
	o := clusterOf("local").render(t, values{
		"cloud": "local", "local": values{"changedBlocks": true},
		"nodeGroups": values{"label": "pool", "groups": []any{values{"name": "one", "local": pools, "settings": values{"logLevel": "debug"}}}},
	})
	for name, want := range map[string]string{"cloudblock-node": "/var/lib/cloudblock-csi/pool", "cloudblock-node-one": "/data,fast=/fast"} {
		template := at(o["DaemonSet/"+name], "spec", "template").(map[string]any)
		for _, program := range []string{"node", "controller"} {
			env := fmt.Sprint(container(template, program)["env"])
			if !strings.Contains(env, "map[name:CLOUDBLOCK_FLAG_LOCAL_POOL value:"+want+"]") || strings.Contains(env, "LOG_LEVEL") != (name != "cloudblock-node") {
				t.Errorf("%s: %s has the variables %s, want the pools %s", name, program, env, want)
			}
		}
		if label := at(template, "metadata", "labels", "app.kubernetes.io/part-of"); label != "cloudblock-csi" {
			t.Errorf("the pods of %s are part of %v", name, label)
		}
	}
	if got := at(o["Service/cloudblock-snapshot-metadata"], "spec", "selector"); !reflect.DeepEqual(got, values{"app.kubernetes.io/part-of": "cloudblock-csi"}) {
		t.Errorf("the Service selects %v", got)
	}
}

// TestPartsAlone: what a release has of the controller alone and of the node program alone.
func TestPartsAlone(t *testing.T) {
	tests := map[string]struct {
		values values
		want   string
	}{
		"the controller": {
			values{"node": values{"enabled": false}},
			"CSIDriver ClusterRole*3 ClusterRoleBinding*3 ConfigMap Deployment PodDisruptionBudget Role RoleBinding ServiceAccount StorageClass*3",
		},
		"the node program":                  {values{"controller": values{"enabled": false}}, "CSIDriver ConfigMap DaemonSet ServiceAccount StorageClass*3"},
		"the node program without the rest": {values{"controller": values{"enabled": false}, "csiDriver": values{"create": false}, "storageClasses": []any{}}, "ConfigMap DaemonSet ServiceAccount"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.values["cloud"] = "linode"
			count := map[string]int{}
			for _, object := range clusterOf("linode").render(t, tc.values) {
				count[object["kind"].(string)]++
			}
			var got []string
			for _, kind := range slices.Sorted(maps.Keys(count)) {
				if count[kind] > 1 {
					kind = fmt.Sprintf("%s*%d", kind, count[kind])
				}
				got = append(got, kind)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
			notes := notesOf(t, clusterOf("linode"), tc.values)
			alone := strings.Contains(tc.want, "Deployment")
			if strings.Contains(notes, "deployment/cloudblock-controller") != alone || strings.Contains(notes, "daemonset/cloudblock-node") == alone || strings.Contains(notes, "create secret") != alone {
				t.Errorf("the notes are of another part:\n%s", notes)
			}
		})
	}
}
