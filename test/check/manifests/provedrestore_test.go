package manifests_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// provedRestore reads the example. Its account may do what the page says, in its namespace, and get and change the contents of snapshots.
func provedRestore(t *testing.T) (pod corev1.PodSpec) {
	t.Helper()
	account := rbacv1.Subject{Kind: "ServiceAccount", Name: "cloudblock-proved-restore", Namespace: "cloudblock-examples"}
	rights := map[string][]rbacv1.PolicyRule{
		"Role": {
			{APIGroups: []string{"snapshot.storage.k8s.io"}, Resources: []string{"volumesnapshots"}, Verbs: []string{"list"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		},
		"ClusterRole": {{APIGroups: []string{"snapshot.storage.k8s.io"}, Resources: []string{"volumesnapshotcontents"}, Verbs: []string{"get", "patch"}}},
	}
	var kinds []string
	for head, document := range objectsIn(t, example(t, "proved-restore.yaml")) {
		kinds = append(kinds, head.Kind)
		checkAccount(t, head.Kind, document, account, rights)
		if head.Kind == "CronJob" {
			pod = read[batchv1.CronJob](t, document).Spec.JobTemplate.Spec.Template.Spec
		}
	}
	if want := []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "CronJob"}; !slices.Equal(kinds, want) {
		t.Fatalf("the example has %q, want %q", kinds, want)
	}
	return pod
}

// step renders the template of a container of kubectl for an object, as the kubelet and kubectl do.
func step(t *testing.T, pod corev1.PodSpec, name, object string) string {
	t.Helper()
	at := slices.IndexFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	c := pod.InitContainers[at]
	known := map[string]string{"JOB": "nightly-29383838", "UID": "0e4b3c9a-3b1c-4b1e-9d6b-0d8f1f0f5a11"}
	var expand []string
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			e.Value = known[e.Name]
		}
		expand = append(expand, "$("+e.Name+")", e.Value)
	}
	text, is := strings.CutPrefix(strings.NewReplacer(expand...).Replace(c.Args[0]), "go-template=")
	parsed, err := template.New(name).Parse(text)
	if !is || err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var data any
	if err := json.Unmarshal([]byte(object), &data); err != nil { // as kubectl: integers stay integers
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out.String()
}

// The newest snapshot is the one that was taken last of this claim and is ready, in whatever order they are listed.
func TestProvedRestoreTakesTheNewestSnapshot(t *testing.T) {
	pod := provedRestore(t)
	const (
		old        = `{"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":{"readyToUse":true,"creationTime":"2026-01-02T03:04:05Z","boundVolumeSnapshotContentName":"old"}}`
		latest     = `{"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":{"readyToUse":true,"creationTime":"2026-01-12T00:00:00Z","boundVolumeSnapshotContentName":"new"}}`
		raw        = `{"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":{"readyToUse":false,"creationTime":"2026-02-01T00:00:00Z","boundVolumeSnapshotContentName":"raw"}}`
		odd        = `{"spec":{"source":{"persistentVolumeClaimName":"data2"}},"status":{"readyToUse":true,"creationTime":"2026-02-01T00:00:00Z","boundVolumeSnapshotContentName":"odd"}}`
		far        = `{"spec":{"source":{"volumeSnapshotContentName":"far"}},"status":{"readyToUse":true,"creationTime":"2026-02-01T00:00:00Z","boundVolumeSnapshotContentName":"far"}}`
		bare, half = `{"spec":{"source":{"persistentVolumeClaimName":"data"}}}`, `{"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":{"readyToUse":true}}`
	)
	for name, c := range map[string]struct {
		items []string
		want  string
	}{
		"no snapshot":                {nil, ""},
		"the newest last":            {[]string{old, bare, raw, odd, half, far, latest}, "new"},
		"the newest first":           {[]string{latest, far, half, odd, raw, bare, old}, "new"},
		"no snapshot that is usable": {[]string{bare, raw, odd, half, far}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := step(t, pod, "newest", `{"items":[`+strings.Join(c.items, ",")+`]}`)
			var content metav1.PartialObjectMetadata
			must(t, yaml.Unmarshal([]byte(text), &content))
			want := metav1.PartialObjectMetadata{}
			if c.want != "" {
				want.APIVersion, want.Kind, want.Name = "snapshot.storage.k8s.io/v1", "VolumeSnapshotContent", c.want
			}
			if !reflect.DeepEqual(content, want) {
				t.Errorf("the newest is %q, want %q", text, c.want)
			}
		})
	}
}

// The Job of the check goes with the one of the CronJob and by itself, and the volume with its pod.
func TestProvedRestoreLeavesNothing(t *testing.T) {
	pod := provedRestore(t)
	text := step(t, pod, "write", `{"spec":{"volumeSnapshotRef":{"name":"nightly"}},"status":{"restoreSize":10737418240,"creationTime":1767322845000000000}}`)
	job := read[batchv1.Job](t, []byte(text))
	owner := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "nightly-29383838", UID: "0e4b3c9a-3b1c-4b1e-9d6b-0d8f1f0f5a11"}}
	if job.Name != "nightly-29383838-check" || !reflect.DeepEqual(job.OwnerReferences, owner) {
		t.Errorf("the Job is %+v", job.ObjectMeta)
	}
	if s := job.Spec; s.TTLSecondsAfterFinished == nil || s.ActiveDeadlineSeconds == nil || *s.BackoffLimit != 0 {
		t.Errorf("the Job may stay: %+v", s)
	}
	spec := job.Spec.Template.Spec
	if *spec.AutomountServiceAccountToken || spec.RestartPolicy != corev1.RestartPolicyNever || len(spec.Volumes) != 1 || len(spec.Containers) != 1 {
		t.Fatalf("the pod is %+v", spec)
	}
	claim := spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec
	if *claim.VolumeMode != corev1.PersistentVolumeBlock || claim.DataSource.Kind+claim.DataSource.Name != "VolumeSnapshotnightly" || claim.Resources.Requests.Storage().Value() != 10<<30 {
		t.Errorf("the claim is %+v", claim)
	}
	c := spec.Containers[0]
	if s := c.SecurityContext; s.Privileged != nil || *s.RunAsUser != 0 || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		!slices.Equal(s.Capabilities.Add, []corev1.Capability{"SYS_ADMIN", "DAC_READ_SEARCH"}) || !*s.ReadOnlyRootFilesystem || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("the container is %+v", c)
	}
	if c.Image != "ghcr.io/cloudblock-csi/node:unreleased" || !slices.Equal(c.Args, []string{"check", c.VolumeDevices[0].DevicePath, "--replay", "--snapshot-time=1767322845000000000", "--max-age=48h"}) {
		t.Errorf("the container runs %s %q", c.Image, c.Args)
	}
}

// Only kubectl runs in the pod of the CronJob, without a shell and without a right on the node, and nothing in it deletes.
func TestProvedRestoreIsKubectlOnly(t *testing.T) {
	pod := provedRestore(t)
	if *pod.AutomountServiceAccountToken || !*pod.SecurityContext.RunAsNonRoot || pod.ServiceAccountName != "cloudblock-proved-restore" {
		t.Errorf("the pod is %+v", pod)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("container %s has more than it needs: %+v", c.Name, c)
		}
		if !strings.HasPrefix(c.Image, "registry.k8s.io/kubectl:v") || !mounts(c, "api-token") || !mounts(c, "steps") {
			t.Errorf("container %s is %+v", c.Name, c)
		}
		if !slices.Contains(c.Command, "/bin/kubectl") || slices.Contains(c.Command, "delete") {
			t.Errorf("container %s runs %q", c.Name, c.Command)
		}
	}
}
