package node

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// docs/encryption.md promises the reason of a wrong passphrase, by which refusals are counted.
func TestAMissingPassphraseHasItsReason(t *testing.T) {
	s := New(Config{Mounter: mount.New(mount.Config{})})
	err := s.clearMappings(t.Context(), nil, nil, use{context: driver.VolumeContext{LUKS: true}})
	if fault.Of(err) != fault.InvalidArgument || fault.ReasonOf(err) != fault.LUKSKey {
		t.Errorf("without a passphrase: %v for %q, want %v for %q", err, string(fault.ReasonOf(err)), fault.InvalidArgument, string(fault.LUKSKey))
	}
}

// The paths are those of pkg/volume/csi of Kubernetes 1.37.
func TestThePodOfATargetPath(t *testing.T) {
	const uid = "1b9c0b5e-6f0a-4b53-9d6b-0c1f7a2d4e11"
	for path, want := range map[string]string{
		"/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pvc-1/mount":                         uid,
		"/data/k0s/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/a~b/mount":                          uid,
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/" + uid:                   uid,
		"/var/lib/kubelet/pods/0123456789abcdef0123456789abcdef/volumes/kubernetes.io~csi/pvc-1/mount":    "0123456789abcdef0123456789abcdef",
		"/pods/a/volumes/kubernetes.io~csi/x/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pv/mount": uid,
		"/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pvc-1/mount/x":                       "",
		"/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~empty-dir/pvc-1/mount":                   "",
		"/var/lib/kubelet/pods/a.b/volumes/kubernetes.io~csi/pvc-1/mount":                                 "",
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1/" + uid:                   "",
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/" + uid + "/..":           "",
		"/mnt/volume": "",
	} {
		if got := podOf(path); got != want {
			t.Errorf("podOf(%s) = %q, want %q", path, got, want)
		}
	}
}
