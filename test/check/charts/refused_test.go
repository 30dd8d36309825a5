package charts_test

import (
	"strings"
	"testing"
)

// TestWrongOptions: values that fit the types and not each other are refused, with the names of the values.
func TestWrongOptions(t *testing.T) {
	groups := func(label string, groups ...any) values { return values{"label": label, "groups": groups} }
	tests := map[string]struct {
		cloud  string
		values values
		want   string
	}{
		"a port of two containers of a pod":   {"local", values{"ports": values{"node": 9802}}, "ports.controller and ports.node are both 9802"},
		"a port of two containers of a cloud": {"linode", values{"ports": values{"registrar": 9808}}, "ports.livenessprobe and ports.registrar are both 9808"},
		"a port of the controller's probe":    {"linode", values{"ports": values{"controllerLivenessprobe": 9806}}, "ports.attacher and ports.controllerLivenessprobe are both 9806"},
		"both programs in the node's network": {"linode", values{"hostNetwork": true, "controller": values{"hostNetwork": true}}, "ports.controllerLivenessprobe is required"},
		"one account for both":                {"linode", values{"node": values{"serviceAccount": values{"name": "cloudblock-controller"}}}, "serviceAccount.name are the same"},
		"a default that no class has":         {"linode", values{"defaultStorageClass": "fast"}, `no class of the chart is named "fast"; the classes are cloudblock-linode, cloudblock-linode-xfs,`},
		"a null for the policies of tokens":   {"local", values{"local": values{"nodeBound": nil}}, "missing property 'nodeBound'"},
		"a null for a budget":                 {"linode", values{"controller": values{"podDisruptionBudget": values{"minAvailable": nil}}}, "missing property 'minAvailable'"},
		"a null for snapshots":                {"linode", values{"snapshots": values{"enabled": nil}}, "missing property 'enabled'"},
		"a null for the scrapes":              {"linode", values{"monitoring": values{"podMonitor": values{"enabled": nil}}}, "missing property 'enabled'"},
		"a topology without values":           {"linode", values{"storageClasses": []any{values{"name": "a", "allowedTopologies": []any{values{"matchLabelExpressions": []any{values{"key": "zone"}}}}}}}, "/storageClasses"},
		"attributes before 1.34":              {"linode", values{"volumeAttributesClasses": []any{values{"name": "a", "parameters": values{"tags": "a=b"}}}}, "volumeAttributesClasses needs Kubernetes 1.34, and this is v1.33.0"},
		"attributes of local":                 {"local", values{"volumeAttributesClasses": []any{values{"name": "a", "parameters": values{"tags": "a=b"}}}}, "/volumeAttributesClasses"},
		"attributes without parameters":       {"linode", values{"volumeAttributesClasses": []any{values{"name": "a"}}}, "missing property 'parameters'"},
		"two drivers on a node":               {"linode", values{"node": values{"updateStrategy": values{"rollingUpdate": values{"maxSurge": 1}}}}, "/node/updateStrategy/rollingUpdate"},
		"an update that cannot begin":         {"linode", values{"controller": values{"updateStrategy": values{"rollingUpdate": values{"maxUnavailable": 0}}}}, "/controller/updateStrategy/rollingUpdate"},
		"a spread with a selector":            {"linode", values{"controller": values{"topologySpreadConstraints": []any{values{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": values{}}}}}, "'labelSelector' not allowed"},
		"a probe that is none":                {"linode", values{"node": values{"livenessProbe": values{"exec": values{}}}}, "'exec' not allowed"},
		"a label of Helm's":                   {"linode", values{"commonLabels": values{"app.kubernetes.io/instance": "a"}}, "/commonLabels"},
		"a second container of the name":      {"linode", values{"node": values{"extraContainers": []any{values{"name": "node", "image": "a"}}}}, "/node/extraContainers/0/name"},
		"settings from a ConfigMap":           {"linode", values{"node": values{"extraEnvFrom": []any{values{"prefix": "CLOUDBLOCK_FLAG_", "configMapRef": values{"name": "a"}}}}}, "/node/extraEnvFrom/0/prefix"},
		"a variable of the chart's":           {"linode", values{"sidecars": values{"registrar": values{"extraEnv": []any{values{"name": "KUBELET_DIR"}}}}}, "/sidecars/registrar/extraEnv/0"},
		"an interval without a unit":          {"linode", values{"monitoring": values{"podMonitor": values{"interval": "30"}}}, "/monitoring/podMonitor/interval"},
		"no part at all":                      {"linode", values{"controller": values{"enabled": false}, "node": values{"enabled": false}}, "/node/enabled"},
		"local without its controller":        {"local", values{"controller": values{"enabled": false}}, "/controller/enabled"},
		"local's controller on the host":      {"local", values{"controller": values{"hostNetwork": true}}, "/controller/hostNetwork"},
		"containers that local has not":       {"local", values{"controller": values{"extraContainers": []any{values{"name": "a", "image": "b"}}}}, "/controller/extraContainers"},
		"groups without a label":              {"linode", values{"nodeGroups": groups("", values{"name": "a"})}, "/nodeGroups/label"},
		"two groups of one name":              {"linode", values{"nodeGroups": groups("pool", values{"name": "a"}, values{"name": "a", "values": []any{"b"}})}, "nodeGroups.groups: two are named a"},
		"a node in two groups":                {"linode", values{"nodeGroups": groups("pool", values{"name": "a"}, values{"name": "b", "values": []any{"c", "a"}})}, "nodeGroups.groups: nodes with the label pool=a are in two groups"},
		"groups without the node program":     {"linode", values{"node": values{"enabled": false}, "nodeGroups": groups("pool", values{"name": "a"})}, "/nodeGroups/groups"},
		"pools of a cloud's group":            {"linode", values{"nodeGroups": groups("pool", values{"name": "a", "local": values{"pool": "/a"}})}, "/nodeGroups/groups/0/local"},
		"a zone of local's group":             {"local", values{"nodeGroups": groups("pool", values{"name": "a", "settings": values{"zone": "a"}})}, "/nodeGroups/groups/0/settings/zone"},
		"an account of a group":               {"linode", values{"nodeGroups": groups("pool", values{"name": "a", "serviceAccount": values{"name": "b"}})}, "'serviceAccount' not allowed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.values["cloud"] = tc.cloud
			in := cluster{namespace: "storage", version: "v1.33.0"}
			if _, err := in.documents(tc.values); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the chart answers %v, want an error with %q", err, tc.want)
			}
		})
	}
}
