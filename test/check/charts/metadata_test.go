package charts_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestCommonMetadata: every object has the operator's labels and annotations, pods and the claim of `helm test` too, and nothing else
// changes.
func TestCommonMetadata(t *testing.T) {
	for _, cloud := range clouds(t) {
		in := cluster{namespace: "storage", version: newVersion, apis: []string{snapshotAPI, monitoringAPI}}
		set := values{
			"cloud": cloud, "snapshots": values{"enabled": cloudFile(t, cloud)["snapshotClasses"] != nil}, "monitoring": values{"enabled": true},
			"controller": values{"podLabels": values{"part": "own"}},
		}
		if cloud == "local" {
			set["local"] = values{"sourceNode": true, "changedBlocks": true}
		}
		plain, err := in.documents(set)
		must(t, err)
		set["commonLabels"], set["commonAnnotations"] = values{"team": "storage", "part": "all"}, values{"note": "true"}
		marked, err := in.documents(set)
		must(t, err)
		before, after := parse(t, plain), parse(t, marked)
		if kinds := len(after); kinds < 20 {
			t.Errorf("%s: only %d objects", cloud, kinds)
		}
		for _, key := range slices.Sorted(maps.Keys(after)) {
			places := [][]string{{"metadata"}}
			if at(after[key], "spec", "template") != nil {
				places = append(places, []string{"spec", "template", "metadata"})
			}
			for _, place := range places {
				labels, annotations := at(after[key], append(place, "labels")...), at(after[key], append(place, "annotations")...)
				if at(labels.(map[string]any), "team") != "storage" || at(annotations.(map[string]any), "note") != "true" {
					t.Errorf("%s: %s has in %s the labels %v and the annotations %v", cloud, key, strings.Join(place, "."), labels, annotations)
				}
			}
			unmark(after[key])
			unmark(before[key])
			if !reflect.DeepEqual(before[key], after[key]) {
				t.Errorf("%s: %s differs in more than its labels and annotations", cloud, key)
			}
		}
		if got := at(parse(t, marked)["Deployment/cloudblock-controller"], "spec", "template", "metadata", "labels", "part"); cloud != "local" && got != "own" {
			t.Errorf("%s: the pods have the label part=%v, want that of podLabels", cloud, got)
		}
	}
}

// unmark deletes all labels and annotations that are no selector's.
func unmark(node any) {
	switch node := node.(type) {
	case map[string]any:
		if metadata, _ := node["metadata"].(map[string]any); metadata != nil {
			delete(metadata, "labels")
			delete(metadata, "annotations")
		}
		for _, below := range node {
			unmark(below)
		}
	case []any:
		for _, below := range node {
			unmark(below)
		}
	}
}

// TestAccounts: pods, bindings and the policies of local name the account that the values name.
func TestAccounts(t *testing.T) {
	secrets := []any{values{"name": "registry"}}
	for _, cloud := range clouds(t) {
		part, workload := "controller", "Deployment/cloudblock-controller"
		if cloud == "local" {
			part, workload = "node", "DaemonSet/cloudblock-node"
		}
		account := values{"name": "mine", "annotations": values{"role": "storage"}}
		set := values{"cloud": cloud, "imagePullSecrets": secrets, part: values{"serviceAccount": account}}
		o := clusterOf(cloud).render(t, set)
		if got := at(o["ServiceAccount/mine"], "metadata", "annotations", "role"); got != "storage" {
			t.Errorf("%s: the account is %v, want one with the annotation", cloud, o["ServiceAccount/mine"])
		}
		pod := at(o[workload], "spec", "template", "spec").(map[string]any)
		if pod["serviceAccountName"] != "mine" || pod["imagePullSecrets"] != nil {
			t.Errorf("%s: the pods have the account %v and the secrets %v", cloud, pod["serviceAccountName"], pod["imagePullSecrets"])
		}
		text, err := yaml.Marshal(o)
		must(t, err)
		if named := strings.Count(string(text), ":mine'"); strings.Contains(string(text), ":cloudblock-"+part+"'") || (named < 6) != (cloud != "local") {
			t.Errorf("%s: %d policies are for the account, or some for another", cloud, named)
		}
		account["create"] = false
		o = clusterOf(cloud).render(t, set)
		pod = at(o[workload], "spec", "template", "spec").(map[string]any)
		if o["ServiceAccount/mine"] != nil || pod["serviceAccountName"] != "mine" || !reflect.DeepEqual(pod["imagePullSecrets"], secrets) {
			t.Errorf("%s: with create=false the account is %v, the pods have %v and the secrets %v", cloud, o["ServiceAccount/mine"], pod["serviceAccountName"], pod["imagePullSecrets"])
		}
		subjects := 0
		for key := range o {
			bound, _ := o[key]["subjects"].([]any)
			for _, subject := range bound {
				if subject.(map[string]any)["name"] == "mine" {
					subjects++
				}
			}
		}
		if subjects < 4 {
			t.Errorf("%s: only %d bindings are for the account", cloud, subjects)
		}
	}
}

// TestExtraRules: the rules of the operator's are a role of the part's account.
func TestExtraRules(t *testing.T) {
	rules := []any{values{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"get"}}}
	o := clusterOf("linode").render(t, values{"cloud": "linode", "controller": values{"extraRules": rules}})
	if got := o["ClusterRole/cloudblock-controller-extra-linode"]["rules"]; !reflect.DeepEqual(got, rules) {
		t.Errorf("the rules are %v, want %v", got, rules)
	}
	want := []any{values{"kind": "ServiceAccount", "name": "cloudblock-controller", "namespace": "cloudblock-linode"}}
	if got := o["ClusterRoleBinding/cloudblock-controller-extra-linode"]["subjects"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the role is bound to %v, want %v", got, want)
	}
	if o["ClusterRole/cloudblock-node-extra-linode"] != nil {
		t.Error("the node has a role without rules")
	}
}
