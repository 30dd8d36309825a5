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
