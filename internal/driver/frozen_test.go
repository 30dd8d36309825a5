package driver_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestContextsAreAsFrozen: PersistentVolumes and VolumeAttachments of an earlier version have these keys.
func TestContextsAreAsFrozen(t *testing.T) {
	n, err := driver.NewNames("digitalocean", profile.ScopeRegion, "", nil)
	must(t, err)
	volume := driver.VolumeContext{
		DeviceName: "scsi-0DO_Volume_pvc-1", Serial: "0001", Size: 1 << 30, Content: driver.ContentBlank, MkfsOptions: []string{"-m", "0"},
		FormatNonZero: true, LUKS: true, Limits: driver.IOLimits{ReadIOPS: 100, WriteIOPS: 200, ReadBandwidth: 1 << 20, WriteBandwidth: 2 << 20},
	}
	publish := driver.PublishContext{DeviceName: "scsi-0DO_Volume_pvc-1", Serial: "0001", Size: 1 << 30}
	var text strings.Builder
	fmt.Fprintf(&text, "driver %s\n", n.Driver)
	for _, key := range n.Topology {
		fmt.Fprintf(&text, "topology %s\n", key.Key)
	}
	write := func(what string, m map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&text, "%s %s = %s\n", what, key, m[key])
		}
	}
	write("volume", n.EncodeVolumeContext(volume))
	write("publish", n.EncodePublishContext(publish))
	golden.Format(t, "contexts.txt", text.String())
	if got, err := n.DecodeVolumeContext(n.EncodeVolumeContext(volume)); err != nil || !reflect.DeepEqual(got, volume) {
		t.Errorf("DecodeVolumeContext = %+v, %v, want %+v", got, err, volume)
	}
}
