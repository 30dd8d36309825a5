package cloudtest

import (
	"reflect"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testGet(t *testing.T) {
	h.check(t, "it returns the present state", func(e *env) {
		vol := e.volume("state")
		if got := e.get(vol.ID); !reflect.DeepEqual(got, vol) {
			e.Errorf("GetVolume = %+v, want %+v", got, vol)
		}
	})
	h.check(t, "fault.NotFound when there is none", func(e *env) {
		vol := e.volume("short-lived")
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		e.gone(vol.ID)
	})
}

func (h Harness) testDelete(t *testing.T) {
	h.check(t, "it removes the volume with exactly this id and returns when it is gone", func(e *env) {
		a, b := e.volume("a"), e.volume("b")
		e.ok(e.c.DeleteVolume(e.Context(), a.ID), "DeleteVolume")
		e.gone(a.ID)
		e.left(b.ID)
	})
	h.check(t, "a volume that does not exist is not an error, so calling twice is not one either", func(e *env) {
		vol := e.volume("twice")
		for range 3 {
			e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		}
	})
	h.check(t, "a late second delete leaves a newer volume of that name", func(e *env) {
		old := e.volume("reborn")
		e.ok(e.c.DeleteVolume(e.Context(), old.ID), "DeleteVolume")
		young := e.volume("reborn")
		e.ok(e.c.DeleteVolume(e.Context(), old.ID), "DeleteVolume")
		e.left(young.ID)
	})
	h.check(t, "a volume that is attached or in use is fault.Precondition and stays as it is", func(e *env) {
		vol := e.volume("used")
		release := e.use(vol.ID)
		if release == nil {
			return // the backend cannot detect use
		}
		before := e.get(vol.ID)
		err := e.c.DeleteVolume(e.Context(), vol.ID)
		e.want(err, "DeleteVolume of a used volume", fault.Precondition)
		e.reason(err, "DeleteVolume of a used volume", fault.VolumeInUse)
		if after := e.get(vol.ID); !reflect.DeepEqual(before, after) {
			e.Errorf("the volume is now %+v, it was %+v", after, before)
		}
		release()
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume of a released volume")
		e.left()
	})
}

// use attaches a volume or puts it in use, and returns a function that ends that, or nil if the backend can do neither.
func (e *env) use(id cloud.VolumeID) (release func()) {
	e.Helper()
	switch {
	case e.caps.Attach:
		e.attach(id, e.h.Nodes[0])
		return func() { e.ok(e.c.Detach(e.Context(), id, e.h.Nodes[0]), "Detach") }
	case e.h.InUse != nil:
		return e.h.InUse(e.T, id)
	default:
		return nil
	}
}

func (h Harness) testExpand(t *testing.T) {
	h.check(t, "fault.Unsupported unless Capabilities.Expand", func(e *env) {
		vol := e.volume("fixed")
		exp, err := e.c.ExpandVolume(e.Context(), vol.ID, vol.Size+e.caps.SizeStep)
		if e.caps.Expand {
			e.ok(err, "ExpandVolume")
			return
		}
		e.want(err, "ExpandVolume", fault.Unsupported)
		if got := e.get(vol.ID); got.Size != vol.Size || exp.Size != 0 {
			e.Errorf("ExpandVolume = %+v, and the volume has %s", exp, got.Size)
		}
	})
	h.expands(t, "it makes a volume at least this large and says the real size", func(e *env, vol cloud.Volume) {
		for _, want := range []cloud.Bytes{vol.Size + e.caps.SizeStep, vol.Size + e.caps.SizeStep + 1} {
			e.expand(vol.ID, want)
		}
	})
	h.expands(t, "it rounds up to no more than the next step of the volume", func(e *env, vol cloud.Volume) {
		step := max(vol.SizeStep, e.caps.SizeStep)
		if grown := e.expand(vol.ID, vol.Size+1); grown%step != 0 || grown > vol.Size+step {
			e.Errorf("the volume had %s and has %s, want the next multiple of %s", vol.Size, grown, step)
		}
	})
	h.expands(t, "it never shrinks, and calling twice is the same as once", func(e *env, vol cloud.Volume) {
		grown := e.expand(vol.ID, vol.Size+e.caps.SizeStep)
		for _, size := range []cloud.Bytes{grown, vol.Size, 1, 0, -1} {
			exp, err := e.c.ExpandVolume(e.Context(), vol.ID, size)
			e.ok(err, "ExpandVolume to no more than there is")
			if got := e.get(vol.ID).Size; exp.Size != grown || got != grown {
				e.Errorf("ExpandVolume to %s = %s, and the volume has %s, want %s", size, exp.Size, got, grown)
			}
		}
	})
	h.expands(t, "fault.OutOfRange above Capabilities.LargestVolume", func(e *env, vol cloud.Volume) {
		_, err := e.c.ExpandVolume(e.Context(), vol.ID, e.caps.LargestVolume+1)
		e.want(err, "ExpandVolume above the largest", fault.OutOfRange)
		if got := e.get(vol.ID).Size; got != vol.Size {
			e.Errorf("the volume has %s, it had %s", got, vol.Size)
		}
	})
	h.expands(t, "fault.NotFound when there is no such volume", func(e *env, vol cloud.Volume) {
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		_, err := e.c.ExpandVolume(e.Context(), vol.ID, vol.Size+e.caps.SizeStep)
		e.want(err, "ExpandVolume of nothing", fault.NotFound)
	})
	h.expands(t, "fault.Precondition where the cloud refuses while the volume is attached", func(e *env, vol cloud.Volume) {
		if e.use(vol.ID) == nil {
			return // it cannot be attached
		}
		want := vol.Size + e.caps.SizeStep
		exp, err := e.c.ExpandVolume(e.Context(), vol.ID, want)
		e.want(err, "ExpandVolume while attached", fault.None, fault.Precondition)
		got := e.get(vol.ID).Size
		if err != nil && got != vol.Size || err == nil && (got < want || exp.Size != got) {
			e.Errorf("ExpandVolume = %s, %v, and the volume has %s, it had %s", exp.Size, err, got, vol.Size)
		}
	})
}

// expands runs a subtest if volumes can be expanded, and requires fault.Unsupported if not.
func (h Harness) expands(t *testing.T, sentence string, test func(e *env, vol cloud.Volume)) {
	t.Helper()
	h.check(t, sentence, func(e *env) {
		vol := e.volume("growing")
		if e.caps.Expand {
			test(e, vol)
			return
		}
		_, err := e.c.ExpandVolume(e.Context(), vol.ID, vol.Size+1)
		e.want(err, "ExpandVolume", fault.Unsupported)
	})
}

// expand grows the volume and returns its size.
func (e *env) expand(id cloud.VolumeID, size cloud.Bytes) cloud.Bytes {
	e.Helper()
	exp, err := e.c.ExpandVolume(e.Context(), id, size)
	if err != nil {
		e.Fatalf("ExpandVolume(%s, %s) = %v", id, size, err)
	}
	if got := e.get(id).Size; exp.Size < size || got != exp.Size {
		e.Errorf("ExpandVolume(%s, %s) = %s, and the volume has %s", id, size, exp.Size, got)
	}
	return exp.Size
}
