package main

import (
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

var yandexTarget = target{
	name:       "yandex",
	emulate:    emulateYandex,
	operations: 15,
	flood:      240,
	bars:       bars6{each: 9, foreign: 9, alone: 20, scattered: 15},
	vendor: given{
		driver: "both Yandex drivers",
		quick:  "13 + 4", slow: "21 + 4", limited: "not measured",
		attach: 6.7, collisions: "they do not count how many operations run",
	},
}

// emulateYandex makes a folder that runs so many operations at most. Its instances are of the generation that has
// room for many disks.
func emulateYandex(s setting, o accounts.Options) (accounts.Account, error) {
	a, err := accounts.StartYandex(o)
	if err != nil {
		return nil, err
	}
	a.Shape = emulator.Instance{Generation: emulator.Generation2}
	a.SetRules(func(r *emulator.Rules) { r.BootDisksElsewhere = true })
	lasts := emulator.Each(o.Takes)
	lasts.Create = clock.Fixed(s.made)
	a.SetDurations(lasts)
	return a, nil
}
