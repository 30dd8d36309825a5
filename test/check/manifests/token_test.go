package manifests_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestATokenCreatesAndDeletesVolumesOfItsNodeOnly(t *testing.T) {
	a := newBound(t, "a")
	create := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		return changed(volumeOf("a"), change)
	}
	for name, tc := range map[string]struct {
		as      boundTo
		op      admission.Operation
		volume  *corev1.PersistentVolume
		refused bool
	}{
		"creates one of its node":           {a, admission.Create, volumeOf("a"), false},
		"deletes one of its node":           {a, admission.Delete, volumeOf("a"), false},
		"creates one of another node":       {a, admission.Create, volumeOf("b"), true},
		"deletes one of another node":       {a, admission.Delete, volumeOf("b"), true},
		"of a node whose name begins alike": {a, admission.Create, volumeOf("ab"), true},
		"without a node in the token":       {newBound(t, ""), admission.Create, volumeOf("a"), true},
		"deletes one of another driver":     {a, admission.Delete, create(func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "ebs.csi.aws.com" }), true},
		"creates a folder of the node": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			v.Spec.CSI, v.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/"}
		}), true},
		"for a claim of another driver":   {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.StorageClassName, v.Spec.MountOptions = "other", nil }), true},
		"for a claim without a class":     {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" }), true},
		"bound in advance by name":        {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" }), true},
		"under the name of another claim": {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "2" }), true},
		"for no claim":                    {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }), true},
		"with another annotation":         {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Annotations["pv.kubernetes.io/bound-by-controller"] = "yes" }), true},
		"with a Secret for its deletion": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			v.Annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = "cloud-root"
		}), true},
		"for every node":                {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }), true},
		"for another node":              {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = affinity("b") }), true},
		"for another node too":          {a, admission.Create, create(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = affinity("a", "b") }), true},
		"with the Secrets of its class": {a, admission.Create, create(withSecrets), false},
		"with the Secrets of another claim": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			withSecrets(v)
			v.Spec.CSI.NodeStageSecretRef.Name = "other-key"
		}), true},
		"with those of another namespace": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			withSecrets(v)
			v.Spec.CSI.NodeStageSecretRef.Namespace = "kube-system"
		}), true},
		"with a Secret, for a class that does not exist": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			v.Spec.StorageClassName, v.Spec.CSI.NodeStageSecretRef = "manual", cloudRoot()
		}), true},
		// No policy can ask whether a class exists, so docs/security.md says that this is not prevented.
		"with a Secret of its claim's namespace, for a class that does not exist": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			v.Spec.StorageClassName, v.Spec.ClaimRef.Namespace, v.Spec.CSI.NodeStageSecretRef = "manual", "kube-system", cloudRoot()
		}), false},
		"of a class with a Secret elsewhere": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			v.Spec.StorageClassName, v.Spec.MountOptions, v.Spec.CSI.NodeStageSecretRef = "elsewhere", nil, cloudRoot()
		}), true},
		"without the Secrets of its class": {a, admission.Create, create(func(v *corev1.PersistentVolume) {
			withSecrets(v)
			v.Spec.CSI.NodeStageSecretRef = nil
		}), true},
		"another account is none of our care": {boundTo{a.policies, a.classes, &user.DefaultInfo{Name: "admin"}}, admission.Delete, volumeOf("b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			object, old := runtime.Object(tc.volume), runtime.Object(nil)
			if tc.op == admission.Delete {
				object, old = nil, tc.volume
			}
			tc.as.check(t, tc.op, object, old, tc.refused)
		})
	}
}

func TestATokenOnlyGrowsVolumes(t *testing.T) {
	a := newBound(t, "a")
	for name, tc := range map[string]struct {
		change  func(v *corev1.PersistentVolume)
		refused bool
	}{
		"the capacity": {func(v *corev1.PersistentVolume) {
			v.Spec.Capacity = corev1.ResourceList{"storage": resource.MustParse("2Gi")}
			v.Annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] = "1Gi"
		}, false},
		"no claim":            {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }, true},
		"its finalizer":       {func(v *corev1.PersistentVolume) { v.Finalizers = v.Finalizers[:1] }, true},
		"the other finalizer": {func(v *corev1.PersistentVolume) { v.Finalizers = v.Finalizers[1:] }, true},
		"an annotation":       {func(v *corev1.PersistentVolume) { v.Annotations["pv.kubernetes.io/provisioned-by"] = "y" }, true},
		"an annotation taken": {func(v *corev1.PersistentVolume) { v.Annotations = nil }, true},
		"an empty annotation": {func(v *corev1.PersistentVolume) { v.Annotations["x"] = "" }, true},
		"an annotation more":  {func(v *corev1.PersistentVolume) { v.Annotations["pv.kubernetes.io/bound-by-controller"] = "yes" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			for node, refused := range map[string]bool{"b": tc.refused, "a": tc.refused && name != "its finalizer"} {
				t.Run("of node "+node, func(t *testing.T) {
					a.check(t, admission.Update, changed(volumeOf(node), tc.change), volumeOf(node), refused)
				})
			}
		})
	}
}

func TestATokenTakesClaimsForItsNodeOnly(t *testing.T) {
	a := newBound(t, "a")
	claim := func(node string, finalizers ...string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{"x": "1", provisioner: ourDriver}, Finalizers: finalizers}}
		if node != "" {
			c.Annotations[selectedNode] = node
		}
		return c
	}
	const cloning, others = "provisioner.storage.kubernetes.io/cloning-protection", "kubernetes.io/pvc-protection"
	foreign := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		return changed(c, func(c *corev1.PersistentVolumeClaim) { c.Annotations[provisioner] = "ebs.csi.aws.com" })
	}
	grown := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		return changed(c, func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("2Gi")}
			c.Annotations["volume.kubernetes.io/node-expansion-not-required"] = "true"
		})
	}
	annotated := func(c *corev1.PersistentVolumeClaim, values map[string]string) *corev1.PersistentVolumeClaim {
		return changed(c, func(c *corev1.PersistentVolumeClaim) { maps.Copy(c.Annotations, values) })
	}
	for name, tc := range map[string]struct {
		old, object *corev1.PersistentVolumeClaim
		refused     bool
	}{
		"gives its own back":            {claim("a"), claim(""), false},
		"takes one of no node":          {claim(""), claim("a"), false},
		"takes one of another node":     {claim("b"), claim("a"), true},
		"sends one to another node":     {claim("a"), claim("b"), true},
		"takes one away from its node":  {claim("b"), claim(""), true},
		"holds the source of a clone":   {claim("b", others), claim("b", others, cloning), false},
		"lets the source of a clone go": {claim("b", others, cloning), claim("b", others), false},
		"removes another finalizer":     {claim("a", others), claim("a"), true},
		"adds another finalizer":        {claim("a"), claim("a", others), true},
		"writes another annotation":     {claim("a"), annotated(claim("a"), map[string]string{"x": "2"}), true},
		"adds an annotation":            {claim("a"), annotated(claim("a"), map[string]string{"y": "2"}), true},
		"removes all annotations":       {claim("a"), changed(claim(""), func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }), true},
		"reports a growth":              {claim("b"), grown(claim("b")), false},
		"a growth of another driver's":  {foreign(claim("a")), grown(foreign(claim("a"))), true},
		"takes another driver's":        {foreign(claim("")), foreign(claim("a")), true},
		"makes it its driver's":         {foreign(claim("a")), claim("a"), true},
		"has it collected":              {foreign(claim("b")), changed(foreign(claim("b")), func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = noOwner() }), true},
		"adds an empty annotation":      {claim("a"), annotated(claim("a"), map[string]string{"pv.kubernetes.io/bind-completed": ""}), true},
	} {
		t.Run(name, func(t *testing.T) {
			a.check(t, admission.Update, tc.object, tc.old, tc.refused)
		})
	}
}

func TestATokenPublishesTheCapacityOfItsNodeOnly(t *testing.T) {
	a := newBound(t, "a")
	capacity := func(labels ...string) *storagev1.CSIStorageCapacity {
		c := &storagev1.CSIStorageCapacity{StorageClassName: "ours", NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{}}}
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			c.NodeTopology.MatchLabels[key] = value
		}
		return c
	}
	const key = "topology.local.csi.cloudblock.io/node="
	for name, tc := range map[string]struct {
		op          admission.Operation
		object, old runtime.Object
		refused     bool
	}{
		"creates its own":              {admission.Create, capacity(key + "a"), nil, false},
		"changes its own":              {admission.Update, capacity(key + "a"), capacity(key + "a"), false},
		"deletes its own":              {admission.Delete, nil, capacity(key + "a"), false},
		"creates that of another node": {admission.Create, capacity(key + "b"), nil, true},
		"takes that of another node":   {admission.Update, capacity(key + "a"), capacity(key + "b"), true},
		"gives its own away":           {admission.Update, capacity(key + "b"), capacity(key + "a"), true},
		"deletes that of another node": {admission.Delete, nil, capacity(key + "b"), true},
		"of all nodes":                 {admission.Create, capacity(), nil, true},
		"of another driver":            {admission.Create, capacity("topology.ebs.csi.aws.com/zone=a"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			a.check(t, tc.op, tc.object, tc.old, tc.refused)
		})
	}
}

func TestATokenServesSnapshotsOfItsNodeOnly(t *testing.T) {
	// content is of a driver, with the label of a node, and has a handle.
	content := func(driver, node, handle string) *unstructured.Unstructured {
		c := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": snapshots.String(), "kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": "snapcontent-1"}, "spec": map[string]any{"driver": driver},
		}}
		if node != "" {
			c.SetLabels(map[string]string{"snapshot.storage.kubernetes.io/managed-by": node})
		}
		if handle != "" {
			c.Object["status"] = map[string]any{"snapshotHandle": handle}
		}
		return c
	}
	own := content(ourDriver, "a", "")
	unlabelled := content(ourDriver, "", "")
	unlabelled.SetLabels(map[string]string{"x": "a"})
	for name, tc := range map[string]struct {
		node        string
		old, object *unstructured.Unstructured
		refused     bool
	}{
		"one of its node":                   {"a", own, content(ourDriver, "a", "a/snapshot-1"), false},
		"one that is deleted":               {"a", content(ourDriver, "a", "a/snapshot-1"), own, false},
		"one of another node":               {"a", content(ourDriver, "b", ""), own, true},
		"one of no node":                    {"a", content(ourDriver, "", ""), own, true},
		"one without that label":            {"a", unlabelled, own, true},
		"one of another driver":             {"a", content("ebs.csi.aws.com", "a", ""), own, true},
		"without a node in the token":       {"", own, own, true},
		"gives its own away":                {"a", own, content(ourDriver, "b", ""), true},
		"claims a snapshot of another node": {"a", own, content(ourDriver, "a", "b/snapshot-1"), true},
		"of a node whose name begins alike": {"a", own, content(ourDriver, "a", "ab/snapshot-1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			newBound(t, tc.node).check(t, admission.Update, tc.object, tc.old, tc.refused)
		})
	}
}

func TestATokenHoldsSnapshotsByItsOwnMarks(t *testing.T) {
	// marked is a snapshot or the content of one, of the token's node, with finalizers and annotations.
	marked := func(kind string, finalizers []string, annotations map[string]string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": snapshots.String(), "kind": kind, "metadata": map[string]any{"name": "s"}, "spec": map[string]any{"driver": ourDriver},
		}}
		o.SetLabels(map[string]string{"snapshot.storage.kubernetes.io/managed-by": "a"})
		o.SetFinalizers(finalizers)
		o.SetAnnotations(annotations)
		return o
	}
	const (
		snapshot, content = "VolumeSnapshot", "VolumeSnapshotContent"
		restore           = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
		bound             = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	)
	begun := map[string]string{"snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes"}
	for name, tc := range map[string]struct {
		old, object *unstructured.Unstructured
		refused     bool
	}{
		"holds what it restores":          {marked(snapshot, nil, nil), marked(snapshot, []string{restore}, nil), false},
		"lets go of what it has restored": {marked(snapshot, []string{"f", restore}, nil), marked(snapshot, []string{"f"}, nil), false},
		"lets go of another's hold":       {marked(snapshot, []string{"f"}, nil), marked(snapshot, nil, nil), true},
		"annotates a snapshot":            {marked(snapshot, nil, nil), marked(snapshot, nil, begun), true},
		"notes that it has begun":         {marked(content, []string{bound}, nil), marked(content, []string{bound}, begun), false},
		"notes that it has ended":         {marked(content, nil, begun), marked(content, nil, nil), false},
		"lets go of what it has deleted":  {marked(content, []string{bound}, nil), marked(content, nil, nil), false},
		"lets go of another's content":    {marked(content, []string{bound, "f"}, nil), marked(content, []string{bound}, nil), true},
		"names a Secret of its own":       {marked(content, nil, nil), marked(content, nil, map[string]string{"snapshot.storage.kubernetes.io/deletion-secret-name": "x"}), true},
	} {
		t.Run(name, func(t *testing.T) {
			newBound(t, "a").check(t, admission.Update, tc.object, tc.old, tc.refused)
		})
	}
}
