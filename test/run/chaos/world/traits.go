package world

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// traits are what differs between the clouds when things go wrong there.
type traits struct {
	name string
	// start starts an account, with rules that depend on the seed.
	start func(accounts.Options) (accounts.Account, error)
	// sort says what a request is for, and odds how often what goes wrong: so that each kind of fault has its
	// share, with a backend that lists much or moves little.
	sort func(accounts.Call) sort
	odds func(real bool) odds
	// refusal is how this cloud refuses: because of a passing error, of too many requests, of too little
	// room, of a machine that is busy.
	refusal func(kind trouble.Kind, rng *rand.Rand) faults.Effect
	// duplicate makes an older volume with the name of one, "" where the rules of the seed do not allow that; nil: names are
	// unique.
	duplicate func(a accounts.Account, seed uint64, of string) string
}

// sort is what a request is for.
type sort int

const (
	toReadOne sort = iota
	toReadMany
	toChange     // that is through with its answer
	toBuild      // of something new, which is there with the answer
	toBuildLater // which is there some time after the answer
	toChangeLater
	toRemoveLater
	toMove // to or from a machine
	toGrow
)

// later says that the change goes on after the answer.
func (s sort) later() bool { return s >= toBuildLater }

// odds are the probabilities of faults for each request that can meet them.
type odds struct{ stale, full, pending float64 }

const (
	// lag is how old the state is that a stale read shows.
	lag = 45 * time.Second
	// unlucky is for how long after something late the lists are often old, and unluckily how often.
	unlucky   = 2 * time.Second
	unluckily = .5
)

// lasting is how long operations usually take.
var lasting = clock.Span{Least: time.Second, Spread: 9 * time.Second}

// Kinds are the faults that this cloud can have. Each must make up its share.
func (w *World) Kinds() []trouble.Kind {
	return []trouble.Kind{trouble.Refused, trouble.Throttled, trouble.LostRequest, trouble.LostAnswer, trouble.Slow, trouble.Failed, trouble.Stale, trouble.Full, trouble.Pending}
}

// decide says what happens to a request.
func (w *World) decide(r accounts.Call) faults.Effect {
	name := strings.TrimSpace(r.Method + " " + r.Route + " " + r.Action)
	what := w.traits.sort(r)
	kind, rng := w.in.Decide(name, r.Volume, w.chances(what))
	if kind != "" {
		w.log("cloud: %s %s: %s", name, r.Volume, kind)
	}
	e := w.effect(kind, what, rng)
	e.Delay = clock.Fixed(trouble.Between(rng, 5*time.Millisecond, 40*time.Millisecond))
	return e
}

// chances are what can happen to a request of a sort.
func (w *World) chances(s sort) []trouble.Chance {
	likely := w.traits.odds(w.real)
	if s == toReadOne || s == toReadMany {
		all := []trouble.Chance{trouble.Refused.Chance(.012), trouble.Throttled.Chance(.008), trouble.LostRequest.Chance(.008), trouble.LostAnswer.Chance(.008)}
		// An account that is full and hides what it holds at the same time cannot be seen through.
		if s == toReadMany && !w.in.Since(time.Now().Add(-lag), trouble.Full) {
			if w.in.Since(time.Now().Add(-unlucky), trouble.Late) {
				likely.stale = unluckily
			}
			all = append(all, trouble.Stale.Chance(likely.stale))
		}
		return all
	}
	all := []trouble.Chance{trouble.Refused.Chance(.03), trouble.Throttled.Chance(.03), trouble.LostRequest.Chance(.04), trouble.LostAnswer.Chance(.06), trouble.Slow.Chance(.05)}
	switch s {
	case toGrow:
		all = append(all, trouble.Full.Chance(.15), trouble.Failed.Chance(.1))
	case toMove:
		all = append(all, trouble.Failed.Chance(.08), trouble.Pending.Chance(likely.pending))
	case toBuild:
		all = append(all, trouble.Full.Chance(likely.full))
	case toBuildLater, toChangeLater:
		all = append(all, trouble.Full.Chance(likely.full), trouble.Failed.Chance(.05))
	case toRemoveLater:
		all = append(all, trouble.Failed.Chance(.05))
	}
	return all
}

// effect is a fault in the emulators' words.
func (w *World) effect(kind trouble.Kind, s sort, rng *rand.Rand) faults.Effect {
	switch kind {
	case trouble.Refused, trouble.Throttled, trouble.Full, trouble.Pending:
		return w.traits.refusal(kind, rng)
	case trouble.LostRequest:
		return faults.Effect{Lost: faults.LostBefore}
	case trouble.LostAnswer:
		return faults.Effect{Lost: faults.LostAfter}
	case trouble.Slow:
		if s.later() {
			return faults.Effect{Takes: clock.Fixed(slowness(rng))}
		}
		return faults.Effect{DelayAnswer: clock.Fixed(slowness(rng))}
	case trouble.Failed:
		return faults.Effect{Errored: true}
	case trouble.Stale:
		return faults.Effect{StaleAge: clock.Fixed(trouble.Between(rng, time.Second, lag))}
	default:
		return faults.Effect{}
	}
}

func slowness(rng *rand.Rand) time.Duration {
	return trouble.Between(rng, 20*time.Second, 400*time.Second)
}

// webRefusal is how every cloud refuses whose API is plain HTTP.
func webRefusal(kind trouble.Kind, rng *rand.Rand) faults.Effect {
	if kind == trouble.Throttled {
		return faults.Effect{Status: http.StatusTooManyRequests}
	}
	return faults.Effect{Status: []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[rng.IntN(3)]}
}
