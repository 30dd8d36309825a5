package digitalocean_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// A region that has volumes and refuses one because it is full, or closed to the account, is passed over too, and a quota
// is none of the request's mistakes, whatever status it has.
func TestARegionThatIsFullIsPassedOver(t *testing.T) {
	tests := map[string]struct {
		says  string
		zones []string
		want  string // empty: none can
	}{
		"another one is acceptable": {"This region is currently unavailable for new volumes", []string{emulator.DefaultRegion, "ams3"}, "ams3"},
		"no other is":               {"This region is currently unavailable for new volumes", []string{emulator.DefaultRegion}, ""},
		"a quota of the account":    {"volume limit exceeded", []string{emulator.DefaultRegion, "ams3"}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			account.Arm(emulator.Fault{Method: "POST", Times: 1, Effect: faults.Effect{Status: 422, Message: tc.says}})
			req := request("a")
			req.Zones = tc.zones
			vol, err := stack(open(t, account)).CreateVolume(t.Context(), req)
			if tc.want == "" {
				want(t, err, fault.Exhausted, tc.says)
			} else if err != nil || vol.Zone != tc.want {
				t.Errorf("CreateVolume = %+v, %v, want it in %s", vol, err, tc.want)
			}
		})
	}
}

// The lines that the driver writes: cluster one, request "a".
var line = "Created by cloudblock-csi; name-hash=" + cloud.FullHash("a") + "; cluster=one"

// C12: a volume of that name that this driver did not make for this cluster is never handed out.
func TestAForeignVolumeOfTheNameIsNeverHandedOut(t *testing.T) {
	ours := []string{"cloudblock-cluster:one", "cloudblock-name-hash:" + cloud.FullHash("a")}
	for name, foreign := range map[string]emulator.Volume{
		"of a user":                      {},
		"another cluster's":              {Description: strings.Replace(line, "=one", "=two", 1)},
		"another request's":              {Description: strings.Replace(line, cloud.FullHash("a"), cloud.FullHash("b"), 1)},
		"of no cluster":                  {Description: strings.TrimSuffix(line, "; cluster=one")},
		"edited":                         {Description: line + " "},
		"another cluster's by its tags":  {Tags: []string{"cloudblock-cluster:two", ours[1]}},
		"another request's by its tags":  {Tags: []string{ours[0], "cloudblock-name-hash:" + cloud.FullHash("b")}},
		"another cluster's with our tag": {Description: strings.Replace(line, "=one", "=two", 1), Tags: ours},
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			foreign.Name, foreign.SizeGiB, foreign.Region = "a", 1, emulator.DefaultRegion
			_, err := account.AddVolume(foreign)
			must(t, err)
			vol, err := stack(open(t, account)).CreateVolume(t.Context(), request("a"))
			if err == nil {
				t.Errorf("CreateVolume = %+v", vol)
			}
			want(t, err, fault.Conflict)
		})
	}
}

// P11: tags are objects of the account and stay when what they were on is gone. So only those are written that many
// objects share; what is one object's own is in the volume's description and in the snapshot's name.
func TestNoTagIsOneObjectsOwn(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	req := request("pvc-1")
	req.Tags = []cloud.Tag{
		{Key: "team", Value: "a"}, {Key: "cloudblock-pvc", Value: "data.db-0"}, {Key: "cloudblock-pvc-namespace", Value: "shop"}, {Key: "cloudblock-pv", Value: "pvc-1"},
	}
	vol := create(t, c, req)
	snap, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID, Tags: []cloud.Tag{
		{Key: "team", Value: "a"}, {Key: "cloudblock-snapshot", Value: "nightly"},
	}})
	must(t, err)
	clone := request("clone")
	clone.Source.Volume = vol.ID
	create(t, c, clone)
	restored := request("restored")
	restored.Source.Snapshot = snap.ID
	create(t, c, restored)
	if got := account.Tags(); !slices.Equal(got, []string{"cloudblock-cluster:one", "team:a"}) {
		t.Errorf("the account has the tags %q", got)
	}
	inCloud, _ := account.Volume(string(vol.ID))
	const names = "; cluster=one; pvc-namespace=shop; pvc=data.db-0; pv=pvc-1"
	if want := "Created by cloudblock-csi; name-hash=" + cloud.FullHash("pvc-1") + names; inCloud.Description != want {
		t.Errorf("the description is %q, want %q", inCloud.Description, want)
	}
	for _, tag := range append(req.Tags, cloud.Tag{Key: "cloudblock-cluster", Value: "one"}) {
		if !slices.Contains(vol.Tags, tag) {
			t.Errorf("the volume has the tags %+v, want %+v among them", vol.Tags, tag)
		}
	}
}
