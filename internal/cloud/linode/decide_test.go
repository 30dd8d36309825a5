package linode

import (
	"fmt"
	"testing"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// refusedWith is a refusal as it comes from the API.
func refusedWith(status int, words string, fields ...string) error {
	a := &api.Answer{Status: status, Words: words, Fields: fields}
	return fmt.Errorf("%w: %w", kindOf(a), a)
}

// with returns a volume of 10 GiB in a state.
func with(status linodego.VolumeStatus, linode int, ready bool) *volume {
	v := &volume{ID: 45, Label: "v", Status: status, Region: "us-ord", Size: 10, IOReady: ready}
	if linode != 0 {
		v.LinodeID = &linode
	}
	return v
}

// What the refusal of a create or a copy means follows from the state alone.
func TestWhatARefusedCreateMeans(t *testing.T) {
	odd, free := refusedWith(400, "the moon is full"), with(statusActive, 0, false)
	rotating, deleting := with(statusRotating, 0, false), with(statusDeleting, 0, false)
	here := with(statusActive, 7, true)
	create := func(same []volume, can capabilities, encryption string, refusal error) error {
		return refusedCreate(newVolume{Label: "v", Region: "us-ord", Encryption: encryption}, same, can, refusal)
	}
	all := capabilities{volumes: true, encryption: true}
	tests := map[string]struct {
		got  error
		want error
	}{
		"create: the label is taken":               {create([]volume{*free}, all, unencrypted, odd), fault.Conflict},
		"create: the label will be free":           {create([]volume{*deleting}, all, unencrypted, odd), fault.Unavailable},
		"create: the label has become free":        {create(nil, all, unencrypted, refusedWith(400, "must be unique", "label")), fault.Busy},
		"create: no volumes in the region":         {create(nil, capabilities{}, unencrypted, odd), fault.NoZone},
		"create: no encryption in the region":      {create(nil, capabilities{volumes: true}, encrypted, odd), fault.NoZone},
		"create: the region refuses and has both":  {create(nil, all, unencrypted, refusedWith(400, "no space is left", "region")), fault.NoZone},
		"create: a quota":                          {create(nil, all, unencrypted, refusedWith(400, "Account limit reached.")), fault.Quota},
		"create: nothing explains it":              {create(nil, all, unencrypted, odd), fault.InvalidArgument},
		"clone: another controller made it":        {decideClone(duplicate{made: free}, false, odd), nil},
		"clone: the source is gone":                {decideClone(duplicate{}, false, odd), fault.NotFound},
		"clone: the source's key is being rotated": {decideClone(duplicate{source: rotating}, false, odd), fault.Unavailable},
		"clone: nothing is in the way yet":         {decideClone(duplicate{source: free}, true, nil), fault.Busy},
		"clone: attached, and that may be":         {decideClone(duplicate{source: here}, false, nil), fault.Busy},
		"clone: attached, and that may not be":     {decideClone(duplicate{source: here}, true, nil), fault.VolumeInUse},
		"clone: attached, and made before that":    {decideClone(duplicate{made: free, source: here}, true, nil), nil},
		"clone: gone before the request":           {decideClone(duplicate{}, true, nil), fault.NotFound},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if fault.Of(tc.got) != fault.Of(tc.want) || fault.ReasonOf(tc.got) != fault.ReasonOf(tc.want) {
				t.Errorf("it means %v with the reason %q, want the kind %q and the reason %q", tc.got, string(fault.ReasonOf(tc.got)), fault.Of(tc.want), string(fault.ReasonOf(tc.want)))
			}
		})
	}
}

// C5, A1: what shows of a volume that cannot be changed now.
func TestWhatHindersAChange(t *testing.T) {
	for name, tc := range map[string]struct {
		v    *volume
		want error
	}{
		"nothing":                           {with(statusActive, 0, false), nil},
		"nothing, and it is attached":       {with(statusActive, 7, true), nil},
		"it is being attached":              {with(statusActive, 7, false), nil},
		"it is being made":                  {with(statusCreating, 0, false), fault.Busy},
		"it grows":                          {with(statusResizing, 7, true), fault.Busy},
		"it is broken":                      {with(statusBroken, 0, false), fault.VolumeDamaged.Explain(fault.Unavailable)},
		"it is broken and without a device": {with(statusBroken, 7, false), fault.VolumeDamaged.Explain(fault.Unavailable)},
		"its key is being rotated":          {with(statusRotating, 7, true), fault.Precondition},
		"its key rotates, it has no device": {with(statusRotating, 7, false), fault.Precondition},
		"a state that is new":               {with("melting", 7, true), fault.Unavailable},
	} {
		if got := hindrance(tc.v); fault.Of(got) != fault.Of(tc.want) || fault.ReasonOf(got) != fault.ReasonOf(tc.want) {
			t.Errorf("%s: the hindrance is %v, want %v", name, got, tc.want)
		}
	}
}

// A9, A11, P5: a list ends what it shows as done; a failure counts when the volume itself shows it.
func TestWhatEndsAnOperation(t *testing.T) {
	free, here, there := with(statusActive, 0, false), with(statusActive, 7, true), with(statusActive, 8, true)
	coming, creating, resizing := with(statusActive, 7, false), with(statusCreating, 0, false), with(statusResizing, 0, false)
	const runs, done, fails = "runs on", "is done", "has failed"
	tests := map[string]struct {
		id     string
		v      *volume
		want   string
		byList bool // a list is believed
	}{
		"an attach with a device":         {operation(45, toBeAt, 7), here, done, true},
		"an attach without a device":      {operation(45, toBeAt, 7), coming, runs, true},
		"an attach that came to nothing":  {operation(45, toBeAt, 7), free, fails, false},
		"an attach elsewhere":             {operation(45, toBeAt, 7), there, fails, false},
		"an attach of what was deleted":   {operation(45, toBeAt, 7), nil, fails, false},
		"a detach from here":              {operation(45, toBeFree, 7), here, runs, true},
		"a detach that left":              {operation(45, toBeFree, 7), free, done, true},
		"a detach of what has moved":      {operation(45, toBeFree, 7), there, done, true},
		"a create":                        {operation(45, toBeActive, 10), free, done, true},
		"a create under way":              {operation(45, toBeActive, 10), creating, runs, true},
		"a create that the cloud broke":   {operation(45, toBeActive, 10), with(statusBroken, 0, false), fails, false},
		"a growth under way":              {operation(45, toBeActive, 10), resizing, runs, true},
		"a growth that the cloud gave up": {operation(45, toBeActive, 20), free, fails, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := goalOf(ops.Operation{ID: tc.id})
			out := g.reached(tc.v)
			got := map[bool]string{true: done, false: runs}[out.Done]
			if out.Err != nil {
				got = fails
			}
			if g.volume != 45 || got != tc.want {
				t.Errorf("it %s (%v), want that it %s", got, out.Err, tc.want)
			}
			if tc.v == nil {
				return
			}
			if _, sure := g.listed(tc.v); sure != tc.byList {
				t.Errorf("a list is believed: %v, want %v", sure, tc.byList)
			}
			other := *tc.v
			other.ID = 46 // which has got the label since
			if _, sure := g.listed(&other); sure {
				t.Error("the entry of another volume is believed")
			}
		})
	}
}
