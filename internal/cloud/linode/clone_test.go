package linode_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// copyOf asks for a copy with 20 GiB.
func copyOf(name string, source cloud.VolumeID) cloud.CreateVolumeRequest {
	req := request(name)
	req.Source.Volume, req.Size = source, 20*cloud.GiB
	req.Tags = []cloud.Tag{{Key: "team", Value: "a"}}
	return req
}

// C5: the copy is as large as asked for, the reply says what the cloud says, and it carries all its tags: the
// cloud itself copies size and content and nothing else.
func TestACopyIsGrownAndTagged(t *testing.T) {
	account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond))})
	c := stack(open(t, account))
	source := volume(t, c, "source")
	account.SetContent(number(t, source.ID), "the data")
	attach(t, c, source.ID, node1)
	first := create(t, c, copyOf("copy", source.ID))
	again := create(t, c, copyOf("copy", source.ID))
	got, _ := account.Volume(number(t, first.ID))
	if first.Size != 20*cloud.GiB || first.ID != again.ID || got.SizeGiB != 20 || got.Label != "copy" || got.Content != "the data" {
		t.Errorf("CreateVolume = %+v, then %+v, and the account has %+v", first, again, got)
	}
	words := strings.Join(got.Tags, " ")
	for _, want := range []string{"team:a", "cloudblock-cluster:one", "cloudblock-source-volume:" + string(source.ID)} {
		if !strings.Contains(words, want) {
			t.Errorf("the copy's tags %q lack %q", words, want)
		}
	}
	if n := len(account.Volumes()); n != 2 {
		t.Errorf("there are %d volumes, want 2", n)
	}
}

func TestACopyThatCannotBeIsRefused(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	source := volume(t, c, "source")
	secret := request("secret")
	secret.Parameters = []cloud.Parameter{{Name: linode.ParamEncrypted, Value: "true"}}
	hidden := create(t, c, secret)
	open := request("open")
	open.Parameters = []cloud.Parameter{{Name: linode.ParamEncrypted, Value: "false"}}
	plain := create(t, c, open)
	tests := map[string]struct {
		edit func(*cloud.CreateVolumeRequest)
		kind fault.Kind
		says string
	}{
		"of no volume":      {func(r *cloud.CreateVolumeRequest) { r.Source.Volume = "999" }, fault.NotFound, "999"},
		"of what is no id":  {func(r *cloud.CreateVolumeRequest) { r.Source.Volume = "../1" }, fault.NotFound, "no volume has such an id"},
		"in another region": {func(r *cloud.CreateVolumeRequest) { r.Zones = []string{"us-east"} }, fault.Exhausted, "us-ord"},
		"beyond its limit": {func(r *cloud.CreateVolumeRequest) {
			r.Source.Volume, r.Size, r.Limit = source.ID, cloud.GiB, 5*cloud.GiB
		}, fault.OutOfRange, "limit"},
		"of an encrypted one in plain": {func(r *cloud.CreateVolumeRequest) { r.Source.Volume, r.Parameters = hidden.ID, open.Parameters }, fault.InvalidArgument, `encrypted: "true"`},
		"of a plain one, encrypted":    {func(r *cloud.CreateVolumeRequest) { r.Source.Volume, r.Parameters = plain.ID, secret.Parameters }, fault.InvalidArgument, `encrypted: "false"`},
		"from a snapshot":              {func(r *cloud.CreateVolumeRequest) { r.Source = cloud.Source{Snapshot: "1"} }, fault.InvalidArgument, "no snapshots"},
	}
	before := len(account.Volumes())
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			req := copyOf("copy", source.ID)
			tc.edit(&req)
			_, err := c.CreateVolume(t.Context(), req)
			want(t, err, tc.kind, tc.says)
		})
	}
	if left := account.Volumes(); len(left) != before {
		t.Errorf("left are %+v", left)
	}
}

// A class that says nothing about encryption gets a copy that is encrypted as its source is.
func TestACopyInheritsTheEncryption(t *testing.T) {
	for _, value := range []string{"true", "false"} {
		t.Run(value, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account))
			asked := []cloud.Parameter{{Name: linode.ParamEncrypted, Value: value}}
			req := request("source")
			req.Parameters = asked
			source := create(t, c, req)
			first := create(t, c, copyOf("copy", source.ID))
			again := create(t, c, copyOf("copy", source.ID))
			if !slices.Equal(first.Parameters, asked) || first.ID != again.ID {
				t.Errorf("CreateVolume = %+v, then %+v, want encrypted %s", first, again, value)
			}
		})
	}
}

// A copy that was broken off and is never asked for again is removed when it is old, and no other volume is.
func TestTheSweepRemovesLeftOverCopiesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		registry := prometheus.NewRegistry()
		measured, err := ops.NewMetrics(registry)
		must(t, err)
		quiet := func(cfg *linode.Config) { cfg.SweepEvery = -1 }
		c := open(t, account, quiet, func(cfg *linode.Config) { cfg.Metrics.Ops = measured })
		other := open(t, account, inCluster("two"), quiet)
		source := volume(t, c, "source")
		for _, from := range []cloud.Cloud{c, other} {
			post(account, resizeRoute, faults.Effect{Status: 400, Message: "Account limit reached."})
			_, err = from.CreateVolume(t.Context(), copyOf("copy", source.ID))
			want(t, err, fault.Uncertain, "goes on from there")
		}
		done := create(t, c, copyOf("done", source.ID))
		mine := account.Volumes()[1].Label
		_, err = account.AddVolume(emulator.Volume{Label: mine[:len(mine)-1] + "-", Tags: []string{"by-hand"}})
		must(t, err)
		must(t, c.Sweep(t.Context()))
		metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 1})
		if n := len(account.Volumes()); n != 5 {
			t.Errorf("a sweep before its time has left %d volumes, want 5", n)
		}
		time.Sleep(24 * time.Hour)
		must(t, c.Sweep(t.Context()))
		metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 0})
		for _, v := range account.Volumes() {
			if v.Label == mine {
				t.Errorf("%+v is left", v)
			}
		}
		if n := len(account.Volumes()); n != 4 {
			t.Errorf("the sweep has left %d volumes, want 4: the source, %s, the other cluster's and the one by hand", n, done.ID)
		}
		open(t, account, inCluster("two")) // sweeps now and then by itself
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		if n := len(account.Volumes()); n != 3 {
			t.Errorf("the other cluster's controller has left %d volumes, want 3", n)
		}
	})
}

// E1, E3: the size of an attached volume grows at once, its Linode sees it with the next attach, and so the node
// has to confirm it for raw devices too.
func TestGrowthShowsOnTheMachineWithTheNextAttach(t *testing.T) {
	account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond)), Rules: strict})
	c := stack(open(t, account))
	id := volume(t, c, "ab").ID
	grow := func(size cloud.Bytes, confirm bool) {
		t.Helper()
		exp, err := c.ExpandVolume(t.Context(), id, size)
		if err != nil || exp != (cloud.Expansion{Size: max(size, 10*cloud.GiB), NodeMustConfirm: confirm}) {
			t.Errorf("ExpandVolume to %s = %+v, %v, want confirmed: %v", size, exp, err, confirm)
		}
	}
	grow(10*cloud.GiB, false)
	grow(cloud.GiB, false)
	attach(t, c, id, node1)
	grow(20*cloud.GiB, true)
	grow(20*cloud.GiB, true)
	if v, _ := account.Volume(number(t, id)); v.SizeGiB != 20 || v.DeviceGiB != 10 {
		t.Errorf("the account has %+v, want 20 GiB and a device of 10", v)
	}
	must(t, c.Detach(t.Context(), id, node1))
	attach(t, c, id, node1)
	if v, _ := account.Volume(number(t, id)); v.DeviceGiB != 20 {
		t.Errorf("the account has %+v, want a device of 20 GiB", v)
	}
	_, err := c.ExpandVolume(t.Context(), id, 16385*cloud.GiB)
	want(t, err, fault.OutOfRange, "16384")
	post(account, resizeRoute, faults.Effect{Status: 400, Message: "Account limit reached."})
	_, err = c.ExpandVolume(t.Context(), id, 30*cloud.GiB)
	want(t, err, fault.Exhausted, "Account limit reached.")
}

// A copy or a growth waits for no device of its volume: a Linode that is off, or an attach that has failed, may never show one.
func TestACopyOrGrowthWaitsForNoDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{FailedAttachStays: true}})
		c := stack(open(t, account, keepClones))
		source := volume(t, c, "source")
		post(account, attachRoute, faults.Effect{Errored: true})
		_, err := c.Attach(t.Context(), source.ID, node1)
		want(t, err, fault.Unavailable)
		at(t, account, source.ID, linode1)
		began := time.Now()
		snapshot(t, c, "s", source.ID)
		create(t, c, copyOf("copy", source.ID))
		for range 2 { // the second has the size
			exp, err := c.ExpandVolume(t.Context(), source.ID, 20*cloud.GiB)
			if err != nil || exp != (cloud.Expansion{Size: 20 * cloud.GiB, NodeMustConfirm: true}) {
				t.Errorf("ExpandVolume = %+v, %v", exp, err)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("two copies and the growth took %s", took)
		}
		_, err = c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "d", Volume: source.ID, Parameters: detached})
		want(t, err, fault.Precondition, "attached")
	})
}

// A copy that another controller has finished meanwhile is not taken back, whatever else still has its label.
func TestACopyThatAnotherControllerHasFinishedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c, other := open(t, account), open(t, account)
		req := copyOf("copy", volume(t, c, "source").ID)
		account.Arm(emulator.Fault{Method: "PUT", Times: 1, Effect: faults.Effect{Lost: faults.LostBefore}})
		_, err := c.CreateVolume(t.Context(), req)
		want(t, err, fault.Uncertain)
		account.Arm(emulator.Fault{Method: "PUT", Times: 1, Effect: faults.Effect{Delay: clock.Fixed(10 * time.Second), Status: 400, ID: "label", Message: "is taken"}})
		refused := make(chan error, 1)
		go func() { _, err := c.CreateVolume(t.Context(), req); refused <- err }()
		time.Sleep(5 * time.Second)
		made := create(t, other, req)
		gone, err := account.AddVolume(emulator.Volume{ID: 7, Label: "copy"}) // deleted before all of this
		must(t, err)
		account.SetStatus(gone, "deleting")
		want(t, <-refused, fault.Conflict)
		if v, found := account.Volume(number(t, made.ID)); !found || v.Label != "copy" {
			t.Errorf("the copy that was returned is %+v, %v", v, found)
		}
	})
}
