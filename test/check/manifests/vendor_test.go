package manifests_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
)

// Everything that has the driver's name has the vendor's, and the token comes from the vendor's secret.
func TestVendorComponents(t *testing.T) {
	tests := map[string]struct {
		name, secret, key string
		classes           []string
		components        []string // more of them
		snapshotClasses   int
	}{
		"vendor-digitalocean": {
			"dobs.csi.digitalocean.com", "digitalocean", "access-token",
			[]string{"do-block-storage", "do-block-storage-retain", "do-block-storage-xfs", "do-block-storage-xfs-retain"},
			[]string{"snapshots", "vendor-digitalocean/snapshots"}, 2,
		},
		"vendor-linode": {
			"linodebs.csi.linode.com", "linode", "token",
			[]string{"linode-block-storage", "linode-block-storage-retain"}, nil, 0,
		},
		"vendor-yandex": {
			"yandex.csi.flant.com", "csi-credentials", "serviceAccountJSON",
			[]string{"network-hdd", "network-ssd", "network-ssd-nonreplicated", "network-ssd-io-m3"},
			[]string{"snapshots"}, 1,
		},
	}
	folders, err := filepath.Glob(filepath.Join(deploy, "components", "vendor-*"))
	if err != nil || len(folders) < 3 {
		t.Fatalf("the components are %q, %v", folders, err)
	}
	for _, folder := range folders {
		if _, has := tests[filepath.Base(folder)]; !has {
			t.Errorf("no case is about %s", folder)
		}
	}
	for component, tc := range tests {
		t.Run(component, func(t *testing.T) {
			if compat.Of(tc.name) == nil {
				t.Errorf("%s is no vendor's driver to the programs", tc.name)
			}
			o := parse(t, combination{strings.TrimPrefix(component, "vendor-"), append([]string{component}, tc.components...)}.render(t))
			checkName(t, o, tc.name)
			if !*o.drivers[0].Spec.AttachRequired {
				t.Errorf("the CSIDriver object is %+v, want one that attaches", o.drivers[0])
			}
			var classes []string
			for _, c := range o.classes {
				classes = append(classes, c.Name)
			}
			for _, want := range tc.classes {
				if !slices.Contains(classes, want) {
					t.Errorf("the StorageClasses are %v, without the other driver's %s", classes, want)
				}
			}
			if len(o.snapshotClasses) != tc.snapshotClasses {
				t.Errorf("the VolumeSnapshotClasses are %v, want %d", o.snapshotClasses, tc.snapshotClasses)
			}
			checkStarted(t, o.pods["Deployment/cloudblock-controller"], "controller", tc.name)
			checkStarted(t, o.pods["DaemonSet/cloudblock-node"], "node", tc.name)
			checkToken(t, o.pods["Deployment/cloudblock-controller"], tc.secret, tc.key)
		})
	}
}

// checkStarted: the program is started once, under the name.
func checkStarted(t *testing.T, pod corev1.PodSpec, container, name string) {
	t.Helper()
	started := 0
	for _, c := range pod.Containers {
		if c.Name == container {
			started++
			if args := expand(c); c.Image == "" || !slices.Contains(args, "--driver-name="+name) {
				t.Errorf("%s (image %q) is started with %q, want --driver-name=%s", container, c.Image, args, name)
			}
		}
	}
	if started != 1 {
		t.Errorf("there are %d containers %s, want one", started, container)
	}
}

// checkToken: the file that the controller is told about is a key of this secret.
func checkToken(t *testing.T, pod corev1.PodSpec, secret, key string) {
	t.Helper()
	var found []corev1.Volume
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			found = append(found, v)
		}
	}
	if len(found) != 1 || found[0].Secret.SecretName != secret || len(found[0].Secret.Items) != 1 || found[0].Secret.Items[0].Key != key {
		t.Fatalf("the secrets are %+v, want %s of %s", found, key, secret)
	}
	file := ""
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if m.Name == found[0].Name && c.Name == "controller" {
				file = m.MountPath + "/" + found[0].Secret.Items[0].Path
			} else if m.Name == found[0].Name {
				t.Errorf("%s has the token too", c.Name)
			}
		}
		if c.Name == "controller" && !slices.Contains(c.Args, "--credentials-file="+file) {
			t.Errorf("the controller is started with %q, and the token is in %q", c.Args, file)
		}
	}
}
