package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	linodes "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
)

// linodeSite is an emulated account of Linode.
type linodeSite struct {
	*linodes.Cloud
	chance func() float64
}

const linodeRegion = linodes.DefaultRegion

func newLinode(o siteOptions) (site, error) {
	lasts := linodes.Each(lasting)
	lasts.Delete = clock.Span{Spread: 3 * time.Second}
	c, err := linodes.New(linodes.Options{
		InMemory: true, Speed: o.speed, Seed: o.seed, Linodes: machines, Region: linodeRegion,
		Decide:    func(c linodes.Call) faults.Effect { return o.decide(request(c)) },
		Durations: lasts, Rules: linodeRules(o.seed),
	})
	return linodeSite{c, o.chance}, err
}

// linodeRules lets different seeds meet what is not documented: both stricter answers, each alone, and none.
func linodeRules(seed uint64) linodes.Rules {
	return linodes.Rules{
		DetachOfFreeRefused: seed%2 == 1, ResizeToSameRefused: seed%4 >= 2,
		AttachWhileCreatingRefused: seed%3 == 0, OneChangePerLinode: seed%3 == 1,
		ReadyWhileDetaching: seed%5 < 2, RetryAfter: seed%7 < 4,
	}
}

func (a linodeSite) region() string            { return linodeRegion }
func (a linodeSite) flags() []string           { return nil }
func (a linodeSite) token() string             { return a.Token }
func (a linodeSite) client() http.RoundTripper { return a.Client().Transport }
func (a linodeSite) handler() http.Handler     { return a.Handler() }
func (a linodeSite) close() error              { return a.Close() }
func (a linodeSite) nodes() []cloud.NodeID     { return nodesNumbered(a.Linodes()) }

// least: the smallest volume has 10 GiB.
func (a linodeSite) least() cloud.Bytes { return 9 * cloud.GiB }

// settle is as on the other cloud that sweeps what a clone has left that was broken off.
func (a linodeSite) settle(real bool) time.Duration { return digitalOcean{}.settle(real) }

func (a linodeSite) open(ctx context.Context, by way) (cloud.Cloud, func(context.Context) error, error) {
	c, err := linode.New(ctx, linode.Config{
		Token:    func() (string, error) { return a.Token, nil },
		Endpoint: a.URL, Transport: by.web, Region: linodeRegion, ClusterID: ourCluster, Rand: a.chance, LeftOverAge: leftOver,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// copying is what the label of a copy begins with that was never handed out: the driver sweeps those.
const copying = "clone-"

func (a linodeSite) truth(real bool) Truth {
	t := Truth{Volumes: map[cloud.VolumeID]Disk{}}
	for _, v := range a.Volumes() {
		t.Volumes[cloud.VolumeID(strconv.Itoa(v.ID))] = Disk{
			Name: v.Label, Foreign: slices.Contains(v.Tags, theirTags[0]), Size: cloud.Bytes(v.SizeGiB) * cloud.GiB, Stamp: v.Content,
			On: nodesOf(nodeNumbered(v.Linode)), Halfway: v.Linode != 0 && !v.IOReady,
			Later: real && v.Linode == 0 && strings.HasPrefix(v.Label, copying),
		}
	}
	return t
}

func volumeNumber(id cloud.VolumeID) int {
	n, _ := strconv.Atoi(string(id)) // there is no volume 0
	return n
}

func (a linodeSite) where(id cloud.VolumeID) (on cloud.NodeID, ready bool) {
	vol, _ := a.Volume(volumeNumber(id))
	return nodeNumbered(vol.Linode), vol.IOReady
}

func (a linodeSite) changing(id cloud.VolumeID) bool {
	return slices.ContainsFunc(a.Running(), func(op linodes.Operation) bool { return op.Volume == volumeNumber(id) })
}

func (a linodeSite) put(id cloud.VolumeID, on cloud.NodeID) {
	a.Attached(volumeNumber(id), numberOf(on))
}
func (a linodeSite) stamp(id cloud.VolumeID, text string) { a.SetContent(volumeNumber(id), text) }
func (a linodeSite) hold(id cloud.VolumeID) func()        { return a.Hold(volumeNumber(id)) }

func (a linodeSite) foreign(volume, _ string) (cloud.VolumeID, error) {
	id, err := a.AddVolume(linodes.Volume{Label: volume, SizeGiB: 10, Tags: theirTags, Content: theirStamp})
	return cloud.VolumeID(strconv.Itoa(id)), err
}

// tend deletes volumes whose create or clone failed in the cloud. Only the call that saw it knows that nobody
// has ever used them.
func (a linodeSite) tend() []string {
	var done []string
	for _, v := range a.Volumes() {
		if v.Status == "contact_support" && v.Linode == 0 && a.remove(v.ID) == nil {
			done = append(done, v.Label)
		}
	}
	return done
}

func (a linodeSite) remove(volume int) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, fmt.Sprintf("%s/v4/volumes/%d", a.URL, volume), http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+a.Token)
	answer, err := a.client().RoundTrip(r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("delete volume %d: %s", volume, answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

func (a linodeSite) complaints() []string {
	var texts []string
	for _, v := range a.Violations() {
		texts = append(texts, fmt.Sprintf("%s: %s Linode %d", v.What, v.Label, v.Linode))
	}
	return texts
}

// odds: in real time much less is waited for, so that there are fewer lists.
func (a linodeSite) odds(real bool) odds {
	if real {
		return odds{stale: .11, full: .1, pending: .14}
	}
	return odds{stale: .03, full: .13, pending: .14}
}

func (a linodeSite) sort(r request) sort {
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.Route, "}"):
		return toReadOne
	case r.Method == http.MethodGet:
		return toReadMany
	case r.Action == "resize":
		return toGrow
	case r.Action == "attach", r.Action == "detach":
		return toMove
	case r.Method == http.MethodPost:
		return toBuildLater
	case r.Method == http.MethodDelete:
		return toRemoveLater
	}
	return toChange
}

func (a linodeSite) refusal(kind Kind, rng *rand.Rand) faults.Effect {
	switch kind {
	case Full:
		return faults.Effect{Status: http.StatusBadRequest, Message: "Account limit reached. Please open a support ticket."}
	case Pending:
		return faults.Effect{Status: http.StatusBadRequest, Message: "Linode busy."}
	}
	return webRefusal(kind, rng)
}
