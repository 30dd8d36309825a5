package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// A target is a cloud that the controller is measured against: all that differs from one to another.
type target struct {
	// name is what --cloud takes.
	name string
	// emulate makes an account whose machines take one change at a time if the real cloud's do, and have room for
	// many volumes.
	emulate func(s setting, o accounts.Options) (accounts.Account, error)
	// limits are the real ones of its API. Where kinds of requests have limits of their own, an account always
	// has these as well.
	limits []budget.Window
	// operations is how many an account runs at once; 0: as many as there are.
	operations int
	// flood is how many creates are more than it takes in a minute, twice.
	flood int
	// bars are those of design section 6.
	bars bars6
	// vendor is what was measured of the vendor's own driver elsewhere, against another emulated account:
	// the same sequence, 100 volumes, 16 at a time.
	vendor given
}

// bars6 are reads that a cloud may need: for the life of one of 100 volumes, of one with 600 foreign volumes in the
// account, and for all of the life of one volume alone; scattered is each for operations of 1 to 5 s, and 0: the same.
type bars6 struct{ each, foreign, alone, scattered float64 }

// given are figures that are not measured here.
type given struct {
	// driver is the name of the driver that they are of.
	driver string
	// quick are requests for each volume with operations of 150 ms, slow with operations of 1 to 5 s,
	// limited under the real rate limit.
	quick, slow, limited string
	// attach is the median of an attach over the operation's own 150 ms; collisions is what else is known.
	attach     float64
	collisions string
}

// setting says how an account is.
type setting struct {
	machines int
	// takes is how long an attach and a detach run, by chance up to more longer. made is how long a new
	// volume is not ready, where the cloud answers a create before it is; answers is how long the answer
	// takes elsewhere.
	takes, more, made, answers time.Duration
	limits                     []budget.Window
	// foreign is how many volumes there are of others, gets how long the answer to each GET takes.
	foreign int
	gets    time.Duration
	// inMemory: it has no socket; for simulated time.
	inMemory bool
}

// start starts the account of a cloud.
func (s setting) start(ctx context.Context, t target) (accounts.Account, error) {
	o := accounts.Options{Takes: clock.Span{Least: s.takes, Spread: s.more}}
	for _, l := range s.limits {
		o.Limits = append(o.Limits, rest.Limit{Requests: l.Calls, Window: l.Per})
	}
	a, err := t.emulate(s, o)
	if err != nil {
		return nil, err
	}
	for range s.machines {
		a.AddMachine("")
	}
	for i := 0; i < s.foreign && err == nil; i++ {
		_, err = a.AddVolume(accounts.Volume{Name: fmt.Sprint(foreign, i)})
	}
	if s.gets > 0 {
		a.SlowReads(s.gets)
	}
	if err == nil && !s.inMemory {
		err = a.Listen(ctx, "127.0.0.1:0")
	}
	return a, err
}

// foreign begins the names of volumes of others.
const foreign = "foreign-"

// left names what there is of volumes, without those of others.
func left(a accounts.Account) []string {
	return slices.DeleteFunc(accounts.Left(a), func(what string) bool { return strings.Contains(what, foreign) })
}

// usable reports whether a machine has a volume's device, by their ids.
func usable(a accounts.Account) func(volume, machine string) bool {
	return func(volume, machine string) bool {
		v := accounts.Find(a, volume)
		return v.Machine == machine && v.Ready
	}
}

// counted are requests: by route, those that change nothing, the others, those refused for want of budget.
type counted struct {
	routes                 map[string]int
	reads, writes, refused int
	// atOnce is how many operations the account ran at once, where that is limited.
	atOnce int
}

func (c counted) all() int { return c.reads + c.writes }

// countedOf is what has been asked of an account's API since the last reset.
func countedOf(a accounts.Account) counted {
	stats := a.Stats()
	return counted{routes: stats.Routes, reads: stats.Reads, writes: stats.Writes, refused: stats.Refused, atOnce: stats.AtOnce}
}

// refusedPart is the part of the requests that were refused, in percent.
func (c counted) refusedPart() float64 { return 100 * float64(c.refused) / float64(max(1, c.all())) }

// change is an operation of the cloud on a volume: the call that it belongs to, the volume's name, when
// the cloud took it on and when it had ended.
type change struct {
	what               string
	volume             string
	accepted, finished time.Time
}

// changesOf are the operations of volumes that an account accepted since the last reset.
func changesOf(a accounts.Account) (all []change) {
	calls := map[string]string{
		accounts.Create: callCreate, accounts.Attach: callPublish, accounts.Detach: callUnpublish, accounts.Delete: callDelete,
	}
	for _, op := range a.Operations() {
		all = append(all, change{what: calls[op.Kind], volume: op.Volume, accepted: op.Accepted, finished: op.Finished})
	}
	return all
}

// targets are the clouds.
var targets = []target{digitalOceanTarget, linodeTarget, yandexTarget}

func targetOf(name string) (target, error) {
	var known []string
	for _, t := range targets {
		if t.name == name {
			return t, nil
		}
		known = append(known, t.name)
	}
	return target{}, fmt.Errorf("cloud %q: known are local, %s", name, strings.Join(known, ", "))
}

// byRoute is the counted requests in one line each.
func (c counted) byRoute() []string {
	var lines []string
	for _, route := range slices.Sorted(maps.Keys(c.routes)) {
		lines = append(lines, fmt.Sprintf("%5d  %s", c.routes[route], route))
	}
	return lines
}
