package cloudtest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testModify(t *testing.T) {
	h.check(t, "fault.Unsupported unless Capabilities.Modify", func(e *env) {
		vol := e.volume("fixed")
		err := e.modify(vol.ID, cloud.Tag{Key: "team", Value: "b"})
		if e.caps.Modify {
			e.ok(err, "ModifyVolume")
			return
		}
		e.want(err, "ModifyVolume", fault.Unsupported)
		e.tagged(vol)
	})
	h.modifies(t, "each tag replaces what the volume has under its key, and all others stay", func(e *env, vol cloud.Volume) {
		fresh, other := cloud.Tag{Key: "owner", Value: "me"}, cloud.Tag{Key: "team", Value: "b"}
		e.ok(e.modify(vol.ID, fresh, other), "ModifyVolume")
		e.tagged(vol, fresh, other)
		e.ok(e.modify(vol.ID, cloud.Tag{Key: "team", Value: "a"}), "ModifyVolume")
		e.tagged(vol, fresh)
	})
	h.modifies(t, "tags that are there already change nothing, so calling twice is the same as once", func(e *env, vol cloud.Volume) {
		e.ok(e.modify(vol.ID, cloud.Tag{Key: "team", Value: "a"}), "ModifyVolume to what there is")
		e.tagged(vol)
		for range 3 {
			e.ok(e.modify(vol.ID, cloud.Tag{Key: "team", Value: "b"}), "ModifyVolume")
			e.tagged(vol, cloud.Tag{Key: "team", Value: "b"})
		}
		e.ok(e.modify(vol.ID), "ModifyVolume to nothing")
		e.tagged(vol, cloud.Tag{Key: "team", Value: "b"})
	})
	h.modifies(t, "a modified volume is found, and a create that is repeated returns it", func(e *env, vol cloud.Volume) {
		e.ok(e.modify(vol.ID, cloud.Tag{Key: "team", Value: "b"}), "ModifyVolume")
		found, err := e.c.FindVolume(e.Context(), "modified")
		if err != nil || found.ID != vol.ID {
			e.Errorf("FindVolume = %+v, %v, want %s", found, err, vol.ID)
		}
		if again := e.create(e.tagRequest()); again.ID != vol.ID {
			e.Errorf("CreateVolume again = %s, want %s", again.ID, vol.ID)
		}
	})
	h.modifies(t, "fault.InvalidArgument, and nothing is changed, for a tag of the driver's own", func(e *env, vol cloud.Volume) {
		for _, key := range []string{"cluster", "name-hash", "pvc", "new"} {
			err := e.modify(vol.ID, cloud.Tag{Key: "team", Value: "b"}, cloud.Tag{Key: cloud.OwnTags + key, Value: "b"})
			e.want(err, "ModifyVolume of an own tag", fault.InvalidArgument)
			e.tagged(vol)
		}
	})
	h.modifies(t, "fault.NotFound when there is no such volume", func(e *env, vol cloud.Volume) {
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		e.want(e.modify(vol.ID, cloud.Tag{Key: "team", Value: "b"}), "ModifyVolume of nothing", fault.NotFound)
		e.left()
	})
	h.modifies(t, "it works on a volume in use and leaves it there", func(e *env, vol cloud.Volume) {
		release := e.use(vol.ID)
		if release == nil {
			return // the backend cannot detect use
		}
		used := e.get(vol.ID)
		e.ok(e.modify(vol.ID, cloud.Tag{Key: "team", Value: "b"}), "ModifyVolume of a used volume")
		e.tagged(used, cloud.Tag{Key: "team", Value: "b"})
		release()
	})
}

// modifies runs a subtest on a volume with the tags team:a and stage:dev if volumes can be modified, and requires fault.Unsupported
// if not.
func (h Harness) modifies(t *testing.T, sentence string, test func(e *env, vol cloud.Volume)) {
	t.Helper()
	h.check(t, sentence, func(e *env) {
		if !e.caps.Modify {
			e.want(e.modify(e.volume("fixed").ID), "ModifyVolume", fault.Unsupported)
			return
		}
		test(e, e.create(e.tagRequest()))
	})
}

func (e *env) tagRequest() cloud.CreateVolumeRequest {
	req := e.request("modified")
	req.Tags = []cloud.Tag{{Key: "stage", Value: "dev"}, {Key: "team", Value: "a"}}
	return req
}

func (e *env) modify(id cloud.VolumeID, tags ...cloud.Tag) error {
	return e.c.ModifyVolume(e.Context(), id, tags)
}

// tagged fails the test unless the volume is unchanged except for these tags.
func (e *env) tagged(was cloud.Volume, tags ...cloud.Tag) {
	e.Helper()
	want := slices.DeleteFunc(slices.Clone(was.Tags), func(has cloud.Tag) bool {
		return slices.ContainsFunc(tags, func(t cloud.Tag) bool { return t.Key == has.Key })
	})
	want = append(want, tags...)
	now := e.get(was.ID)
	for _, t := range want {
		if !slices.Contains(now.Tags, t) {
			e.Errorf("the volume has the tags %+v, want %+v", now.Tags, want)
		}
	}
	if len(now.Tags) != len(want) {
		e.Errorf("the volume has the tags %+v, want %+v", now.Tags, want)
	}
	now.Tags, was.Tags = nil, nil
	if !reflect.DeepEqual(now, was) {
		e.Errorf("the volume is now %+v, it was %+v", now, was)
	}
}
