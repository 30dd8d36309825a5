package manifests_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// Why a change of a field is admitted.
const (
	byServer  = "the API server sets it, or refuses the change"
	oneSource = "the API server refuses a second source of a volume, and another one"
	noRight   = "the role has no right to this subresource"
	growth    = "a growth changes it"
	noClass   = "a volume of a class that does not exist has Secrets of its claim's namespace or the driver's at most"
	ownNode   = "only the token's own node acts on it"
	own       = "the driver's own; the tests of a token have its bounds"
)

// serversMetadata are the fields of every object that no policy has to mention.
var serversMetadata = map[string]string{
	"kind": byServer, "apiVersion": byServer,
	"metadata.name": byServer, "metadata.generateName": byServer, "metadata.namespace": byServer, "metadata.selfLink": byServer,
	"metadata.uid": byServer, "metadata.resourceVersion": byServer, "metadata.generation": byServer,
	"metadata.creationTimestamp": byServer, "metadata.deletionTimestamp": byServer, "metadata.deletionGracePeriodSeconds": byServer,
	"metadata.managedFields": byServer,
}

func admits(fields map[string]string) map[string]string {
	all := maps.Clone(serversMetadata)
	maps.Copy(all, fields)
	return all
}

// sources are the fields of a volume for other kinds of volumes.
func sources() map[string]string {
	all := map[string]string{"status": noRight}
	for f := range reflect.TypeFor[corev1.PersistentVolumeSource]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "csi" {
			all["spec."+name] = oneSource
		}
	}
	return all
}

// TestNoFieldIsForgotten changes each field of what the token may write, one at a time, also those that a newer Kubernetes
// has added: what the policies admit is listed here, with why.
func TestNoFieldIsForgotten(t *testing.T) {
	volume, created := sources(), sources()
	volume["spec.capacity"] = growth
	maps.Copy(created, map[string]string{
		"spec.capacity": ownNode, "spec.accessModes": ownNode, "spec.volumeMode": ownNode, "spec.volumeAttributesClassName": ownNode,
		"spec.csi.readOnly": ownNode, "spec.csi.fsType": ownNode, "spec.csi.volumeAttributes": ownNode, "spec.csi.volumeHandle": own,
		"spec.claimRef": byServer, "spec.storageClassName": noClass,
	})
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{provisioner: ourDriver, selectedNode: "a"}},
	}
	pv := volumeOf("a")
	pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	for name, tc := range map[string]struct {
		op     admission.Operation
		object any
		admits map[string]string
	}{
		"a new volume": {admission.Create, pv, created},
		"a volume":     {admission.Update, pv, volume},
		"a claim": {admission.Update, claim, map[string]string{
			"status.capacity": growth, "status.conditions": growth, "status.allocatedResources": growth, "status.allocatedResourceStatuses": growth,
		}},
		"a snapshot": {admission.Update, &snapshotv1.VolumeSnapshot{
			TypeMeta: metav1.TypeMeta{APIVersion: snapshots.String(), Kind: "VolumeSnapshot"}, ObjectMeta: metav1.ObjectMeta{Name: "s"},
		}, map[string]string{}},
		"a snapshot's content": {admission.Update, &snapshotv1.VolumeSnapshotContent{
			TypeMeta:   metav1.TypeMeta{APIVersion: snapshots.String(), Kind: "VolumeSnapshotContent"},
			ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"snapshot.storage.kubernetes.io/managed-by": "a"}},
			Spec:       snapshotv1.VolumeSnapshotContentSpec{Driver: ourDriver},
			Status:     &snapshotv1.VolumeSnapshotContentStatus{},
		}, map[string]string{
			"status.creationTime": own, "status.restoreSize": own, "status.readyToUse": own, "status.error": own, "status.volumeGroupSnapshotHandle": own,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := admitted(t, newBound(t, "a"), tc.op, tc.object), admits(tc.admits)
			for _, field := range got {
				if want[field] == "" {
					t.Errorf("no rule mentions %s", field)
				}
			}
			for field, why := range want {
				if why != byServer && !slices.Contains(got, field) {
					t.Errorf("a change of %s is refused; it was to be admitted, because: %s", field, why)
				}
			}
		})
	}
}

// volumeOfNewerKubernetes has a field that no policy knows.
type volumeOfNewerKubernetes struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		corev1.PersistentVolumeSpec `json:",inline"`

		Newer string `json:"newer,omitempty"`
	} `json:"spec"`
}

// TestAnAddedFieldIsFound is the proof that TestNoFieldIsForgotten can fail.
func TestAnAddedFieldIsFound(t *testing.T) {
	old := volumeOf("a")
	newer := &volumeOfNewerKubernetes{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: old.ObjectMeta}
	newer.Spec.PersistentVolumeSpec = old.Spec
	if got := admitted(t, newBound(t, "a"), admission.Update, newer); !slices.Contains(got, "spec.newer") {
		t.Errorf("admitted are %q, want spec.newer among them", got)
	}
}

// admitted are the fields of an object that the token may change, or choose when it creates the object.
func admitted(t *testing.T, b boundTo, op admission.Operation, object any) []string {
	t.Helper()
	if said := b.refusals(t, op, unstructuredOf(t, object), oldFor(t, op, object)); len(said) > 0 {
		t.Fatalf("the object as it is is refused: %q", said)
	}
	var fields []string
	for _, path := range paths(reflect.ValueOf(object).Elem(), nil) {
		other := reflect.New(reflect.TypeOf(object).Elem())
		data, err := json.Marshal(object)
		if err == nil {
			err = json.Unmarshal(data, other.Interface())
		}
		must(t, err)
		at := other.Elem()
		for _, i := range path.index {
			if at.Kind() == reflect.Pointer {
				at = at.Elem()
			}
			at = at.Field(i)
		}
		if !change(at) {
			t.Fatalf("%s cannot be changed", path.name)
		}
		if reflect.DeepEqual(unstructuredOf(t, object), unstructuredOf(t, other.Interface())) {
			t.Fatalf("%s was not changed", path.name)
		}
		if len(b.refusals(t, op, unstructuredOf(t, other.Interface()), oldFor(t, op, object))) == 0 {
			fields = append(fields, path.name)
		}
	}
	return fields
}

func oldFor(t *testing.T, op admission.Operation, object any) runtime.Object {
	t.Helper()
	if op == admission.Create {
		return nil
	}
	return unstructuredOf(t, object)
}

func unstructuredOf(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	must(t, err)
	return &unstructured.Unstructured{Object: fields}
}

// path is a field: its name in JSON, and where it is in the type.
type path struct {
	name  string
	index []int
}

// paths are the fields of a struct, and of the structs in it that are there.
func paths(v reflect.Value, prefix []string) []path {
	var all []path
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		full := prefix
		if name != "" { // else its fields are inline
			full = append(slices.Clone(prefix), name)
		}
		at := v.Field(i)
		if at.Kind() == reflect.Pointer && !at.IsNil() {
			at = at.Elem()
		}
		inner := []path{{name: strings.Join(full, ".")}}
		switch at.Interface().(type) {
		case metav1.Time, resource.Quantity, corev1.ObjectReference, corev1.VolumeNodeAffinity:
		default:
			// The status of a volume is one right.
			if at.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[corev1.PersistentVolume]() || name == "spec" || name == "metadata" || name == "" {
				if at.Kind() == reflect.Struct {
					inner = paths(at, full)
				}
			}
		}
		for _, p := range inner {
			all = append(all, path{p.name, append([]int{i}, p.index...)})
		}
	}
	return all
}

// change gives a field another value, and reports whether it could.
func change(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(v.Int() + 1)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return change(v.Elem()) || v.Type().Elem().Kind() == reflect.Struct
	case reflect.Slice:
		item := reflect.New(v.Type().Elem()).Elem()
		change(item)
		v.Set(reflect.Append(v, item))
	case reflect.Map:
		item := reflect.New(v.Type().Elem()).Elem()
		change(item)
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), item)
	case reflect.Struct:
		switch value := v.Addr().Interface().(type) {
		case *metav1.Time:
			*value = metav1.Unix(1, 0)
			return true
		case *resource.Quantity:
			*value = resource.MustParse("7Gi")
			return true
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() && change(v.Field(i)) {
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}
