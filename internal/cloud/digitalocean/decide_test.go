package digitalocean

import (
	"fmt"
	"testing"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// refusedWith is a refusal as it comes from the API.
func refusedWith(status int, words string) error {
	a := api.NewAnswer(status, words, "", "")
	return fmt.Errorf("%w: %w", kindOf(a), a)
}

func at(gib int64, droplets ...int) *volume {
	return &volume{ID: "v", SizeGigaBytes: gib, DropletIDs: droplets, Region: &godo.Region{Slug: "fra1"}}
}

// A1, A2, A7, A9, A11: what a refusal means follows from the state alone.
func TestWhatARefusalMeans(t *testing.T) {
	here := &droplet{ID: 7, Region: &godo.Region{Slug: "fra1"}}
	elsewhere := &droplet{ID: 7, Region: &godo.Region{Slug: "nyc3"}}
	full := &droplet{ID: 7, VolumeIDs: make([]string, profile.DigitalOcean.Slots)}
	attached, gone, odd := refusedWith(422, "This volume is already attached"), refusedWith(404, "not found"), refusedWith(422, "no")
	attach := func(vol *volume, target *droplet, settled bool, refusal error) error {
		return decideAttach(placement{vol: vol, onto: 7, target: target}, settled, refusal)
	}
	tests := map[string]struct {
		got  error
		want error
	}{
		"attach: it is there":                        {attach(at(1, 7), nil, true, attached), nil},
		"attach: it is there and may be leaving":     {attach(at(1, 7), nil, false, attached), fault.Busy},
		"attach: it is elsewhere":                    {attach(at(1, 8), nil, true, attached), fault.AttachedElsewhere},
		"attach: it is elsewhere and may be leaving": {attach(at(1, 8), nil, false, attached), fault.Busy},
		"attach: there is no volume":                 {attach(nil, nil, false, gone), fault.NotFound},
		"attach: there is no droplet":                {attach(at(1), nil, true, gone), fault.NotFound},
		"attach: the droplet is full":                {attach(at(1), full, true, odd), fault.NoSlot},
		"attach: the droplet says that it is full":   {attach(at(1), here, true, refusedWith(422, "cannot attach more volumes")), fault.NoSlot},
		"attach: another region":                     {attach(at(1), elsewhere, true, odd), fault.WrongZone},
		"attach: nothing explains it":                {attach(at(1), here, true, odd), fault.Busy},
		"detach: it is free":                         {decideDetach(at(1), 7, true, odd), nil},
		"detach: it is elsewhere":                    {decideDetach(at(1, 8), 7, true, odd), nil},
		"detach: it is free and may be coming":       {decideDetach(at(1), 7, false, odd), fault.Busy},
		"detach: there is no volume":                 {decideDetach(nil, 7, false, gone), nil},
		"detach: the droplet is gone":                {decideDetach(at(1, 7), 7, true, gone), fault.Unavailable},
		"detach: nothing explains it":                {decideDetach(at(1, 7), 7, true, odd), fault.Busy},
		"delete: it is attached":                     {decideDelete(at(1, 7), true, odd), fault.VolumeInUse},
		"delete: it is attached and may be leaving":  {decideDelete(at(1, 7), false, odd), fault.Busy},
		"delete: there is no volume":                 {decideDelete(nil, false, odd), nil},
		"delete: nothing explains it":                {decideDelete(at(1), true, odd), fault.Busy},
		"resize: it has grown":                       {decideResize(at(5, 7), 5, true, odd), nil},
		"resize: it has grown and may shrink again":  {decideResize(at(5, 7), 5, false, odd), fault.Busy},
		"resize: it may be growing":                  {decideResize(at(1, 7), 5, false, odd), fault.Busy},
		"resize: the droplet does not let it":        {decideResize(at(1, 7), 5, true, refusedWith(422, "Block Storage resizing is temporarily disabled")), fault.GrowDetach},
		"resize: something was in the way":           {decideResize(at(1, 7), 5, true, refusedWith(422, "Droplet already has a pending event")), fault.Busy},
		"resize: there is no volume":                 {decideResize(nil, 5, true, gone), fault.NotFound},
		"resize: nothing explains it":                {decideResize(at(1, 7), 5, true, odd), fault.Precondition},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if fault.Of(tc.got) != fault.Of(tc.want) || fault.ReasonOf(tc.got) != fault.ReasonOf(tc.want) {
				t.Errorf("it means %v with the reason %q, want the kind %q and the reason %q", tc.got, string(fault.ReasonOf(tc.got)), fault.Of(tc.want), string(fault.ReasonOf(tc.want)))
			}
		})
	}
}
