package main

import (
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

var linodeTarget = target{
	name:    "linode",
	emulate: emulateLinode,
	limits:  []budget.Window{{Calls: 1600, Per: time.Minute}},
	flood:   240,
	bars:    bars6{each: 3.5, foreign: 4, alone: 16},
	vendor: given{
		driver: "linode-blockstorage-csi-driver",
		quick:  "10 + 4", slow: "11 + 5", limited: "not measured",
		attach: 20, collisions: "its publish returns before the device is there",
	},
}

// emulateLinode makes an account that always has the limits of single kinds of requests: the lists and the
// creates of a minute.
func emulateLinode(s setting, o accounts.Options) (accounts.Account, error) {
	o.Limits = append(o.Limits, slices.DeleteFunc(emulator.RealLimits(), func(l rest.Limit) bool { return l.Of == "" })...)
	a, err := accounts.StartLinode(o)
	if err != nil {
		return nil, err
	}
	a.Shape = emulator.Linode{MemoryMB: 96 << 10}
	a.SetRules(func(r *emulator.Rules) { r.OneChangePerLinode, r.UpdatedStands = true, s.foreign > 0 })
	lasts := emulator.Each(o.Takes)
	lasts.Create = clock.Fixed(s.made)
	a.SetDurations(lasts)
	return a, nil
}
