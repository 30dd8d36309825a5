//go:build cluster

package charts_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var kubectlPath = flag.String("kubectl", "kubectl", "the program that talks to the cluster of KUBECONFIG")

// clusterWide are the kinds of the chart without a namespace.
var clusterWide = map[string]bool{
	"CSIDriver": true, "StorageClass": true, "VolumeSnapshotClass": true, "VolumeAttributesClass": true, "ClusterRole": true, "ClusterRoleBinding": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
}

// TestTheAPIServerTakesRandomValues: a dry run of each random value set, in the cluster of KUBECONFIG, whatever runs there.
//
//	KUBECONFIG=... go test -count=1 -tags cluster -run APIServer . -args -kubectl PATH
func TestTheAPIServerTakesRandomValues(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" { //nolint:forbidigo // what every program of Kubernetes reads
		t.Fatal("KUBECONFIG names no cluster")
	}
	var version struct{ ServerVersion struct{ GitVersion string } }
	must(t, json.Unmarshal([]byte(kubectl(t, "", "version", "-o", "json")), &version))
	apis := strings.Fields(kubectl(t, "", "api-versions"))
	created := map[string]bool{}
	sets := randomSets(t, []string{version.ServerVersion.GitVersion}, apis...)
	for i, set := range sets {
		var text bytes.Buffer
		for _, o := range parse(t, set.documents) {
			if o["apiVersion"] == monitoringAPI { // which this cluster does not have
				continue
			}
			if namespace, _ := at(o, "metadata", "namespace").(string); namespace != "" && !created[namespace] {
				kubectl(t, "", "create", "namespace", namespace)
				t.Cleanup(func() { kubectlWithout(t, "delete", "namespace", namespace) })
				created[namespace] = true
			}
			// The objects of a driver that runs here are left out of it: some fields of theirs can never change.
			if kind, _ := o["kind"].(string); clusterWide[kind] {
				metadata := o["metadata"].(map[string]any)
				metadata["name"] = metadata["name"].(string) + ".dry-run"
			}
			one, err := yaml.Marshal(o)
			must(t, err)
			text.WriteString("---\n")
			text.Write(one)
		}
		cmd := exec.CommandContext(t.Context(), *kubectlPath, "create", "--dry-run=server", "--validate=strict", "-f", "-")
		cmd.Stdin = &text
		if out, err := cmd.CombinedOutput(); err != nil {
			shown, _ := yaml.Marshal(set.values)
			t.Errorf("set %d: %v\n%s\nof the values\n%s", i, err, out, shown)
		}
	}
	t.Logf("a dry run of %d sets of values", len(sets))
}

func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), *kubectlPath, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// kubectlWithout runs after the test, whose context has ended.
func kubectlWithout(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(*kubectlPath, args...).CombinedOutput(); err != nil { //nolint:noctx // see above
		t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
