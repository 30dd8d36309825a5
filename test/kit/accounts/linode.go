package accounts

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// Linode is an account of that cloud.
type Linode struct {
	*linode.Cloud
	// Shape is what machines are like that are added from now on: their memory and local disks.
	Shape linode.Linode
	// KeepsClones: its programs keep clones as snapshots.
	KeepsClones bool
}

var _ Account = &Linode{}

// StartLinode is Start for this cloud.
func StartLinode(o Options) (*Linode, error) {
	opts := linode.Options{
		Token: o.Token, Region: o.Region, Seed: o.Seed, Speed: o.Speed, DataDir: o.DataDir, Linodes: o.Machines,
		Durations: linode.Each(o.Takes), Limits: o.Limits,
	}
	if o.Decide != nil {
		opts.Decide = func(c linode.Call) faults.Effect { return o.Decide(Call(c)) }
	}
	if o.Real {
		opts.Limits, opts.Rules = append(opts.Limits, linode.RealLimits()...), linode.Restricted()
		opts.Rules.OneChangePerLinode = true
	}
	c, err := linode.New(opts)
	return &Linode{Cloud: c}, err
}

func (*Linode) Name() string      { return "linode" }
func (*Linode) Region() string    { return linode.DefaultRegion }
func (*Linode) Kind() string      { return "linode" }
func (*Linode) Size() int64       { return 10 * gib }
func (*Linode) GrowsInUse() bool  { return false }
func (a *Linode) Token() string   { return a.Cloud.Token }
func (a *Linode) URL() string     { return a.Cloud.URL }
func (a *Linode) Memory() Way     { return Way{Web: a.Server} }
func (a *Linode) Flags() []string { return append(a.snapshotFlags(), "--region="+a.Region()) }

// snapshotFlags are those of both programs.
func (a *Linode) snapshotFlags() []string {
	if a.KeepsClones {
		return []string{"--linode-snapshots=clones"}
	}
	return nil
}

func (a *Linode) Controller(dir string) ([]string, error) {
	return controller(a, a.URL(), dir, "token", []byte(a.Token()+"\n"))
}

// Machine lets this machine's own disks stand for some of the Linode's; the node program cannot see the others, so that
// they are reserved.
func (a *Linode) Machine(dir string) ([]string, error) {
	const usual = 2 // as in the account
	here, err := device.NewByID(device.ByIDConfig{LinkPrefix: profile.Linode.LinkPrefix}).Foreign()
	if err != nil {
		return nil, err
	}
	flags, err := machine(a, dir)
	flags = append(flags, a.snapshotFlags()...)
	return append(flags, fmt.Sprintf("--reserved-attachments=%d", max(0, int64(cmp.Or(a.Shape.Disks, usual))-here))), err
}

func (a *Linode) Machines() []string { return texts(a.Linodes()) }

func (a *Linode) AddMachine(devices string) string {
	l := a.Shape
	l.DeviceDir = devices
	return text(a.AddLinode(l))
}

func (a *Linode) RemoveMachine(id string, lag time.Duration) { a.RemoveLinode(number(id), lag) }

func (a *Linode) Metadata(machine string) string { return a.Cloud.Metadata(number(machine)) }

func (a *Linode) ListenMetadata(ctx context.Context, machine, address string) (string, error) {
	return a.Cloud.ListenMetadata(ctx, number(machine), address)
}

func (a *Linode) Volumes() (all []Volume) {
	for _, v := range a.Cloud.Volumes() {
		if _, is := snapshotOf(v); is {
			continue
		}
		all = append(all, Volume{
			ID: text(v.ID), Name: v.Label, Tags: v.Tags, Size: int64(v.SizeGiB) * gib, Content: v.Content, Status: v.Status,
			Machine: text(v.Linode), Ready: v.IOReady,
		})
	}
	return all
}

// The cloud has no snapshots of volumes. Those of the driver are volumes with this tag, or with a label of this form.
const ofVolume = "cloudblock-snapshot-of:"

var (
	snapshotLabel = regexp.MustCompile(`^snap_[0-9a-v]{8}_[0-9a-v]{16}$`)
	unfinished    = regexp.MustCompile(`^clone_[0-9a-v]{8}_[0-9a-v]{16}$`)
)

// snapshotOf returns the volume of a snapshot, and whether a volume is one.
func snapshotOf(v linode.Volume) (of string, is bool) {
	if unfinished.MatchString(v.Label) {
		return "", false
	}
	for _, tag := range v.Tags {
		if of, is := strings.CutPrefix(tag, ofVolume); is {
			return of, true
		}
	}
	return "", snapshotLabel.MatchString(v.Label)
}

func (a *Linode) Snapshots() (all []Snapshot) {
	for _, v := range a.Cloud.Volumes() {
		if of, is := snapshotOf(v); is {
			all = append(all, Snapshot{ID: "snap-" + text(v.ID), Name: v.Label, Source: of, Tags: v.Tags, Content: v.Content, Status: v.Status})
		}
	}
	return all
}

func (a *Linode) AddSnapshot(s Snapshot) (string, error) {
	id, err := a.AddVolume(Volume{Name: s.Name, Size: Find(a, s.Source).Size, Tags: append([]string{ofVolume + s.Source}, s.Tags...), Content: s.Content})
	return "snap-" + id, err
}

func (a *Linode) AddVolume(v Volume) (string, error) {
	id, err := a.Cloud.AddVolume(linode.Volume{Label: v.Name, Tags: v.Tags, SizeGiB: int(cmp.Or(v.Size, a.Size()) / gib), Content: v.Content})
	return text(id), err
}

func (a *Linode) DeleteVolume(id string) error { return deleteByWeb(a, "/v4/volumes/"+id) }

func (a *Linode) Attached(volume, machine string) { a.Cloud.Attached(number(volume), number(machine)) }

func (a *Linode) SetContent(volume, content string) { a.Cloud.SetContent(number(volume), content) }

func (a *Linode) Hold(volume string) func() { return a.Cloud.Hold(number(volume)) }

func (a *Linode) Busy(volume string) bool {
	return slices.ContainsFunc(a.Running(), func(op linode.Operation) bool { return op.Volume == number(volume) })
}

func (a *Linode) Operations() (all []Operation) {
	for _, op := range a.Cloud.Operations() {
		all = append(all, Operation{Kind: strings.TrimPrefix(op.Kind, "volume_"), Volume: op.Label, Accepted: op.Accepted, Finished: op.Finished})
	}
	return all
}

func (a *Linode) Stats() Stats { return Stats{Stats: a.Cloud.Stats().Stats} }

func (a *Linode) Violations() (all []string) {
	for _, v := range a.Cloud.Violations() {
		all = append(all, fmt.Sprintf("%s: volume %s on Linode %d", v.What, v.Label, v.Linode))
	}
	return all
}

func (a *Linode) SlowReads(d time.Duration) {
	a.Arm(faults.Fault{Method: http.MethodGet, Effect: faults.Effect{Delay: clock.Fixed(d)}})
}
