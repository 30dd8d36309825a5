package main

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
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
	refusal func(kind Kind, rng *rand.Rand) faults.Effect
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
func (w *restWorld) Kinds() []Kind {
	return []Kind{Refused, Throttled, LostRequest, LostAnswer, Slow, Failed, Stale, Full, Pending}
}

// decide says what happens to a request.
func (w *restWorld) decide(r accounts.Call) faults.Effect {
	name := strings.TrimSpace(r.Method + " " + r.Route + " " + r.Action)
	what := w.traits.sort(r)
	kind, rng := w.in.decide(name, r.Volume, w.chances(what))
	if kind != "" {
		w.log("cloud: %s %s: %s", name, r.Volume, kind)
	}
	e := w.effect(kind, what, rng)
	e.Delay = clock.Fixed(between(rng, 5*time.Millisecond, 40*time.Millisecond))
	return e
}

// chances are what can happen to a request of a sort.
func (w *restWorld) chances(s sort) []chance {
	likely := w.traits.odds(w.real)
	if s == toReadOne || s == toReadMany {
		all := []chance{{Refused, .012}, {Throttled, .008}, {LostRequest, .008}, {LostAnswer, .008}}
		// An account that is full and hides what it holds at the same time cannot be seen through.
		if s == toReadMany && !w.in.since(time.Now().Add(-lag), Full) {
			if w.in.since(time.Now().Add(-unlucky), Late) {
				likely.stale = unluckily
			}
			all = append(all, chance{Stale, likely.stale})
		}
		return all
	}
	all := []chance{{Refused, .03}, {Throttled, .03}, {LostRequest, .04}, {LostAnswer, .06}, {Slow, .05}}
	switch s {
	case toGrow:
		all = append(all, chance{Full, .15}, chance{Failed, .1})
	case toMove:
		all = append(all, chance{Failed, .08}, chance{Pending, likely.pending})
	case toBuild:
		all = append(all, chance{Full, likely.full})
	case toBuildLater, toChangeLater:
		all = append(all, chance{Full, likely.full}, chance{Failed, .05})
	case toRemoveLater:
		all = append(all, chance{Failed, .05})
	}
	return all
}

// effect is a fault in the emulators' words.
func (w *restWorld) effect(kind Kind, s sort, rng *rand.Rand) faults.Effect {
	switch kind {
	case Refused, Throttled, Full, Pending:
		return w.traits.refusal(kind, rng)
	case LostRequest:
		return faults.Effect{Lost: faults.LostBefore}
	case LostAnswer:
		return faults.Effect{Lost: faults.LostAfter}
	case Slow:
		if s.later() {
			return faults.Effect{Takes: clock.Fixed(slowness(rng))}
		}
		return faults.Effect{DelayAnswer: clock.Fixed(slowness(rng))}
	case Failed:
		return faults.Effect{Errored: true}
	case Stale:
		return faults.Effect{StaleAge: clock.Fixed(between(rng, time.Second, lag))}
	default:
		return faults.Effect{}
	}
}

func slowness(rng *rand.Rand) time.Duration { return between(rng, 20*time.Second, 400*time.Second) }

// webRefusal is how every cloud refuses whose API is plain HTTP.
func webRefusal(kind Kind, rng *rand.Rand) faults.Effect {
	if kind == Throttled {
		return faults.Effect{Status: http.StatusTooManyRequests}
	}
	return faults.Effect{Status: []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[rng.IntN(3)]}
}
