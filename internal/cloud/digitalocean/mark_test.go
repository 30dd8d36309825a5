package digitalocean_test

import (
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

// C12: a volume is that of the cluster in its record, whatever its tags say.
func TestTheRecordSaysWhoseAVolumeIs(t *testing.T) {
	for name, tc := range map[string]struct {
		description string
		tags        []string
		want        string
	}{
		"with the tag":                     {line, []string{"cloudblock-cluster:one"}, "one"},
		"with the tag in capitals":         {line, []string{"cloudblock-cluster:ONE"}, "one"},
		"without the tag":                  {line, nil, "one"},
		"with the tag of another cluster":  {strings.Replace(line, "=one", "=two", 1), []string{"cloudblock-cluster:one"}, "two"},
		"only the tag, without the record": {"edited", []string{"cloudblock-cluster:one"}, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			id, err := account.AddVolume(emulator.Volume{Name: "a", SizeGiB: 1, Region: emulator.DefaultRegion, Description: tc.description, Tags: tc.tags})
			must(t, err)
			vol, err := open(t, account).GetVolume(t.Context(), cloud.VolumeID(id))
			must(t, err)
			if want := (cloud.Mark{Driver: true, Cluster: tc.want}); vol.Mark != want {
				t.Errorf("its mark is %+v, want %+v", vol.Mark, want)
			}
		})
	}
}
