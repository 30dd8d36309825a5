package manifests_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// TestSecondPoolOfTheDocument renders what docs/backends/local.md tells to write for a second pool.
func TestSecondPoolOfTheDocument(t *testing.T) {
	all := kustomizations(t)[filepath.Join(documents, "backends/local.md")]
	if len(all) != 1 {
		t.Fatalf("docs/backends/local.md has %d kustomizations, want the one with a second pool", len(all))
	}
	o := all[0].objects(t)
	pod := o.pods["DaemonSet/cloudblock-node"]
	const folder = "/var/lib/cloudblock-csi/fast"
	for _, c := range pod.Containers {
		if c.Name != "node" && c.Name != "controller" {
			continue
		}
		if !slices.Contains(c.Args, "--local-pool=fast="+folder) || !slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--local-pool=/") }) {
			t.Errorf("arguments of %s: %q, want both pools", c.Name, c.Args)
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "fast" && m.MountPath == folder }) {
			t.Errorf("mounts of %s: %v, want %s", c.Name, c.VolumeMounts, folder)
		}
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "fast" && v.HostPath.Path == folder }) {
		t.Errorf("volumes: %v, want %s", pod.Volumes, folder)
	}
	if !slices.ContainsFunc(o.classes, func(c storagev1.StorageClass) bool { return c.Parameters["pool"] == "fast" }) {
		t.Error("no class is of the pool")
	}
}
