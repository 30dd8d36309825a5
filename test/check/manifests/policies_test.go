package manifests_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	nodesAccount = "system:serviceaccount:cloudblock-local:cloudblock-node"
	nodeOfToken  = "authentication.kubernetes.io/node-name"
	selectedNode = "volume.kubernetes.io/selected-node"
	provisioner  = "volume.kubernetes.io/storage-provisioner"
	ourDriver    = "local.csi.cloudblock.io"
)

var snapshots = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// boundTo is the API server's own evaluation of the overlay's policies, as Kubernetes 1.32 compiles them.
type boundTo struct {
	policies []admissionv1.ValidatingAdmissionPolicy
	classes  []*storagev1.StorageClass
	user     user.Info
}

func newBound(t *testing.T, node string) boundTo {
	t.Helper()
	extra := map[string][]string{}
	if node != "" {
		extra[nodeOfToken] = []string{node}
	}
	reclaim := func(p corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolumeReclaimPolicy { return &p }
	return boundTo{
		policies: parse(t, render(t, sets()["local"])).policies,
		classes: []*storagev1.StorageClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Provisioner: "local.csi.cloudblock.io", ReclaimPolicy: reclaim("Delete"), MountOptions: []string{"noatime"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "ebs.csi.aws.com", ReclaimPolicy: reclaim("Delete")},
			{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Provisioner: ourDriver, ReclaimPolicy: reclaim("Delete"), Parameters: map[string]string{
				"csi.storage.k8s.io/node-stage-secret-name": "cloud-root", "csi.storage.k8s.io/node-stage-secret-namespace": "kube-system",
			}},
			{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, Provisioner: ourDriver, ReclaimPolicy: reclaim("Delete"), Parameters: map[string]string{
				"luks": "true",
				"csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}-key", "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
				"csi.storage.k8s.io/node-expand-secret-name": "keys", "csi.storage.k8s.io/node-expand-secret-namespace": "cloudblock-local",
			}},
		},
		user: &user.DefaultInfo{Name: nodesAccount, Extra: extra},
	}
}

// refusals are what the policies say against a change of an object; nil stands for an object that is not there.
func (b boundTo) refusals(t *testing.T, op admission.Operation, object, old runtime.Object) []string {
	t.Helper()
	gvk, gvr := kindOf(t, object, old)
	var said []string
	for _, p := range b.policies {
		if !matches(p, gvr, op) {
			continue
		}
		params := []runtime.Object{nil}
		if p.Spec.ParamKind != nil {
			params = params[:0]
			for _, c := range b.classes {
				params = append(params, c)
			}
		}
		for _, param := range params {
			attributes := &admission.VersionedAttributes{
				Attributes:    admission.NewAttributesRecord(object, old, gvk, "", "x", gvr, "", op, nil, false, b.user),
				VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
			}
			result := compiled(t, p).Validate(t.Context(), gvr, attributes, param, nil, apiservercel.RuntimeCELCostBudget, nil)
			for _, d := range result.Decisions {
				if d.Action != validating.ActionAdmit || d.Evaluation == validating.EvalError {
					said = append(said, d.Message)
				}
			}
		}
	}
	return said
}

// check fails the test unless the policies refuse the change, or admit it.
func (b boundTo) check(t *testing.T, op admission.Operation, object, old runtime.Object, refused bool) {
	t.Helper()
	if said := b.refusals(t, op, object, old); (len(said) > 0) != refused {
		t.Errorf("%s is refused with %q, want a refusal: %t", op, said, refused)
	}
}

func kindOf(t *testing.T, objects ...runtime.Object) (schema.GroupVersionKind, schema.GroupVersionResource) {
	t.Helper()
	for _, o := range objects {
		switch o.(type) {
		case *corev1.PersistentVolume:
			return corev1.SchemeGroupVersion.WithKind("PersistentVolume"), corev1.SchemeGroupVersion.WithResource("persistentvolumes")
		case *corev1.PersistentVolumeClaim:
			return corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
		case *storagev1.CSIStorageCapacity:
			return storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"), storagev1.SchemeGroupVersion.WithResource("csistoragecapacities")
		case *unstructured.Unstructured:
			kind := o.(*unstructured.Unstructured).GroupVersionKind()
			return kind, kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
		}
	}
	t.Fatal("an object that no policy is about")
	return schema.GroupVersionKind{}, schema.GroupVersionResource{}
}

func matches(p admissionv1.ValidatingAdmissionPolicy, gvr schema.GroupVersionResource, op admission.Operation) bool {
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, gvr.Group) && slices.Contains(r.Resources, gvr.Resource) && slices.Contains(r.Operations, admissionv1.OperationType(op))
	})
}

func compiled(t *testing.T, p admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 32)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	const mode = environment.NewExpressions // those that this version has
	var variables []plugincel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, options, mode)
	var conditions, validations []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, mode), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	none := compiler.CompileCondition(nil, options, mode)
	return validating.NewValidator(compiler.CompileCondition(validations, options, mode), matcher, none, none, p.Spec.FailurePolicy, nil)
}

// volumeOf is a volume as the provisioner on a node creates it.
func volumeOf(node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", Finalizers: []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            ourDriver,
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "local.csi.cloudblock.io", VolumeHandle: node + "/0123", FSType: "ext4",
			}},
			AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, StorageClassName: "ours", MountOptions: []string{"noatime"},
			PersistentVolumeReclaimPolicy: "Delete", ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "1"},
			NodeAffinity: affinity(node),
		},
	}
}

// affinity is that of a volume of these nodes.
func affinity(nodes ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.local.csi.cloudblock.io/node", Operator: "In", Values: nodes}},
	}}}}
}

// withSecrets is a volume of the class with Secrets, as the provisioner creates it.
func withSecrets(v *corev1.PersistentVolume) {
	v.Spec.StorageClassName, v.Spec.MountOptions = "secret", nil
	v.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Name: "data-key", Namespace: "shop"}
	v.Spec.CSI.NodeExpandSecretRef = &corev1.SecretReference{Name: "keys", Namespace: "cloudblock-local"}
}

// changed is an object with one change.
func changed[T any](object *T, change func(*T)) *T {
	change(object)
	return object
}

// cloudRoot is a Secret that no class names.
func cloudRoot() *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: "kube-system", Name: "cloud-root"}
}

// noOwner is an owner that does not exist: the garbage collector deletes what has it.
func noOwner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "0"}}
}
