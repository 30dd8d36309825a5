package accounts

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

const gib = 1 << 30

// DigitalOcean is an account of that cloud.
type DigitalOcean struct{ *digitalocean.Cloud }

var _ Account = DigitalOcean{}

// StartDigitalOcean is Start for this cloud.
func StartDigitalOcean(o Options) (DigitalOcean, error) {
	opts := digitalocean.Options{
		Token: o.Token, Region: o.Region, Seed: o.Seed, Speed: o.Speed, DataDir: o.DataDir, Droplets: o.Machines,
		Durations: digitalocean.Actions(o.Takes), Limits: o.Limits,
	}
	if o.Decide != nil {
		opts.Decide = func(c digitalocean.Call) faults.Effect { return o.Decide(Call(c)) }
	}
	if o.Real {
		opts.Limits = append(opts.Limits, digitalocean.RealLimits()...)
		opts.Rules = digitalocean.Rules{
			SnapshotInterval: clock.Fixed(10 * time.Minute), SnapshotsPerVolume: 25, Scopes: digitalocean.DocumentedScopes,
		}
	}
	c, err := digitalocean.New(opts)
	return DigitalOcean{c}, err
}

func (DigitalOcean) Name() string      { return "digitalocean" }
func (DigitalOcean) Region() string    { return digitalocean.DefaultRegion }
func (DigitalOcean) Kind() string      { return "droplet" }
func (DigitalOcean) Size() int64       { return gib }
func (DigitalOcean) GrowsInUse() bool  { return true }
func (a DigitalOcean) Token() string   { return a.Cloud.Token }
func (a DigitalOcean) URL() string     { return a.Cloud.URL }
func (a DigitalOcean) Memory() Way     { return Way{Web: a.Server} }
func (a DigitalOcean) Flags() []string { return []string{"--region=" + a.Region()} }

func (a DigitalOcean) Controller(dir string) ([]string, error) {
	return controller(a, a.URL(), dir, "token", []byte(a.Token()+"\n"))
}

func (a DigitalOcean) Machine(dir string) ([]string, error) { return machine(a, dir) }

func (a DigitalOcean) Machines() []string { return texts(a.Droplets()) }

func (a DigitalOcean) AddMachine(devices string) string {
	return text(a.AddDroplet(digitalocean.Droplet{DeviceDir: devices}))
}

func (a DigitalOcean) RemoveMachine(id string, lag time.Duration) { a.RemoveDroplet(number(id), lag) }

func (a DigitalOcean) Metadata(machine string) string { return a.Cloud.Metadata(number(machine)) }

func (a DigitalOcean) ListenMetadata(ctx context.Context, machine, address string) (string, error) {
	return a.Cloud.ListenMetadata(ctx, number(machine), address)
}

func (a DigitalOcean) Volumes() (all []Volume) {
	for _, v := range a.Cloud.Volumes() {
		all = append(all, Volume{
			ID: v.ID, Name: v.Name, Description: v.Description, Tags: v.Tags, Size: int64(v.SizeGiB) * gib, Content: v.Content,
			Machine: text(v.DropletID), Ready: v.DropletID != 0,
		})
	}
	return all
}

func (a DigitalOcean) Snapshots() (all []Snapshot) {
	for _, s := range a.Cloud.Snapshots() {
		all = append(all, Snapshot{ID: s.ID, Name: s.Name, Source: s.VolumeID, Tags: s.Tags, Content: s.Content})
	}
	return all
}

func (a DigitalOcean) AddVolume(v Volume) (string, error) {
	return a.Cloud.AddVolume(digitalocean.Volume{
		Name: v.Name, Description: v.Description, Tags: v.Tags, SizeGiB: int(cmp.Or(v.Size, a.Size()) / gib), Content: v.Content,
	})
}

func (a DigitalOcean) AddSnapshot(s Snapshot) (string, error) {
	return a.Cloud.AddSnapshot(digitalocean.Snapshot{
		Name: s.Name, VolumeID: s.Source, SizeGiB: int(Find(a, s.Source).Size / gib), Tags: s.Tags, Content: s.Content,
	})
}

func (a DigitalOcean) DeleteVolume(id string) error { return deleteByWeb(a, "/v2/volumes/"+id) }

func (a DigitalOcean) Attached(volume, machine string) { a.Cloud.Attached(volume, number(machine)) }

func (a DigitalOcean) Busy(volume string) bool {
	return slices.ContainsFunc(a.Running(), func(op digitalocean.Operation) bool { return op.Volume == volume })
}

func (a DigitalOcean) Operations() (all []Operation) {
	for _, op := range a.Cloud.Operations() {
		all = append(all, Operation{Kind: strings.TrimSuffix(op.Kind, "_volume"), Volume: op.VolumeName, Accepted: op.Accepted, Finished: op.Finished})
	}
	return all
}

func (a DigitalOcean) Stats() Stats { return Stats{Stats: a.Cloud.Stats().Stats} }

func (a DigitalOcean) Violations() (all []string) {
	for _, v := range a.Cloud.Violations() {
		all = append(all, fmt.Sprintf("%s: volume %s on droplet %d", v.What, v.VolumeName, v.Droplet))
	}
	return all
}

func (a DigitalOcean) SlowReads(d time.Duration) {
	a.Arm(faults.Fault{Method: http.MethodGet, Effect: faults.Effect{Delay: clock.Fixed(d)}})
}
