package relocate

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// read returns the PersistentVolume of a spec.
func read(t *testing.T, spec string) *persistentVolume {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pv.json")
	text := `{"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": ` + spec + `}`
	expect.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	pv, err := readPersistentVolume(file)
	expect.NoError(t, err)
	return pv
}

// The node affinity gets the new zone under the keys that it had, also those of a vendor's driver, of which one has the region. Without a
// node affinity it gets all keys. What the driver has not written is refused.
func TestTheNodeAffinityGetsTheZone(t *testing.T) {
	ours, err := driver.NewNames("yandex", profile.ScopeZone, "", nil)
	expect.NoError(t, err)
	vendors, err := driver.NewNames("yandex", profile.ScopeZone, "yandex.csi.flant.com", nil)
	expect.NoError(t, err)
	terms := func(expressions string) string {
		return `"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [` + expressions + `]}]}}`
	}
	const (
		own    = `{"key": "topology.yandex.csi.cloudblock.io/zone", "operator": "In", "values": ["ru-central1-a"]}`
		zone   = `{"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["ru-central1-a"]}`
		region = `{"key": "failure-domain.beta.kubernetes.io/region", "operator": "In", "values": ["ru-central1"]}`
	)
	for name, tc := range map[string]struct {
		names      driver.Names
		affinity   string
		want, says string
	}{
		"ours":             {ours, terms(own), `topology.yandex.csi.cloudblock.io/zone=ru-central1-b`, ""},
		"none":             {ours, `"x": 1`, `topology.yandex.csi.cloudblock.io/zone=ru-central1-b`, ""},
		"the vendor's":     {vendors, terms(region + "," + zone), `failure-domain.beta.kubernetes.io/region=ru-central1 failure-domain.beta.kubernetes.io/zone=ru-central1-b`, ""},
		"a label of hosts": {ours, terms(own + `,{"key": "rack", "operator": "In", "values": ["1"]}`), "", "has rack In"},
		"not In":           {ours, terms(strings.Replace(own, "In", "NotIn", 1)), "", "NotIn"},
		"a field":          {ours, `"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name"}]}]}}`, "", "metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			pv := read(t, `{"csi": {"driver": "`+tc.names.Driver+`", "volumeHandle": "d"}, `+tc.affinity+`}`)
			err := pv.fit(tc.names, "d", "ru-central1-b")
			if tc.says != "" {
				if fault.Of(err) != fault.Precondition || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("fit = %v, want that it says %q", err, tc.says)
				}
				return
			}
			expect.NoError(t, err)
			if got := segmentsOf(t, pv.affinity); got != tc.want {
				t.Errorf("the affinity is to %s, want %s", got, tc.want)
			}
		})
	}
}

// segmentsOf returns the keys of a node affinity with their values.
func segmentsOf(t *testing.T, affinity object) string {
	t.Helper()
	text, err := json.Marshal(affinity)
	expect.NoError(t, err)
	var shown struct {
		Required struct {
			NodeSelectorTerms []struct {
				MatchExpressions []struct {
					Key, Operator string
					Values        []string
				}
			}
		}
	}
	expect.NoError(t, json.Unmarshal(text, &shown))
	var all []string
	for _, e := range shown.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Operator != "In" {
			t.Errorf("%s has the operator %s", e.Key, e.Operator)
		}
		all = append(all, e.Key+"="+strings.Join(e.Values, ","))
	}
	return strings.Join(all, " ")
}

// A PersistentVolume without a claim is gone before it is created again, and has no claim to wait for. One that is kept anyway keeps its
// policy.
func TestStepsOfAPersistentVolumeWithoutAClaim(t *testing.T) {
	pv := read(t, `{"persistentVolumeReclaimPolicy": "Retain"}`)
	want := []string{`kubectl patch pv v --patch '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, "kubectl delete pv v", "kubectl create --filename FILE"}
	printed, steps := pv.again()
	if strings.Join(steps, "\n") != strings.Join(want, "\n") {
		t.Errorf("the steps are\n%s", strings.Join(steps, "\n"))
	}
	if spec := printed["spec"].(object); spec["claimRef"] != nil {
		t.Errorf("it has a claim: %v", spec)
	}
}

// A file of --pv that was read after the first of the commands does not have the policy to set again, which is said.
func TestTheEarlierPolicyIsNotForgotten(t *testing.T) {
	const says = "set the earlier policy again"
	for _, tc := range []struct {
		policy string
		patch  bool
		want   bool
	}{{"Retain", false, true}, {"Delete", false, false}, {"Retain", true, false}} {
		var stderr bytes.Buffer
		pv := read(t, `{"persistentVolumeReclaimPolicy": "`+tc.policy+`"}`)
		if err := tell(pv, tc.patch, "done", io.Discard, &stderr); err != nil || strings.Contains(stderr.String(), says) != tc.want {
			t.Errorf("%+v: %v, %s, want that it says %q: %t", tc, err, stderr.String(), says, tc.want)
		}
	}
}
