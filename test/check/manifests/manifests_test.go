// Package manifests_test renders what is below deploy/ and holds it to the rules that a review would
// otherwise have to check by eye. It is a module of its own, so that kustomize and the API's types stay
// out of the programs' dependencies.
package manifests_test

import (
	"bytes"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

const deploy = "../../../deploy"

var (
	rendering sync.Mutex
	rendered  = map[string][]byte{}
)

// render renders a folder, once.
func render(t *testing.T, dir string) []byte {
	t.Helper()
	rendering.Lock()
	defer rendering.Unlock()
	if _, done := rendered[dir]; !done {
		rendered[dir] = build(t, dir)
	}
	return rendered[dir]
}

// build runs the kustomize that go.mod pins. It runs in this process, so that the cache of test results knows which files
// it has read.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // what the command has
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	out, err := resources.AsYaml()
	must(t, err)
	return out
}

// overlays are the clouds that there are manifests for.
func overlays(t *testing.T) []string {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(deploy, "overlays"))
	must(t, err)
	names := make([]string, 0, len(found))
	for _, f := range found {
		names = append(names, f.Name())
	}
	return names
}

func TestRenderedManifestsAreCurrent(t *testing.T) {
	want := []string{}
	for _, name := range overlays(t) {
		file := name + ".yaml"
		want = append(want, file)
		golden, err := os.ReadFile(filepath.Join(deploy, "testdata", file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if !bytes.Equal(golden, render(t, filepath.Join(deploy, "overlays", name))) {
			t.Errorf("deploy/testdata/%s is not what deploy/overlays/%s renders to: run `make manifests`, and look at the difference", file, name)
		}
	}
	found, err := os.ReadDir(filepath.Join(deploy, "testdata"))
	must(t, err)
	for _, f := range found {
		if !slices.Contains(want, f.Name()) {
			t.Errorf("deploy/testdata/%s belongs to no overlay", f.Name())
		}
	}
}

// objects are the parts of a rendering that the rules look at.
type objects struct {
	pods            map[string]corev1.PodSpec // by kind/name
	serviceAccounts map[string]corev1.ServiceAccount
	roles           map[string][]rbacv1.PolicyRule // by kind/name
	bindings        []binding
	drivers         []storagev1.CSIDriver
	classes         []storagev1.StorageClass
	snapshotClasses []snapshotClass
	policies        []admissionv1.ValidatingAdmissionPolicy
	denying         map[string]bool // policies whose binding denies
	hints           []admissionv1.MutatingAdmissionPolicy
	hinting         map[string]bool // hints that have a binding with parameters
	namespaces      map[string]bool
	budgets         []policyv1.PodDisruptionBudget
	networkPolicies []networkingv1.NetworkPolicy
	services        []corev1.Service
	monitoring      []monitoringObject
	dashboard       corev1.ConfigMap
	settings        map[string]string // of the ConfigMap cloudblock-settings
	cluster         []string          // kind/name of what is cluster-wide
}

// monitoringObject is what the rules look at in a PodMonitor or a PrometheusRule, whose Go types are in another module.
type monitoringObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct{ Name, Namespace string }
	Spec       struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port        string `json:"port"`
			Relabelings []struct {
				Action       string   `json:"action"`
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		} `json:"groups"`
	}
}

type binding struct {
	kind, name string
	ref        rbacv1.RoleRef
	subjects   []rbacv1.Subject
}

// snapshotClass is what the rules look at in a VolumeSnapshotClass, whose Go type is in another module.
type snapshotClass struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
		Annotations     map[string]string
	}
	Driver         string            `json:"driver"`
	DeletionPolicy string            `json:"deletionPolicy"`
	Parameters     map[string]string `json:"parameters"`
}

// sets are the renderings that all rules apply to: those that people install, and the bases on a cloud
// that does not exist.
var sets = sync.OnceValue(func() map[string]string {
	dirs := map[string]string{
		"snapshot-controller": filepath.Join(deploy, "snapshot-controller"),
		"cloud":               "testdata/cloud",
	}
	found, _ := filepath.Glob(filepath.Join(deploy, "overlays", "*"))
	for _, dir := range found {
		dirs[filepath.Base(dir)] = dir
	}
	return dirs
})

// forEachSet runs a rule over every rendering, also with components.
func forEachSet(t *testing.T, rule func(t *testing.T, o objects)) {
	t.Helper()
	for name, dir := range sets() {
		t.Run(name, func(t *testing.T) { rule(t, parse(t, render(t, dir))) })
	}
	for _, c := range combinations(t) {
		t.Run(c.name(), func(t *testing.T) { rule(t, parse(t, c.render(t))) })
	}
}

// parse reads every document strictly: a field that the API does not have is a mistake.
func parse(t *testing.T, rendered []byte) objects {
	t.Helper()
	o := objects{
		pods: map[string]corev1.PodSpec{}, serviceAccounts: map[string]corev1.ServiceAccount{},
		roles: map[string][]rbacv1.PolicyRule{}, namespaces: map[string]bool{}, denying: map[string]bool{},
		hinting: map[string]bool{},
	}
	for document := range strings.SplitSeq(string(rendered), "\n---\n") {
		o.add(t, []byte(document))
	}
	return o
}

func read[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	return object
}

// example returns an example.
func example(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "examples", file))
	must(t, err)
	return text
}

// relative returns the way from a folder to a path of this one's.
func relative(t *testing.T, dir, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	must(t, err)
	way, err := filepath.Rel(dir, absolute)
	must(t, err)
	return way
}

// objectsIn yields the objects in a text, with their metadata.
func objectsIn(t *testing.T, text []byte) iter.Seq2[metav1.PartialObjectMetadata, []byte] {
	return func(yield func(metav1.PartialObjectMetadata, []byte) bool) {
		t.Helper()
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var head metav1.PartialObjectMetadata
			must(t, yaml.Unmarshal(document, &head))
			if !yield(head, document) {
				return
			}
		}
	}
}

// checkAccount: an example's account may do what the rules say, by the kind of the role, and its token is mounted only where a container
// needs it. A role of the cluster has all fields of one of a namespace.
func checkAccount(t *testing.T, kind string, document []byte, account rbacv1.Subject, rights map[string][]rbacv1.PolicyRule) {
	t.Helper()
	switch kind {
	case "ServiceAccount":
		if a := read[corev1.ServiceAccount](t, document); a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
			t.Errorf("the account's token is mounted everywhere: %+v", a)
		}
	case "Role", "ClusterRole":
		if got := read[rbacv1.ClusterRole](t, document).Rules; !reflect.DeepEqual(got, rights[kind]) {
			t.Errorf("by the %s %s may %+v, want %+v", kind, account.Name, got, rights[kind])
		}
	case "RoleBinding", "ClusterRoleBinding":
		if b := read[rbacv1.ClusterRoleBinding](t, document); !slices.Equal(b.Subjects, []rbacv1.Subject{account}) || b.RoleRef.Name != b.Name {
			t.Errorf("the rights of %s go to %+v", account.Name, b)
		}
	}
}

// add reads one object. A kind that it does not know is a mistake, so that no rule misses it.
func (o *objects) add(t *testing.T, document []byte) {
	t.Helper()
	var head struct {
		Kind     string
		Metadata struct{ Name string }
	}
	must(t, yaml.Unmarshal(document, &head))
	key := head.Kind + "/" + head.Metadata.Name
	switch head.Kind {
	case "Namespace":
		o.namespaces[read[corev1.Namespace](t, document).Name] = true
	case "ServiceAccount":
		o.serviceAccounts[head.Metadata.Name] = read[corev1.ServiceAccount](t, document)
	case "DaemonSet":
		o.pods[key] = read[appsv1.DaemonSet](t, document).Spec.Template.Spec
	case "Deployment":
		o.pods[key] = read[appsv1.Deployment](t, document).Spec.Template.Spec
	case "PodDisruptionBudget":
		o.budgets = append(o.budgets, read[policyv1.PodDisruptionBudget](t, document))
	case "ConfigMap":
		if head.Metadata.Name == "cloudblock-dashboard" {
			o.dashboard = read[corev1.ConfigMap](t, document)
			return
		}
		o.settings = read[corev1.ConfigMap](t, document).Data
	case "Role":
		o.roles[key] = read[rbacv1.Role](t, document).Rules
	case "ClusterRole":
		o.roles[key] = read[rbacv1.ClusterRole](t, document).Rules
		o.cluster = append(o.cluster, key)
	case "RoleBinding":
		b := read[rbacv1.RoleBinding](t, document)
		o.bindings = append(o.bindings, binding{head.Kind, b.Name, b.RoleRef, b.Subjects})
	case "ClusterRoleBinding":
		b := read[rbacv1.ClusterRoleBinding](t, document)
		o.bindings = append(o.bindings, binding{head.Kind, b.Name, b.RoleRef, b.Subjects})
		o.cluster = append(o.cluster, key)
	case "CSIDriver":
		o.drivers = append(o.drivers, read[storagev1.CSIDriver](t, document))
	case "StorageClass":
		o.classes = append(o.classes, read[storagev1.StorageClass](t, document))
	case "VolumeSnapshotClass":
		o.snapshotClasses = append(o.snapshotClasses, read[snapshotClass](t, document))
	case "ValidatingAdmissionPolicy":
		o.policies = append(o.policies, read[admissionv1.ValidatingAdmissionPolicy](t, document))
	case "ValidatingAdmissionPolicyBinding":
		b := read[admissionv1.ValidatingAdmissionPolicyBinding](t, document)
		o.denying[b.Spec.PolicyName] = slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
	case "MutatingAdmissionPolicy":
		o.hints = append(o.hints, read[admissionv1.MutatingAdmissionPolicy](t, document))
	case "MutatingAdmissionPolicyBinding":
		b := read[admissionv1.MutatingAdmissionPolicyBinding](t, document)
		o.hinting[b.Spec.PolicyName] = b.Spec.ParamRef != nil
	case "Service":
		o.services = append(o.services, read[corev1.Service](t, document))
	case "NetworkPolicy":
		o.networkPolicies = append(o.networkPolicies, read[networkingv1.NetworkPolicy](t, document))
	case "PodMonitor", "PrometheusRule":
		o.monitoring = append(o.monitoring, read[monitoringObject](t, document))
	default:
		t.Errorf("%s: a kind that no rule knows; teach this test about it", key)
	}
}
