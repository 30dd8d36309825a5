package manifests_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestMonitoring: the objects of the component are in the namespace of the driver, and select its pods. Each port with
// metrics is scraped, and no other.
func TestMonitoring(t *testing.T) {
	// Ports of programs that have probes only.
	probes := []string{"alive", "node-alive", "registrar"}
	for _, overlay := range overlays(t) {
		components := []string{"monitoring"}
		if slices.Contains(available(t, overlay), "snapshots") {
			components = append(components, "snapshots")
		}
		o := parse(t, combination{overlay, components}.render(t))
		if len(o.monitoring) != 2 || len(o.networkPolicies) != 1 || o.dashboard.Data["cloudblock.json"] == "" {
			t.Fatalf("%s: %d objects of the operator, %d policies, and the dashboard %q", overlay, len(o.monitoring), len(o.networkPolicies), o.dashboard.Name)
		}
		namespace := "cloudblock-" + overlay
		if o.dashboard.Namespace != namespace || o.networkPolicies[0].Namespace != namespace {
			t.Errorf("%s: the dashboard is in %q and the policy in %q", overlay, o.dashboard.Namespace, o.networkPolicies[0].Namespace)
		}
		var scraped []string
		for _, m := range o.monitoring {
			if m.APIVersion != "monitoring.coreos.com/v1" || m.Metadata.Namespace != namespace {
				t.Errorf("%s: %s is %s in %q", overlay, m.Kind, m.APIVersion, m.Metadata.Namespace)
			}
			if m.Kind != "PodMonitor" {
				continue
			}
			for _, selector := range []metav1.LabelSelector{m.Spec.Selector, o.networkPolicies[0].Spec.PodSelector} {
				selectsOurs(t, selector)
			}
			for _, e := range m.Spec.PodMetricsEndpoints {
				scraped = append(scraped, e.Port)
				if got := fmt.Sprint(e.Relabelings); got != "[{dropequal [__meta_kubernetes_pod_ip] __meta_kubernetes_pod_host_ip}]" {
					t.Errorf("%s: a pod in the node's network, which listens on loopback, is scraped at %s: %v", overlay, e.Port, e.Relabelings)
				}
			}
		}
		var ports []string
		for _, pod := range o.pods {
			for _, c := range pod.Containers {
				for _, p := range c.Ports {
					ports = append(ports, p.Name)
					if !slices.Contains(scraped, p.Name) && !slices.Contains(probes, p.Name) {
						t.Errorf("%s: the port %s is not scraped", overlay, p.Name)
					}
				}
			}
		}
		for _, name := range scraped {
			// Where a cloud has no such sidecar it has no such port.
			if !slices.Contains(ports, name) && overlay == "digitalocean" {
				t.Errorf("%s: no container has the port %s", overlay, name)
			}
		}
	}
}

func selectsOurs(t *testing.T, selector metav1.LabelSelector) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(&selector)
	must(t, err)
	for name, want := range map[string]bool{"cloudblock-controller": true, "cloudblock-node": true, "prometheus": false} {
		if got := s.Matches(labels.Set{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "cloudblock-csi"}); got != want {
			t.Errorf("%v matches %s: %t", selector, name, got)
		}
	}
}

// TestEveryAlertHasItsRunbook: a severity, words, and the section of docs/monitoring.md about it.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	text, err := os.ReadFile("../../../docs/monitoring.md")
	must(t, err)
	page := string(text)
	o := parse(t, combination{"local", []string{"monitoring"}}.render(t))
	var alerts []string
	for _, m := range o.monitoring {
		for _, g := range m.Spec.Groups {
			for _, r := range g.Rules {
				alerts = append(alerts, r.Alert)
				const runbook = "https://github.com/cloudblock-csi/cloudblock-csi/blob/main/docs/monitoring.md#"
				if r.Annotations["runbook_url"] != runbook+strings.ToLower(r.Alert) || !strings.Contains(page, "\n### "+r.Alert+"\n") {
					t.Errorf("%s has the runbook %q, and docs/monitoring.md has its section: %t", r.Alert, r.Annotations["runbook_url"], strings.Contains(page, "\n### "+r.Alert+"\n"))
				}
				if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
					t.Errorf("%s has the labels %v and the annotations %v", r.Alert, r.Labels, r.Annotations)
				}
			}
		}
	}
	if len(alerts) < 10 || strings.Count(page, "\n### Cloudblock") != len(alerts) {
		t.Errorf("there are %d alerts, and %d sections about alerts", len(alerts), strings.Count(page, "\n### Cloudblock"))
	}
}
