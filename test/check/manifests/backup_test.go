package manifests_test

import (
	"reflect"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// backupAccount is the account of the backup in the examples.
var backupAccount = rbacv1.Subject{Kind: "ServiceAccount", Name: "changed-blocks", Namespace: "cloudblock-examples"}

// TestBackupMayReadWhichBlocks: the account of the incremental backup may read snapshots and where the sidecar is, and have a token of its
// own made. Its jobs run on the node of the volume, only the container that asks has a token, and each reads the volume of the
// snapshot that it names.
func TestBackupMayReadWhichBlocks(t *testing.T) {
	rights := map[string][]rbacv1.PolicyRule{
		"Role": {
			{APIGroups: []string{"snapshot.storage.k8s.io"}, Resources: []string{"volumesnapshots"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"changed-blocks"}, Verbs: []string{"create"}},
		},
		"ClusterRole": {
			{APIGroups: []string{"snapshot.storage.k8s.io"}, Resources: []string{"volumesnapshotcontents"}, Verbs: []string{"get"}},
			{APIGroups: []string{"cbt.storage.k8s.io"}, Resources: []string{"snapshotmetadataservices"}, ResourceNames: []string{"local.csi.cloudblock.io"}, Verbs: []string{"get"}},
		},
	}
	var kinds []string
	for _, file := range []string{"changed-blocks.yaml", "changed-blocks-incremental.yaml"} {
		for head, document := range objectsIn(t, example(t, file)) {
			kinds = append(kinds, head.Kind)
			checkAccount(t, head.Kind, document, backupAccount, rights)
			if head.Kind == "Job" {
				checkBackup(t, read[batchv1.Job](t, document))
			}
		}
	}
	want := []string{
		"ClusterRole", "ClusterRoleBinding", "Job", "Job", "PersistentVolumeClaim", "PersistentVolumeClaim", "PersistentVolumeClaim", "Role", "RoleBinding",
		"ServiceAccount", "VolumeSnapshot", "VolumeSnapshot",
	}
	if slices.Sort(kinds); !slices.Equal(kinds, want) {
		t.Errorf("the backup is %q, want %q", kinds, want)
	}
}

// checkBackup checks a job of the backup.
func checkBackup(t *testing.T, job batchv1.Job) {
	t.Helper()
	pod := job.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != backupAccount.Name || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the pod of %s is %+v", job.Name, pod)
	}
	volume := read[corev1.Pod](t, podOf(t, "block.yaml"))
	near := pod.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(near) != 1 || near[0].TopologyKey != corev1.LabelHostname || !reflect.DeepEqual(near[0].LabelSelector.MatchLabels, volume.Labels) || len(volume.Labels) == 0 {
		t.Errorf("%s runs near %+v, want the pod with the labels %v of the volume", job.Name, near, volume.Labels)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.Privileged != nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: container %s has more than it needs: %+v", job.Name, c.Name, s)
		}
		if asks := len(c.VolumeDevices) > 0; mounts(c, "api-token") != asks {
			t.Errorf("%s: container %s has a token: %t, and devices: %t", job.Name, c.Name, !asks, asks)
		}
	}
	source := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "source" })].PersistentVolumeClaim.ClaimName
	if c := pod.Containers[0]; !slices.Contains(c.Command, "-s="+source) || !slices.Contains(c.Command, "-n="+job.Namespace) {
		t.Errorf("%s asks for the blocks of another snapshot than that of the claim %s: %q", job.Name, source, c.Command)
	}
}

// podOf returns the pod of an example.
func podOf(t *testing.T, file string) []byte {
	t.Helper()
	for head, document := range objectsIn(t, example(t, file)) {
		if head.Kind == "Pod" {
			return document
		}
	}
	t.Fatalf("%s has no pod", file)
	return nil
}
