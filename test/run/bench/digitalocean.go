package main

import (
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

var digitalOceanTarget = target{
	name:    "digitalocean",
	emulate: emulateDigitalOcean,
	limits:  []budget.Window{{Calls: 250, Per: time.Minute}, {Calls: 5000, Per: time.Hour, FromHeaders: true}},
	flood:   600,
	bars:    bars6{each: 1.5, foreign: 2, alone: 12},
	vendor: given{
		driver: "csi-digitalocean",
		quick:  "7 + 4", slow: "15 + 4", limited: "32, two thirds answered 429",
		attach: 6.7, collisions: "on 4 machines its p99 is 17 s of collisions",
	},
}

func emulateDigitalOcean(s setting, o accounts.Options) (accounts.Account, error) {
	a, err := accounts.StartDigitalOcean(o)
	if err != nil {
		return nil, err
	}
	lasts := emulator.Actions(o.Takes)
	lasts.CreateVolume = clock.Fixed(s.answers)
	a.SetDurations(lasts)
	return a, nil
}
