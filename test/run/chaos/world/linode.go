package world

import (
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	linodes "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

var (
	linodeTraits = traits{
		name: "linode", start: startLinode, sort: linodeSort, odds: linodeOdds, refusal: linodeRefusal,
	}
	// linodeSnapshotTraits are those of a cloud whose volumes the driver keeps as snapshots.
	linodeSnapshotTraits = traits{
		name: "linode", start: startLinodeSnapshots, sort: linodeSort, odds: linodeOdds, refusal: linodeRefusal,
	}
)

func startLinodeSnapshots(o accounts.Options) (accounts.Account, error) {
	a, err := startLinode(o)
	if err == nil {
		a.(*accounts.Linode).KeepsClones = true
	}
	return a, err
}

func startLinode(o accounts.Options) (accounts.Account, error) {
	a, err := accounts.StartLinode(o)
	if err != nil {
		return nil, err
	}
	a.SetRules(func(r *linodes.Rules) { *r = linodeRules(o.Seed) })
	a.SetDurations(linodes.Each(o.Takes))
	return a, nil
}

// linodeRules lets different seeds meet what is not documented: both stricter answers, each alone, and none. The rights are
// those that are documented as needed.
func linodeRules(seed uint64) linodes.Rules {
	r := linodes.Restricted()
	r.DetachOfFreeRefused, r.ResizeToSameRefused = seed%2 == 1, seed%4 >= 2
	r.AttachWhileCreatingRefused, r.OneChangePerLinode = seed%3 == 0, seed%3 == 1
	r.ReadyWhileDetaching, r.RetryAfter = seed%5 < 2, seed%7 < 4
	r.ConfigSlots = []int{0, 3, 64}[seed%3] // one volume that persists, as many as fit
	return r
}

// linodeOdds: in real time much less is waited for, so that there are fewer lists.
func linodeOdds(real bool) odds {
	if real {
		return odds{stale: .11, full: .1, pending: .14}
	}
	return odds{stale: .03, full: .13, pending: .14}
}

func linodeSort(r accounts.Call) sort {
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.Route, "}"):
		return toReadOne
	case r.Action == "follow":
		return toReadOne // no public source shows such a list to be old, and the backend takes its word for an end
	case r.Method == http.MethodGet:
		return toReadMany
	case r.Action == "resize":
		return toGrow
	case r.Action == "attach", r.Action == "detach":
		return toMove
	case r.Method == http.MethodPost:
		return toBuildLater
	}
	return toChange
}

func linodeRefusal(kind trouble.Kind, rng *rand.Rand) faults.Effect {
	switch kind {
	case trouble.Full:
		return faults.Effect{Status: http.StatusBadRequest, Message: "Account limit reached. Please open a support ticket."}
	case trouble.Pending:
		return faults.Effect{Status: http.StatusBadRequest, Message: "Linode busy."}
	}
	return webRefusal(kind, rng)
}
