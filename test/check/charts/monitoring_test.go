package charts_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestPartsOfMonitoring: each part has a switch, and kinds that the cluster does not have are left out and named in the notes.
func TestPartsOfMonitoring(t *testing.T) {
	keys := []string{"PodMonitor/cloudblock", "PrometheusRule/cloudblock", "ConfigMap/cloudblock-dashboard", "NetworkPolicy/cloudblock-metrics"}
	on, off := values{"enabled": true}, values{"enabled": false}
	tests := map[string]struct {
		apis   []string
		values values
		want   []string
		noted  bool
	}{
		"nothing by itself":         {[]string{monitoringAPI}, values{}, nil, false},
		"all":                       {[]string{monitoringAPI}, values{"enabled": true}, keys, false},
		"without the operator":      {nil, values{"enabled": true}, keys[2:], true},
		"all but the policy":        {[]string{monitoringAPI}, values{"enabled": true, "networkPolicy": off}, keys[:3], false},
		"all but the dashboard":     {[]string{monitoringAPI}, values{"enabled": true, "dashboard": off}, []string{keys[0], keys[1], keys[3]}, false},
		"the rules alone":           {[]string{monitoringAPI}, values{"rules": on}, keys[1:2], false},
		"the monitor, whatever may": {nil, values{"podMonitor": on}, keys[:1], false},
		"the dashboard alone":       {nil, values{"dashboard": on}, keys[2:3], false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := cluster{namespace: "storage", version: newVersion, apis: tc.apis}
			set := values{"cloud": "local", "monitoring": tc.values}
			o := in.render(t, set)
			var got []string
			for _, key := range keys {
				if o[key] != nil {
					got = append(got, key)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if notes := notesOf(t, in, set); strings.Contains(notes, "no monitoring.coreos.com/v1") != tc.noted {
				t.Errorf("the notes name the missing kinds: %t, want %t:\n%s", !tc.noted, tc.noted, notes)
			}
		})
	}
}

// TestMonitors: the fields of the objects for Prometheus and Grafana.
func TestMonitors(t *testing.T) {
	relabelings := []any{values{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"}}
	drops := []any{values{"action": "labeldrop", "regex": "pod"}}
	// A pod in the node's network has its address, and listens on loopback only.
	hostless := values{"action": "dropequal", "sourceLabels": []any{"__meta_kubernetes_pod_ip"}, "targetLabel": "__meta_kubernetes_pod_host_ip"}
	in := cluster{namespace: "storage", version: newVersion, apis: []string{monitoringAPI}}
	o := in.render(t, values{"cloud": "linode", "monitoring": values{
		"enabled": true, "labels": values{"release": "prometheus"},
		"podMonitor": values{"namespace": "monitoring", "interval": "15s", "scrapeTimeout": "5s", "relabelings": relabelings, "metricRelabelings": drops},
		"rules":      values{"namespace": "rules"},
		"dashboard":  values{"namespace": "grafana", "labels": values{"more": "1"}, "annotations": values{"grafana_folder": "Storage"}},
	}})
	monitor := o["PodMonitor/cloudblock"]
	endpoints, _ := at(monitor, "spec", "podMetricsEndpoints").([]any)
	if len(endpoints) != 6 {
		t.Errorf("the monitor has %d endpoints, want 6", len(endpoints))
	}
	for _, e := range endpoints {
		want := values{"port": e.(map[string]any)["port"], "interval": "15s", "scrapeTimeout": "5s", "relabelings": append([]any{hostless}, relabelings...), "metricRelabelings": drops}
		if want["port"] == nil || !reflect.DeepEqual(e, any(want)) {
			t.Errorf("an endpoint is %v, want %v", e, want)
		}
	}
	got := []any{
		at(monitor, "metadata", "namespace"), at(monitor, "metadata", "labels", "release"), at(monitor, "spec", "namespaceSelector"),
		at(o["PrometheusRule/cloudblock"], "metadata", "namespace"), at(o["ConfigMap/cloudblock-dashboard"], "metadata"),
		at(o["NetworkPolicy/cloudblock-metrics"], "metadata", "namespace"), at(o["NetworkPolicy/cloudblock-metrics"], "metadata", "labels"),
	}
	want := []any{
		"monitoring", "prometheus", values{"matchNames": []any{"storage"}}, "rules",
		values{
			"name": "cloudblock-dashboard", "namespace": "grafana", "labels": values{"grafana_dashboard": "1", "more": "1"},
			"annotations": values{"grafana_folder": "Storage"},
		}, "storage", nil,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestThePolicyOfTheMetrics: Prometheus is where the values say, and clients of the sidecar for changed blocks are anywhere.
func TestThePolicyOfTheMetrics(t *testing.T) {
	from := []any{values{"podSelector": values{"matchLabels": values{"app": "scraper"}}}}
	o := cluster{namespace: "storage", version: newVersion}.render(t, values{
		"cloud": "local", "local": values{"changedBlocks": true}, "monitoring": values{"enabled": true, "from": from},
	})
	want := []any{values{"from": from}, values{"ports": []any{values{"port": "blocks"}}}}
	if got := at(o["NetworkPolicy/cloudblock-metrics"], "spec", "ingress"); !reflect.DeepEqual(got, want) {
		t.Errorf("it lets in %v, want %v", got, want)
	}
}

// TestTheTest: what `helm test` runs is a hook that Helm removes, has a claim of its own and takes its image from the values.
func TestTheTest(t *testing.T) {
	pod := func(set values) map[string]any {
		documents, err := clusterOf("yandex").documents(set)
		must(t, err)
		return parse(t, documents)["Pod/cloudblock-test"]
	}
	usual := pod(values{"cloud": "yandex", "imagePullSecrets": []any{values{"name": "registry"}}})
	annotations := values{"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"}
	claim := func(pod map[string]any) []any {
		volume := at(pod, "spec", "volumes").([]any)[0].(map[string]any)
		spec := at(volume, "ephemeral", "volumeClaimTemplate", "spec").(map[string]any)
		return []any{spec["storageClassName"], at(spec, "resources", "requests", "storage")}
	}
	if got := at(usual, "metadata", "annotations"); !reflect.DeepEqual(got, annotations) || len(at(usual, "spec", "imagePullSecrets").([]any)) != 1 {
		t.Errorf("the pod has the annotations %v, want %v, and the secrets %v", got, annotations, at(usual, "spec", "imagePullSecrets"))
	}
	if got := claim(usual); !reflect.DeepEqual(got, []any{"cloudblock-yandex", "4Gi"}) {
		t.Errorf("the claim has the class and size %v, want those of the notes", got)
	}
	own := pod(values{"cloud": "yandex", "storageClasses": []any{}, "test": values{
		"storageClass": "mine", "size": "10Gi", "image": values{"registry": "mirror.example", "repository": "box", "tag": "v1"},
		"nodeSelector": values{"pool": "test"}, "tolerations": []any{values{"operator": "Exists"}},
	}})
	got := append(claim(own), container(map[string]any{"spec": own["spec"]}, "test")["image"], at(own, "spec", "nodeSelector", "pool"), at(own, "spec", "tolerations"))
	if want := []any{"mine", "10Gi", "mirror.example/box:v1", "test", []any{values{"operator": "Exists"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, set := range map[string]values{"no class": {"storageClasses": []any{}}, "switched off": {"test": values{"enabled": false}}} {
		set["cloud"] = "yandex"
		if pod(set) != nil || strings.Contains(notesOf(t, clusterOf("yandex"), set), "helm test") {
			t.Errorf("%s: there is a test", name)
		}
	}
}
