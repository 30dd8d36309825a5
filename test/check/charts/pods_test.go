package charts_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

const (
	controllerWorkload = "Deployment/cloudblock-controller"
	nodeWorkload       = "DaemonSet/cloudblock-node"
)

// TestPodOptions: what the values say of the pods reaches the field, and nothing of the default stays next to it.
func TestPodOptions(t *testing.T) {
	more := []any{values{"name": "more", "image": "busybox:1.37"}}
	source := []any{values{"configMapRef": values{"name": "proxy"}}}
	budget := "PodDisruptionBudget/cloudblock-controller"
	podField := func(field string) []string { return []string{"spec", "template", "spec", field} }
	tests := map[string]struct {
		values values
		object string
		path   []string
		want   any
	}{
		"a strategy without numbers":         {values{"controller": values{"updateStrategy": values{"type": "Recreate"}}}, controllerWorkload, []string{"spec", "strategy"}, values{"type": "Recreate"}},
		"one more pod, none less":            {values{"controller": values{"updateStrategy": values{"rollingUpdate": values{"maxSurge": 1, "maxUnavailable": 0}}}}, controllerWorkload, []string{"spec", "strategy", "rollingUpdate"}, values{"maxSurge": 1.0, "maxUnavailable": 0.0}},
		"nodes by hand":                      {values{"node": values{"updateStrategy": values{"type": "OnDelete"}}}, nodeWorkload, []string{"spec", "updateStrategy"}, values{"type": "OnDelete"}},
		"nodes one by one":                   {values{"node": values{"updateStrategy": values{"rollingUpdate": values{"maxUnavailable": 1}}}}, nodeWorkload, []string{"spec", "updateStrategy", "rollingUpdate"}, values{"maxUnavailable": 1.0}},
		"a budget by what stays":             {values{"controller": values{"podDisruptionBudget": values{"minAvailable": "50%"}}}, budget, []string{"spec", "minAvailable"}, "50%"},
		"and not by what goes":               {values{"controller": values{"podDisruptionBudget": values{"minAvailable": 0}}}, budget, []string{"spec", "maxUnavailable"}, nil},
		"a budget by what goes":              {values{"controller": values{"podDisruptionBudget": values{"maxUnavailable": 2}}}, budget, []string{"spec", "maxUnavailable"}, 2.0},
		"no budget":                          {values{"controller": values{"podDisruptionBudget": values{"enabled": false}}}, budget, []string{"spec"}, nil},
		"a spread by zone":                   {values{"controller": values{"topologySpreadConstraints": []any{values{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}}}}, controllerWorkload, podField("topologySpreadConstraints"), []any{values{"maxSkew": 1.0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": values{"matchLabels": values{"app.kubernetes.io/name": "cloudblock-controller"}}}}},
		"no spread":                          {values{"controller": values{"topologySpreadConstraints": []any{}}}, controllerWorkload, podField("topologySpreadConstraints"), nil},
		"time to end":                        {values{"node": values{"terminationGracePeriodSeconds": 0}}, nodeWorkload, podField("terminationGracePeriodSeconds"), 0.0},
		"no old revisions":                   {values{"controller": values{"revisionHistoryLimit": 0}}, controllerWorkload, []string{"spec", "revisionHistoryLimit"}, 0.0},
		"old revisions of the node's":        {values{"node": values{"revisionHistoryLimit": 3}}, nodeWorkload, []string{"spec", "revisionHistoryLimit"}, 3.0},
		"another scheduler":                  {values{"controller": values{"schedulerName": "own"}}, controllerWorkload, podField("schedulerName"), "own"},
		"a policy of DNS":                    {values{"node": values{"dnsPolicy": "ClusterFirstWithHostNet"}}, nodeWorkload, podField("dnsPolicy"), "ClusterFirstWithHostNet"},
		"name servers":                       {values{"controller": values{"dnsConfig": values{"nameservers": []any{"10.0.0.10"}}}}, controllerWorkload, podField("dnsConfig"), values{"nameservers": []any{"10.0.0.10"}}},
		"the node's network":                 {values{"controller": values{"hostNetwork": true}}, controllerWorkload, podField("hostNetwork"), true},
		"a container before the others":      {values{"node": values{"initContainers": more}}, nodeWorkload, podField("initContainers"), more},
		"one before the controller's":        {values{"controller": values{"initContainers": more}}, controllerWorkload, podField("initContainers"), more},
		"an account that has no secrets yet": {values{"node": values{"serviceAccount": values{"create": false}}}, nodeWorkload, podField("imagePullSecrets"), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.values["cloud"] = "linode"
			o := clusterOf("linode").render(t, tc.values)
			if got := at(o[tc.object], tc.path...); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	o := clusterOf("linode").render(t, values{"cloud": "linode", "controller": values{"extraContainers": more, "extraEnvFrom": source}, "node": values{"extraContainers": more, "extraEnvFrom": source}})
	for workload, program := range map[string]string{controllerWorkload: "controller", nodeWorkload: "node"} {
		template := at(o[workload], "spec", "template").(map[string]any)
		if got := container(template, "more"); !reflect.DeepEqual(got, more[0]) {
			t.Errorf("%s has the container %v, want %v", workload, got, more[0])
		}
		got, _ := container(template, program)["envFrom"].([]any)
		if len(got) != 2 || !reflect.DeepEqual(got[1:], source) {
			t.Errorf("%s has the variables of %v, want those of the settings and %v", workload, got, source)
		}
	}
}

// TestProbes: numbers are merged with those of the chart, and the probe itself stays.
func TestProbes(t *testing.T) {
	numbers := values{"timeoutSeconds": 15, "failureThreshold": 7}
	sidecars := map[string]string{
		"csi-provisioner": "provisioner", "csi-attacher": "attacher", "csi-resizer": "resizer", "csi-snapshotter": "snapshotter",
		"node-driver-registrar": "registrar",
	}
	set := values{
		"cloud": "digitalocean", "snapshots": values{"enabled": true},
		"controller": values{"livenessProbe": numbers, "readinessProbe": numbers}, "node": values{"livenessProbe": numbers, "readinessProbe": numbers},
	}
	named := values{}
	for _, name := range sidecars {
		named[name] = values{"livenessProbe": numbers, "extraEnv": []any{values{"name": "EXTRA", "value": name}}}
	}
	set["sidecars"] = named
	o := clusterOf("digitalocean").render(t, set)
	checked := 0
	for _, workload := range []string{controllerWorkload, nodeWorkload} {
		containers, _ := at(o[workload], "spec", "template", "spec", "containers").([]any)
		for _, c := range containers {
			c := c.(map[string]any)
			for _, kind := range []string{"livenessProbe", "readinessProbe"} {
				probe, _ := c[kind].(map[string]any)
				if probe == nil {
					continue
				}
				checked++
				if probe["timeoutSeconds"] != 15.0 || probe["failureThreshold"] != 7.0 || probe["periodSeconds"] == nil || at(probe, "httpGet", "path") == nil {
					t.Errorf("%s: %s of %v is %v", workload, kind, c["name"], probe)
				}
			}
			if name := sidecars[c["name"].(string)]; name != "" {
				env, _ := c["env"].([]any)
				if len(env) == 0 || !reflect.DeepEqual(env[len(env)-1], values{"name": "EXTRA", "value": name}) {
					t.Errorf("%s: %v has the variables %v, want one more at the end", workload, c["name"], env)
				}
			}
		}
	}
	if checked != 9 {
		t.Errorf("found %d probes, want 9", checked)
	}
}

// TestControllerInTheNodesNetwork: its ports are on loopback, where the kubelet's probes look for them, and none is the node program's.
func TestControllerInTheNodesNetwork(t *testing.T) {
	set := values{"cloud": "digitalocean", "snapshots": values{"enabled": true}, "hostNetwork": true, "controller": values{"hostNetwork": true}, "ports": values{"controllerLivenessprobe": 9811}}
	o := clusterOf("digitalocean").render(t, set)
	ports := map[any]string{}
	for _, workload := range []string{controllerWorkload, nodeWorkload} {
		containers, _ := at(o[workload], "spec", "template", "spec", "containers").([]any)
		for _, c := range containers {
			c := c.(map[string]any)
			for _, kind := range []string{"livenessProbe", "readinessProbe"} {
				if probe, _ := c[kind].(map[string]any); probe != nil && at(probe, "httpGet", "host") != "127.0.0.1" {
					t.Errorf("%s: %s of %v asks %v", workload, kind, c["name"], probe["httpGet"])
				}
			}
			open, _ := c["ports"].([]any)
			for _, p := range open {
				number := p.(map[string]any)["containerPort"]
				if ports[number] != "" {
					t.Errorf("the port %v is that of %s and of %v", number, ports[number], c["name"])
				}
				ports[number] = c["name"].(string)
				if want := fmt.Sprintf("--http-endpoint=127.0.0.1:%v", number); !slices.Contains(c["args"].([]any), any(want)) {
					t.Errorf("%s: %v has the arguments %v, want %s", workload, c["name"], c["args"], want)
				}
			}
		}
	}
	if len(ports) != 9 || ports[9811.0] != "livenessprobe" {
		t.Errorf("the ports are %v, want 9", ports)
	}
}
