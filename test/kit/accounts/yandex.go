package accounts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// Yandex is a folder of Yandex Cloud.
type Yandex struct {
	*yandex.Cloud
	// Shape is what instances are like that are added from now on: their zone and hardware.
	Shape yandex.Instance
	// TLS lets the controller reach the folder by TLS with an authority of its own, else by plain text.
	TLS bool
	// MachineAccount lets the controller be a machine's service account, else it has an authorized key.
	MachineAccount bool
}

var _ Account = &Yandex{}

// StartYandex is Start for this cloud.
func StartYandex(o Options) (*Yandex, error) {
	if len(o.Limits) > 0 {
		return nil, errors.New("yandex cloud publishes no rate limits, so there are none to emulate")
	}
	opts := yandex.Options{
		Token: o.Token, Zone: o.Region, Seed: o.Seed, Speed: o.Speed, DataDir: o.DataDir, Instances: o.Machines,
		Durations: yandex.Each(o.Takes), Rules: yandex.Rules{Rights: yandex.DriverRights()},
	}
	if o.Decide != nil {
		opts.Decide = func(c yandex.Call) faults.Effect { return o.Decide(Call{Route: c.Route, Volume: c.Disk}) }
	}
	c, err := yandex.New(opts)
	return &Yandex{Cloud: c}, err
}

func (*Yandex) Name() string     { return "yandex" }
func (*Yandex) Region() string   { return yandex.DefaultZone }
func (*Yandex) Kind() string     { return "instance" }
func (*Yandex) Size() int64      { return gib }
func (*Yandex) GrowsInUse() bool { return true }
func (a *Yandex) Token() string  { return a.Cloud.Token }
func (a *Yandex) URL() string    { return a.Cloud.URL }
func (a *Yandex) Memory() Way    { return Way{Dial: a.Dial} }

func (a *Yandex) Flags() []string {
	return []string{"--region=" + a.Region(), "--yandex-folder-id=" + a.Folder}
}

func (a *Yandex) Controller(dir string) ([]string, error) {
	url, trust, err := a.endpoint(dir)
	if err != nil {
		return nil, err
	}
	if a.MachineAccount {
		who := a.Metadata(a.AddInstance(yandex.Instance{}))
		return slices.Concat(a.Flags(), trust, []string{"--cluster-id=test", "--api-endpoint=" + url, "--metadata-endpoint=" + who}), nil
	}
	key, err := a.NewKey()
	if err != nil {
		return nil, err
	}
	flags, err := controller(a, url, dir, "key.json", key)
	return append(flags, trust...), err
}

// endpoint is where the controller reaches the folder, and the flags that let it trust what is there.
func (a *Yandex) endpoint(dir string) (url string, trust []string, err error) {
	if !a.TLS {
		return a.URL(), nil, nil
	}
	const host = "127.0.0.1"
	url, authority, err := a.ListenTLS(context.Background(), host+":0", host)
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "ca.pem")
	return url, []string{"--api-ca-file=" + file}, os.WriteFile(file, authority, 0o600)
}

func (a *Yandex) Machine(dir string) ([]string, error) { return machine(a, dir) }

func (a *Yandex) Machines() []string { return a.Instances() }

func (a *Yandex) AddMachine(devices string) string {
	i := a.Shape
	i.DeviceDir = devices
	return a.AddInstance(i)
}

// RemoveMachine lets the disks come free soon: nothing can detach a disk from an instance that is gone.
func (a *Yandex) RemoveMachine(id string, lag time.Duration) {
	a.RemoveInstance(id, min(lag, 2*time.Second))
}

func (a *Yandex) Volumes() (all []Volume) {
	for _, d := range a.Disks() {
		all = append(all, Volume{
			ID: d.ID, Name: d.Name, Description: d.Description, Tags: tagsOf(d.Labels), Size: d.Size, Content: d.Content,
			Status: d.Status, Machine: d.Instance, Ready: d.Instance != "",
		})
	}
	return all
}

func (a *Yandex) Snapshots() (all []Snapshot) {
	for _, s := range a.Cloud.Snapshots() {
		all = append(all, Snapshot{ID: s.ID, Name: s.Name, Source: s.Disk, Tags: tagsOf(s.Labels), Content: s.Content, Status: s.Status})
	}
	return all
}

func tagsOf(labels map[string]string) (tags []string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		tags = append(tags, key+":"+labels[key])
	}
	return tags
}

func labelsOf(tags []string) map[string]string {
	labels := map[string]string{}
	for _, tag := range tags {
		key, value, _ := strings.Cut(tag, ":")
		labels[key] = value
	}
	return labels
}

func (a *Yandex) AddVolume(v Volume) (string, error) {
	return a.AddDisk(yandex.Disk{Name: v.Name, Description: v.Description, Labels: labelsOf(v.Tags), Size: v.Size, Content: v.Content})
}

func (a *Yandex) AddSnapshot(s Snapshot) (string, error) {
	return a.Cloud.AddSnapshot(yandex.Snapshot{Name: s.Name, Disk: s.Source, DiskSize: Find(a, s.Source).Size, Labels: labelsOf(s.Tags), Content: s.Content})
}

// DeleteVolume fails where the disk is still there after the answer.
func (a *Yandex) DeleteVolume(id string) error {
	conn, err := grpc.NewClient("passthrough:///folder", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(a.Dial))
	if err != nil {
		return err
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+a.Token())
	// The answer may get lost, and what was begun may fail: what is there counts.
	_, refused := compute.NewDiskServiceClient(conn).Delete(ctx, &compute.DeleteDiskRequest{DiskId: id})
	if _, there := a.Disk(id); there {
		err = fmt.Errorf("disk %s is still there: %w", id, refused)
	}
	return errors.Join(err, conn.Close())
}

func (a *Yandex) Busy(volume string) bool {
	return slices.ContainsFunc(a.Running(), func(op yandex.Operation) bool { return op.Disk == volume })
}

func (a *Yandex) Operations() (all []Operation) {
	for _, op := range a.Cloud.Operations() {
		all = append(all, Operation{Kind: op.Kind, Volume: op.DiskName, Accepted: op.Accepted, Finished: op.Finished})
	}
	return all
}

func (a *Yandex) Stats() Stats {
	stats := a.Cloud.Stats()
	return Stats{Stats: stats.Stats, AtOnce: stats.MaxParallel[a.Folder]}
}

func (a *Yandex) Violations() (all []string) {
	for _, v := range a.Cloud.Violations() {
		all = append(all, fmt.Sprintf("%s: disk %s on instance %s", v.What, v.DiskName, v.Instance))
	}
	return all
}

// Contract is empty: there is no OpenAPI description of a gRPC API.
func (*Yandex) Contract() contract.Totals { return contract.Totals{} }

func (*Yandex) Unchecked() string {
	return "the exchanges are checked by their types only: there is no OpenAPI description of a gRPC API"
}

func (a *Yandex) SlowReads(d time.Duration) {
	for _, method := range []string{"Get", "List", "ListOperations"} {
		a.Arm(faults.Fault{Method: method, Effect: faults.Effect{Delay: clock.Fixed(d)}})
	}
}
