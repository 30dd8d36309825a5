package manifests_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// forbidden are rights by which an account would get all others.
var forbidden = []string{"*", "escalate", "bind", "impersonate", "deletecollection"}

// guarded are kinds that no sidecar of this driver has to touch.
var guarded = []string{"*", "secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "roles", "clusterroles",
	"rolebindings", "clusterrolebindings", "daemonsets", "deployments", "nodes/proxy", "pods/exec"}

func TestRightsAreNarrow(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		for name, rules := range o.roles {
			for _, r := range rules {
				for _, verb := range r.Verbs {
					if slices.Contains(forbidden, verb) {
						t.Errorf("%s may %s %v", name, verb, r.Resources)
					}
				}
				for _, kind := range r.Resources {
					if slices.Contains(guarded, kind) {
						t.Errorf("%s may touch %s", name, kind)
					}
					if kind == "nodes" && !slices.Equal(r.Verbs, []string{"get", "list", "watch"}) {
						t.Errorf("%s may %v nodes", name, r.Verbs)
					}
				}
				if slices.Contains(r.APIGroups, "*") || len(r.NonResourceURLs) > 0 {
					t.Errorf("%s: %+v", name, r)
				}
			}
		}
	})
}

// The provisioner reads the VolumeAttributesClass of a claim and the resizer watches all of them, where the driver can
// modify volumes. On `local` it cannot, and they do neither.
func TestSidecarsMayReadVolumeAttributesClasses(t *testing.T) {
	need := map[string][]string{"provisioner": {"get"}, "resizer": {"get", "list", "watch"}}
	forEachSet(t, func(t *testing.T, o objects) {
		for name, rules := range o.roles {
			words := strings.Split(strings.TrimPrefix(name, "ClusterRole/"), "-")
			at := slices.IndexFunc(words, func(word string) bool { return need[word] != nil })
			if at < 0 || strings.HasPrefix(name, "Role/") {
				continue
			}
			want := need[words[at]]
			if slices.Contains(words, "local") {
				want = nil
			}
			var may []string
			for _, r := range rules {
				if slices.Contains(r.APIGroups, "storage.k8s.io") && slices.Contains(r.Resources, "volumeattributesclasses") {
					may = append(may, r.Verbs...)
				}
			}
			if !slices.Equal(may, want) {
				t.Errorf("%s may %v VolumeAttributesClasses, want %v", name, may, want)
			}
		}
	})
}

func TestEveryRoleIsBoundToAnAccountThatExists(t *testing.T) {
	forEachSet(t, func(t *testing.T, o objects) {
		bound := map[string]bool{}
		for _, b := range o.bindings {
			role := b.ref.Kind + "/" + b.ref.Name
			bound[role] = true
			if _, exists := o.roles[role]; !exists {
				t.Errorf("%s %s: there is no %s", b.kind, b.name, role)
			}
			if strings.TrimSuffix(b.kind, "Binding") != b.ref.Kind {
				t.Errorf("%s %s binds a %s", b.kind, b.name, b.ref.Kind)
			}
			for _, s := range b.subjects {
				if account, exists := o.serviceAccounts[s.Name]; s.Kind != "ServiceAccount" || !exists || s.Namespace != account.Namespace || s.Namespace == "" {
					t.Errorf("%s %s: subject %+v is none of ours", b.kind, b.name, s)
				}
			}
		}
		for role := range o.roles {
			if !bound[role] {
				t.Errorf("%s is bound to nobody", role)
			}
		}
	})
}

// Two drivers in one cluster must not overwrite each other's rights.
func TestClusterWideNamesBelongToOneOverlay(t *testing.T) {
	owner := map[string]string{}
	for name, dir := range sets() {
		for _, key := range parse(t, render(t, dir)).cluster {
			if other, taken := owner[key]; taken {
				t.Errorf("%s is in %s and in %s", key, name, other)
			}
			owner[key] = name
		}
	}
}

// The policies that write a node into claims look at the claims of all drivers: they may touch none but
// ours, and refuse none, whatever is wrong with them.
func TestHintsRefuseNothing(t *testing.T) {
	names, err := driver.NewNames("local", profile.ScopeNode, "", nil)
	must(t, err)
	hints := parse(t, combination{"local", []string{"snapshots", "source-node"}}.render(t))
	if len(hints.hints) == 0 {
		t.Fatal("found no policy")
	}
	for _, p := range hints.hints {
		if f := p.Spec.FailurePolicy; f == nil || *f != admissionv1.Ignore {
			t.Errorf("policy %s refuses claims when it is wrong itself", p.Name)
		}
		if !slices.ContainsFunc(p.Spec.MatchConditions, func(c admissionv1.MatchCondition) bool {
			return strings.Contains(c.Expression, "== '"+names.Driver+"'")
		}) {
			t.Errorf("policy %s does not look whose the source is", p.Name)
		}
		if !hints.hinting[p.Name] {
			t.Errorf("policy %s has no binding that gives it sources", p.Name)
		}
	}
}

// The policies that hold a token to its node work by names, and a name that is wrong there holds nobody.
func TestPoliciesAreAboutOurAccount(t *testing.T) {
	o := parse(t, render(t, sets()["local"]))
	if len(o.policies) == 0 {
		t.Fatal("found no policy")
	}
	user := "request.userInfo.username == 'system:serviceaccount:" + o.serviceAccounts["cloudblock-node"].Namespace + ":cloudblock-node'"
	for _, p := range o.policies {
		if c := p.Spec.MatchConditions; len(c) != 1 || c[0].Expression != user {
			t.Errorf("policy %s is about %v, want %s", p.Name, c, user)
		}
		if !o.denying[p.Name] {
			t.Errorf("policy %s denies nothing", p.Name)
		}
	}
}
