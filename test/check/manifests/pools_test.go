package manifests_test

import (
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// TestSecondPoolOfTheDocument renders what docs/backends/local.md tells to write for a second pool.
func TestSecondPoolOfTheDocument(t *testing.T) {
	all := kustomizations(t)[filepath.Join(documents, "backends/local.md")]
	if len(all) != 2 {
		t.Fatalf("docs/backends/local.md has %d kustomizations, want those with a second pool and with LVM", len(all))
	}
	o := all[0].objects(t)
	pod := o.pods["DaemonSet/cloudblock-node"]
	const folder = "/var/lib/cloudblock-csi/fast"
	for _, c := range pod.Containers {
		if c.Name != "node" && c.Name != "controller" {
			continue
		}
		want := corev1.EnvVar{Name: "CLOUDBLOCK_FLAG_LOCAL_POOL", Value: "/var/lib/cloudblock-csi/pool,fast=" + folder}
		if !slices.Contains(c.Env, want) || !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "NODE_NAME" }) {
			t.Errorf("environment of %s: %v, want the node's name and %v", c.Name, c.Env, want)
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "fast" && m.MountPath == folder }) {
			t.Errorf("mounts of %s: %v, want %s", c.Name, c.VolumeMounts, folder)
		}
	}
	if nodesFolder(pod, "fast") != folder {
		t.Errorf("volumes: %v, want %s", pod.Volumes, folder)
	}
	for _, c := range all[1].objects(t).pods["DaemonSet/cloudblock-node"].Containers {
		want := corev1.EnvVar{Name: "CLOUDBLOCK_FLAG_LOCAL_POOL", Value: "/var/lib/cloudblock-csi/pool,group=lvm:vg"}
		if withLVM(c) != slices.Contains(c.Env, want) {
			t.Errorf("container %s: image %s, environment %v", c.Name, c.Image, c.Env)
		}
	}
	if !slices.ContainsFunc(o.classes, func(c storagev1.StorageClass) bool { return c.Parameters["pool"] == "fast" }) {
		t.Error("no class is of the pool")
	}
}
