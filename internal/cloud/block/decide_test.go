package block

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// at is a volume of 10 GiB in the zone a, attached to some machines.
func at(machines ...cloud.NodeID) *Volume {
	return &Volume{Volume: cloud.Volume{ID: "v", Zone: "a", Size: 10 * cloud.GiB, AttachedTo: machines}}
}

func with(v *Volume, edit func(*Volume)) *Volume {
	edit(v)
	return v
}

func busy(v *Volume) { v.Hindered = fault.Busy }

func hindered(v *Volume) { v.Hindered = errDamaged }

var (
	// What a refusal says of itself.
	errOdd, errBusy, errNone = errors.New("the moon is full"), fmt.Errorf("%w: wait", fault.Busy), fmt.Errorf("%w: no", fault.NotFound)
	errFull, errNever        = fmt.Errorf("%w: too many", fault.Exhausted), fmt.Errorf("%w: no", fault.InvalidArgument)
	errAttached              = errors.New("not while it is attached")

	errDamaged = fault.VolumeDamaged.Explain(fault.Unavailable)

	// slow is a cloud that shows a change at its end, and quick one that shows it at once and has a lease.
	slow = &Verbs{traits: Traits{
		VolumeWord: "volume", MachineWord: "machine", NoGrowthAttached: func(refusal error) bool { return errors.Is(refusal, errAttached) },
	}}
	quick = &Verbs{traits: Traits{VolumeWord: "volume", MachineWord: "machine", ShowsChanges: true}}
	// listing is a cloud whose machines show their volumes.
	listing = &Verbs{traits: Traits{VolumeWord: "disk", MachineWord: "machine", MachineHasDisks: true, DetachNamesMachine: true, KeepsAttached: true}}
)

// A1, A2, A7, A9, A11, E3, E4: what a refusal means follows from the state alone.
func TestWhatARefusalMeans(t *testing.T) {
	const here, there = cloud.NodeID("m"), cloud.NodeID("n")
	room := &Machine{Zone: "a", Used: 2, Slots: 8}
	taken, elsewhere, off := &Machine{Zone: "a", Used: 8, Slots: 8}, &Machine{Zone: "b"}, &Machine{Zone: "a", Hindered: fault.Precondition}
	has := func(d Disk) *Machine { return &Machine{Zone: "a", Disks: map[cloud.VolumeID]Disk{"v": d}} }
	starts := &Machine{Zone: "a", Hindered: fault.Unavailable}
	attach := func(b *Verbs, v *Volume, m *Machine, settled bool, refusal error) error {
		return b.decideAttach(place{vol: v, machine: m, looked: true}, here, settled, refusal)
	}
	detach := func(b *Verbs, v *Volume, m *Machine, settled bool, refusal error) error {
		return b.decideDetach(place{vol: v, machine: m, looked: b == listing}, here, settled, refusal)
	}
	remove := func(b *Verbs, v *Volume, settled bool, refusal error) error {
		return b.decideDelete(remainder{vol: v}, settled, refusal)
	}
	resize := func(b *Verbs, v *Volume, gib cloud.Bytes, settled bool, refusal error) error {
		return b.decideResize(v, gib*cloud.GiB, settled, refusal)
	}
	tests := map[string]struct {
		got  error
		want error
	}{
		"attach: it is there":                         {attach(slow, at(here), nil, true, errOdd), nil},
		"attach: it is there and may be leaving":      {attach(slow, at(here), nil, false, errOdd), fault.Busy},
		"attach: it is there without a device":        {attach(quick, with(at(here), func(v *Volume) { v.Attaching = true }), nil, true, errOdd), fault.Busy},
		"attach: it is there for reading only":        {attach(listing, at(here), has(Disk{ReadOnly: true}), true, errOdd), fault.Precondition},
		"attach: the machine has it":                  {attach(listing, at(here), has(Disk{}), true, errOdd), nil},
		"attach: the machine does not show it yet":    {attach(listing, at(here), room, true, errOdd), fault.Unavailable},
		"attach: it is there, and the machine gone":   {attach(listing, at(here), nil, true, errOdd), fault.Unavailable},
		"attach: it boots the machine":                {attach(listing, at(here), has(Disk{Boot: true}), true, errOdd), fault.Precondition},
		"attach: it is elsewhere":                     {attach(slow, at(there), nil, true, errOdd), fault.AttachedElsewhere},
		"attach: it is elsewhere and may be leaving":  {attach(slow, at(there), nil, false, errOdd), fault.Busy},
		"attach: there is no volume":                  {attach(slow, nil, nil, false, errNone), fault.NotFound},
		"attach: it is broken":                        {attach(quick, with(at(), hindered), room, true, errOdd), errDamaged},
		"attach: it is there and broken":              {attach(quick, with(at(here), hindered), room, false, errOdd), errDamaged},
		"attach: the zone is not known":               {attach(slow, at(), &Machine{Slots: 8}, true, errOdd), fault.Busy},
		"detach: the disk is not found, and is here":  {detach(listing, at(here), has(Disk{}), true, errNone), fault.Busy},
		"attach: it is being made":                    {attach(quick, with(at(), busy), room, true, errOdd), fault.Busy},
		"attach: there is no machine":                 {attach(slow, at(), nil, true, errNone), fault.NotFound},
		"attach: the machine is full":                 {attach(slow, at(), taken, true, errOdd), fault.NoSlot},
		"attach: the machine says that it is full":    {attach(slow, at(), room, true, errFull), fault.NoSlot},
		"attach: the machine is off":                  {attach(quick, at(), off, true, errOdd), fault.Precondition},
		"attach: the machine starts":                  {attach(listing, at(), starts, true, errOdd), fault.Unavailable},
		"attach: another zone":                        {attach(slow, at(), elsewhere, true, errOdd), fault.WrongZone},
		"attach: nothing explains it":                 {attach(slow, at(), room, true, errOdd), fault.Busy},
		"detach: it is free":                          {detach(slow, at(), nil, true, errOdd), nil},
		"detach: it is elsewhere":                     {detach(slow, at(there), nil, true, errOdd), nil},
		"detach: it is free and may be coming":        {detach(slow, at(), nil, false, errOdd), fault.Busy},
		"detach: it may be coming to the machine":     {detach(listing, at(), room, false, errOdd), fault.Busy},
		"detach: there is no volume":                  {detach(slow, nil, nil, false, errNone), nil},
		"detach: the machine is gone":                 {detach(slow, at(here), nil, true, errNone), fault.Unavailable},
		"detach: the machine is not shown any more":   {detach(listing, at(here), nil, true, errOdd), fault.Unavailable},
		"detach: it boots the machine":                {detach(listing, at(here), has(Disk{Boot: true}), true, errOdd), fault.Precondition},
		"detach: the machine starts":                  {detach(listing, at(here), starts, true, errOdd), fault.Unavailable},
		"detach: nothing explains it":                 {detach(slow, at(here), nil, true, errOdd), fault.Busy},
		"detach: it is here and nothing was sent":     {detach(quick, at(here), nil, false, nil), fault.Busy},
		"detach: it is free and nothing was sent":     {detach(quick, at(), nil, false, nil), nil},
		"detach: it is elsewhere, nothing was sent":   {detach(quick, at(there), nil, false, nil), nil},
		"detach: it is elsewhere and was refused":     {detach(quick, at(there), nil, false, errOdd), nil},
		"detach: there is none and nothing was sent":  {detach(quick, nil, nil, false, nil), nil},
		"delete: it is attached":                      {remove(slow, at(there), true, errOdd), fault.VolumeInUse},
		"delete: it is attached and may be leaving":   {remove(slow, at(there), false, errOdd), fault.Busy},
		"delete: there is no volume":                  {remove(slow, nil, false, errOdd), nil},
		"delete: nothing explains it":                 {remove(slow, at(), true, errOdd), fault.Busy},
		"delete: it is free and nothing was sent":     {remove(quick, at(), false, nil), fault.Busy},
		"delete: it is errAttached, nothing was sent": {remove(quick, at(there), false, nil), fault.VolumeInUse},
		"delete: it is broken":                        {remove(quick, with(at(), hindered), true, errOdd), fault.VolumeDamaged.Explain(fault.Busy)},
		"delete: its state forbids it":                {remove(quick, with(at(), func(v *Volume) { v.Hindered = fault.Precondition }), true, errOdd), fault.Precondition},
		"delete: it is broken and nothing was sent":   {remove(quick, with(at(), hindered), true, nil), fault.Busy},
		"delete: it is locked":                        {quick.decideDelete(remainder{vol: at(), locks: "cannot_delete"}, true, errOdd), fault.VolumeInUse},
		"resize: it has grown":                        {resize(slow, at(here), 10, true, errOdd), nil},
		"resize: it has grown and may shrink again":   {resize(slow, at(here), 10, false, errOdd), fault.Busy},
		"resize: it has grown, and shows the end":     {resize(quick, at(here), 10, false, errOdd), nil},
		"resize: it is growing":                       {resize(quick, with(at(), busy), 10, true, errOdd), fault.Busy},
		"delete: it is growing":                       {remove(quick, with(at(), busy), true, errOdd), fault.Busy},
		"delete: it is growing, nothing was sent":     {remove(quick, with(at(), busy), false, nil), fault.Busy},
		"detach: it is growing elsewhere":             {detach(quick, with(at(there), busy), nil, false, nil), nil},
		"resize: it may be growing":                   {resize(slow, at(here), 20, false, errOdd), fault.Busy},
		"resize: it is broken":                        {resize(quick, with(at(), hindered), 10, true, errOdd), errDamaged},
		"resize: not while it is attached":            {resize(slow, at(here), 20, true, errAttached), fault.GrowDetach},
		"resize: it was attached a moment ago":        {resize(slow, at(), 20, true, errAttached), fault.Busy},
		"resize: something was in the way":            {resize(slow, at(here), 20, true, errBusy), fault.Busy},
		"resize: a quota":                             {resize(slow, at(here), 20, true, errFull), fault.Exhausted},
		"resize: a size that cannot be":               {resize(slow, at(here), 20, true, fault.OutOfRange), fault.OutOfRange},
		"resize: what was asked is not taken":         {resize(slow, at(here), 20, true, errNever), fault.Precondition},
		"resize: there is no volume":                  {resize(slow, nil, 20, true, errNone), fault.NotFound},
		"resize: nothing explains it":                 {resize(slow, at(here), 20, true, errOdd), fault.Busy},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if fault.Of(tc.got) != fault.Of(tc.want) || fault.ReasonOf(tc.got) != fault.ReasonOf(tc.want) {
				t.Errorf("it means %v with the reason %q, want the kind %q and the reason %q", tc.got, string(fault.ReasonOf(tc.got)), fault.Of(tc.want), string(fault.ReasonOf(tc.want)))
			}
		})
	}
}
