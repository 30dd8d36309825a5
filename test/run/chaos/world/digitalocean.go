package world

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

var digitalOceanTraits = traits{
	name: "digitalocean", start: startDigitalOcean, sort: digitalOceanSort, refusal: digitalOceanRefusal,
	odds: func(bool) odds { return odds{stale: .18, full: .08, pending: .08} },
}

func startDigitalOcean(o accounts.Options) (accounts.Account, error) {
	a, err := accounts.StartDigitalOcean(o)
	if err != nil {
		return nil, err
	}
	a.SetRules(func(r *emulator.Rules) { *r = digitalOceanRules(o.Seed) })
	return a, nil
}

// digitalOceanRules lets different seeds meet what is not documented, and the rule that slows snapshots down.
func digitalOceanRules(seed uint64) emulator.Rules {
	r := emulator.Rules{RestoreHonoursSize: seed%2 == 0, ChangeOnAccept: seed%4 == 1}
	if seed%5 == 0 { // a token that may not write tags
		r.Scopes = emulator.NeededScopes
	}
	if seed%3 == 0 {
		r.SnapshotInterval, r.SnapshotsPerVolume = clock.Fixed(10*time.Minute), 25
	}
	return r
}

func digitalOceanSort(r accounts.Call) sort {
	switch {
	case r.Method == http.MethodGet && strings.Contains(r.Route, "{"):
		return toReadOne
	case r.Method == http.MethodGet:
		return toReadMany
	case r.Action == "resize":
		return toGrow
	case r.Action != "":
		return toMove
	case r.Method == http.MethodPost && r.Route != "/v2/tags":
		return toBuild
	}
	return toChange
}

func digitalOceanRefusal(kind trouble.Kind, rng *rand.Rand) faults.Effect {
	switch kind {
	case trouble.Full:
		return faults.Effect{Status: http.StatusForbidden, Message: "volume/snapshot capacity limit exceeded"}
	case trouble.Pending:
		return faults.Effect{Status: http.StatusUnprocessableEntity, Message: "Droplet already has a pending event"}
	case trouble.Throttled: // the real one says in its headers that the budget is spent
		return faults.Effect{Status: http.StatusTooManyRequests, Header: map[string]string{"Ratelimit-Remaining": "0"}}
	}
	return webRefusal(kind, rng)
}
