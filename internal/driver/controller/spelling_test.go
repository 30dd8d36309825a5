package controller

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// A vendor's driver writes the handle of one volume in two ways, and both mean the same volume.
func TestTwoSpellingsOfAHandleAreOneVolume(t *testing.T) {
	names, err := driver.NewNames("linode", profile.ScopeRegion, "linodebs.csi.linode.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(memory.New(memory.Config{}), names)
	release, err := s.lockVolume("45-pvc0123")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.lockVolume("45"); fault.Of(err) != fault.Busy {
		t.Errorf("a second change under the other spelling: %v, want %v", err, fault.Busy)
	}
	other, err := s.lockVolume("455")
	if err != nil {
		t.Errorf("a change of another volume: %v", err)
	} else {
		other()
	}
	release()
	if release, err = s.lockVolume("45"); err != nil {
		t.Errorf("a change after the first has ended: %v", err)
	} else {
		release()
	}
}
