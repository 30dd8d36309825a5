package yandex_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// labels are those of a disk that this cluster has made for a request.
func labels(request string) map[string]string {
	return map[string]string{tags.Hash: cloud.FullHash(request), tags.Cluster: "one"}
}

// C1: a known key is answered with the operation that it began once, also when that failed or what it made is
// gone. The request is carried out all the same, by another controller too, and by the same number of keys.
func TestAUsedUpKeyIsNotTheEnd(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, folder *emulator.Cloud, c cloud.Cloud){
		"it made a disk that is gone": func(t *testing.T, _ *emulator.Cloud, c cloud.Cloud) {
			must(t, c.DeleteVolume(t.Context(), volume(t, c, "a").ID))
		},
		"it failed": func(t *testing.T, folder *emulator.Cloud, c cloud.Cloud) {
			folder.Arm(emulator.Fault{Route: createDisk, Times: 1, Effect: faults.Effect{Errored: true, ID: "INTERNAL"}})
			_, err := c.CreateVolume(t.Context(), request("a"))
			want(t, err, fault.Unavailable)
		},
		"both, one after the other, three times": func(t *testing.T, folder *emulator.Cloud, c cloud.Cloud) {
			for range 3 {
				folder.Arm(emulator.Fault{Route: createDisk, Effect: faults.Effect{Errored: true, ID: "INTERNAL"}})
				_, err := c.CreateVolume(t.Context(), request("a"))
				want(t, err, fault.Unavailable)
				folder.Disarm()
				must(t, c.DeleteVolume(t.Context(), volume(t, c, "a").ID))
			}
		},
	} {
		for _, vanishes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s (what failed vanishes: %v)", name, vanishes), func(t *testing.T) {
				simulated(t, func(t *testing.T) {
					folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond)), Rules: emulator.Rules{FailedCreateVanishes: vanishes}})
					first := open(t, folder)
					before(t, folder, first)
					left(t, folder, 0)
					second := open(t, folder)
					var vol cloud.Volume
					must(t, cloudtest.Repeat(func() (err error) { vol, err = stack(second).CreateVolume(t.Context(), request("a")); return err }))
					again, err := stack(first).CreateVolume(t.Context(), request("a"))
					if err != nil || again.ID != vol.ID {
						t.Errorf("the first controller then has %s, %v, want %s", again.ID, err, vol.ID)
					}
					left(t, folder, 1)
				})
			})
		}
	}
}

// C1: a create that another controller has begun under the same key is joined and not repeated; one with another wish is
// told that the name is taken.
func TestAKeyThatIsRunningIsJoined(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(time.Second))})
		first, second := open(t, folder), open(t, folder)
		type answer struct {
			vol cloud.Volume
			err error
		}
		answers := make(chan answer, 1)
		go func() { vol, err := first.CreateVolume(t.Context(), request("a")); answers <- answer{vol, err} }()
		until(t, "the create is under way", func() bool { return len(folder.Running()) == 1 })
		larger := request("a")
		larger.Size = 2 * cloud.GiB
		_, err := middleware.NewIdempotent(second).CreateVolume(t.Context(), larger)
		want(t, err, fault.Conflict)
		made := <-answers
		must(t, made.err)
		left(t, folder, 1)
		if d := folder.Disks()[0]; d.ID != string(made.vol.ID) || d.Size != int64(cloud.GiB) {
			t.Errorf("the disk is %+v, want %s", d, made.vol.ID)
		}
	})
}

// C1: where names repeat and a key has been forgotten, a request with two disks is answered with none, and an error
// names both: each of them may have been returned before. A foreign disk of that name is left alone and not taken for
// one of the request.
func TestOfTwoDisksWithOneNameNoneIsReturned(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		ours   bool
	}{
		"ours":              {labels("a"), true},
		"without labels":    {nil, false},
		"another cluster's": {map[string]string{tags.Hash: cloud.FullHash("a"), tags.Cluster: "two"}, false},
		"another request's": {labels("b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := start(t, emulator.Options{Rules: emulator.Rules{NamesRepeat: true}})
			c := open(t, folder)
			older, err := folder.AddDisk(emulator.Disk{Name: "a", Labels: tc.labels})
			must(t, err)
			for range 3 {
				vol, err := stack(c).CreateVolume(t.Context(), request("a"))
				if tc.ours {
					want(t, err, fault.Uncertain, older, "delete the one")
				} else if err != nil || string(vol.ID) == older {
					t.Errorf("CreateVolume = %s, %v, the older one is %s", vol.ID, err, older)
				}
			}
			left(t, folder, 2)
			if tc.ours {
				for _, d := range folder.Disks() {
					if d.ID != older {
						must(t, c.DeleteVolume(t.Context(), cloud.VolumeID(d.ID))) // by hand
					}
				}
				vol, err := stack(c).CreateVolume(t.Context(), request("a"))
				if err != nil || string(vol.ID) != older {
					t.Errorf("CreateVolume = %s, %v, want the one that is left, %s", vol.ID, err, older)
				}
			}
		})
	}
}

// A disk that is being made or in ERROR is never returned; nothing is removed without proof.
func TestADiskThatIsNotReadyIsNotReturned(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		c := stack(open(t, folder))
		broken, err := folder.AddDisk(emulator.Disk{Name: "broken", Labels: labels("broken"), Status: "ERROR"})
		must(t, err)
		_, err = c.CreateVolume(t.Context(), request("broken"))
		want(t, err, fault.Uncertain, broken, "ERROR", "console")
		young, err := folder.AddDisk(emulator.Disk{Name: "young", Labels: labels("young"), Status: "CREATING"})
		must(t, err)
		_, err = c.CreateVolume(t.Context(), request("young"))
		want(t, err, fault.Uncertain, "CREATING")
		folder.ChangeDisk(young, func(d *emulator.Disk) { d.Status = "READY" })
		vol, err := c.CreateVolume(t.Context(), request("young"))
		if err != nil || string(vol.ID) != young {
			t.Errorf("CreateVolume = %s, %v, want %s", vol.ID, err, young)
		}
		left(t, folder, 2)
	})
}

// C7: the parameters of a class reach the disk; a type that no zone of the request has is Exhausted, and one that nobody
// has is refused.
func TestTypesAndZones(t *testing.T) {
	folder := start(t, emulator.Options{Zones: map[string]emulator.Zone{
		emulator.DefaultZone: {DiskTypes: []string{"network-hdd"}}, "ru-central1-b": {},
	}})
	c := stack(open(t, folder))
	req := request("a")
	req.Zones = []string{emulator.DefaultZone, "ru-central1-b"}
	req.Parameters = []cloud.Parameter{{Name: "type", Value: "network-ssd-nonreplicated"}}
	vol, err := c.CreateVolume(t.Context(), req)
	if err != nil || vol.Zone != "ru-central1-b" || vol.Size != 93*cloud.GiB {
		t.Errorf("CreateVolume = %+v, %v, want 93 GiB in the zone that has such disks", vol, err)
	}
	req.Name, req.Zones = "b", req.Zones[:1]
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Exhausted, emulator.DefaultZone, "network-ssd-nonreplicated")
	req.Name, req.Parameters = "c", []cloud.Parameter{{Name: "type", Value: "no-such-type"}}
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.InvalidArgument, "no-such-type")
	req.Name = "d"
	req.Parameters = []cloud.Parameter{{Name: "blockSize", Value: "64Ki"}, {Name: "encrypted", Value: "true"}, {Name: "kmsKeyId", Value: "abj0key"}, {Name: "type", Value: "network-hdd"}}
	vol = create(t, c, req)
	if d, _ := folder.Disk(string(vol.ID)); d.Type != "network-hdd" || d.BlockSize != 64<<10 || d.Key != "abj0key" {
		t.Errorf("the disk is %+v", d)
	}
	left(t, folder, 2)
}

// C12 and C13: a delete acts on the id alone, also of a disk that was renamed or relabelled; and one of another
// cluster is never found by its name.
func TestIdsAreEnough(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder)
	id := volume(t, c, "a").ID
	folder.ChangeDisk(string(id), func(d *emulator.Disk) { d.Name, d.Labels = "renamed", nil })
	attach(t, c, id, node1)
	must(t, c.Detach(t.Context(), id, node1))
	must(t, c.DeleteVolume(t.Context(), id))
	left(t, folder, 0)
}
