package cloudtest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mutant is a correct backend that breaks one sentence of the contract. Each field replaces a method.
type mutant struct {
	cloud.Cloud

	capabilities   func(good cloud.Capabilities) cloud.Capabilities
	capacity       func(good cloud.Cloud, ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error)
	createVolume   func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error)
	findVolume     func(good cloud.Cloud, ctx context.Context, name string) (cloud.Volume, error)
	getVolume      func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) (cloud.Volume, error)
	deleteVolume   func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) error
	listVolumes    func(good cloud.Cloud, ctx context.Context, page cloud.Page) (cloud.VolumeList, error)
	expandVolume   func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error)
	modifyVolume   func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error
	attach         func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error)
	detach         func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error
	createSnapshot func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error)
	deleteSnapshot func(good cloud.Cloud, ctx context.Context, id cloud.SnapshotID) error
}

// or returns the method that replaces the good one, or the good one.
func or[method any](replaced, good method) method {
	if reflect.ValueOf(replaced).IsNil() {
		return good
	}
	return replaced
}

func (m mutant) Capabilities() cloud.Capabilities {
	if m.capabilities == nil {
		return m.Cloud.Capabilities()
	}
	return m.capabilities(m.Cloud.Capabilities())
}

func (m mutant) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error) {
	return or(m.capacity, cloud.Cloud.Capacity)(m.Cloud, ctx, zone, class)
}

func (m mutant) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	return or(m.createVolume, cloud.Cloud.CreateVolume)(m.Cloud, ctx, req)
}

func (m mutant) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	return or(m.findVolume, cloud.Cloud.FindVolume)(m.Cloud, ctx, name)
}

func (m mutant) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	return or(m.getVolume, cloud.Cloud.GetVolume)(m.Cloud, ctx, id)
}

func (m mutant) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	return or(m.deleteVolume, cloud.Cloud.DeleteVolume)(m.Cloud, ctx, id)
}

func (m mutant) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	return or(m.listVolumes, cloud.Cloud.ListVolumes)(m.Cloud, ctx, page)
}

func (m mutant) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	return or(m.expandVolume, cloud.Cloud.ExpandVolume)(m.Cloud, ctx, id, size)
}

func (m mutant) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	return or(m.modifyVolume, cloud.Cloud.ModifyVolume)(m.Cloud, ctx, id, tags)
}

func (m mutant) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	return or(m.attach, cloud.Cloud.Attach)(m.Cloud, ctx, id, node)
}

func (m mutant) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	return or(m.detach, cloud.Cloud.Detach)(m.Cloud, ctx, id, node)
}

func (m mutant) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return or(m.createSnapshot, cloud.Cloud.CreateSnapshot)(m.Cloud, ctx, req)
}

func (m mutant) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return or(m.deleteSnapshot, cloud.Cloud.DeleteSnapshot)(m.Cloud, ctx, id)
}

// all returns every volume of a correct cloud.
func all(ctx context.Context, good cloud.Cloud) []cloud.Volume {
	list, _ := good.ListVolumes(ctx, cloud.Page{})
	return list.Volumes
}

// misreporting attaches, and answers with another error in the place of one.
func misreporting(one, other error) func(cloud.Cloud, context.Context, cloud.VolumeID, cloud.NodeID) (cloud.Device, error) {
	return func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
		dev, err := good.Attach(ctx, id, node)
		if errors.Is(err, one) {
			err = other
		}
		return dev, err
	}
}

// mutation is a broken backend with the sentence whose subtest has to fail.
type mutation struct {
	breaks  mutant
	shape   memory.Config
	caught  string // part of the name of a subtest that must fail
	stacked bool   // the decorators are inside the mutant
}

// mutants are the broken backends.
var mutants = map[string]mutation{
	"lets the driver's own tags be changed": {caught: "a tag of the driver's own", breaks: mutant{
		modifyVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
			return good.ModifyVolume(ctx, id, slices.DeleteFunc(slices.Clone(tags), func(t cloud.Tag) bool { return strings.HasPrefix(t.Key, cloud.OwnTags) }))
		}}},
	"modifies what does not exist": {caught: "fault.NotFound when there is no such volume", breaks: mutant{
		modifyVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
			if err := good.ModifyVolume(ctx, id, tags); fault.Of(err) != fault.NotFound {
				return err
			}
			return nil
		}}},
	"forgets a tag of several": {caught: "each tag replaces", breaks: mutant{
		modifyVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
			return good.ModifyVolume(ctx, id, tags[:min(len(tags), 1)])
		}}},
	"adopts whatever has the name": {caught: "by whatever volume", stacked: true, breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			if found, err := good.FindVolume(ctx, req.Name); err == nil {
				return found, nil
			}
			return good.CreateVolume(ctx, req)
		}}},
	"returns what has the name": {caught: "CreateVolume/a name that is taken", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			vol, err := good.CreateVolume(ctx, req)
			if errors.Is(err, fault.Conflict) {
				return good.FindVolume(ctx, req.Name)
			}
			return vol, err
		}}},
	"makes a second volume of one name": {caught: "many creates of one name", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			vol, err := good.CreateVolume(ctx, req)
			if errors.Is(err, fault.Conflict) {
				req.Name += strconv.Itoa(len(all(ctx, good)))
				return good.CreateVolume(ctx, req)
			}
			return vol, err
		}}},
	"serves a copy as an empty volume": {caught: "names its source", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			req.Source = cloud.Source{}
			return good.CreateVolume(ctx, req)
		}}},
	"claims the size that was asked for": {caught: "has the size asked for", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			asked := req.Size
			if !req.Source.Blank() {
				req.Size = cloud.GiB
			}
			vol, err := good.CreateVolume(ctx, req)
			vol.Size = asked
			return vol, err
		}}},
	"takes the last zone": {caught: "first acceptable zone", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			req.Zones = slices.Clone(req.Zones)
			slices.Reverse(req.Zones)
			return good.CreateVolume(ctx, req)
		}}},
	"leaves a volume behind a refusal": {caught: "fault.OutOfRange is given only", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			vol, err := good.CreateVolume(ctx, req)
			if errors.Is(err, fault.OutOfRange) {
				req.Size = cloud.GiB
				_, _ = good.CreateVolume(ctx, req)
			}
			return vol, err
		}}},
	"hides that a write was sent": {caught: "create that is cut off anywhere", shape: memory.Config{OperationTime: 2 * time.Millisecond}, breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			vol, err := good.CreateVolume(ctx, req)
			if errors.Is(err, fault.Uncertain) {
				return vol, fmt.Errorf("gave up: %w", ctx.Err())
			}
			return vol, err
		}}},
	"does not look at its context": {caught: "a context that has ended sends no write", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			return good.CreateVolume(context.WithoutCancel(ctx), req)
		}}},
	"waits for ever": {caught: "stops the waiting", breaks: mutant{
		getVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
			if ctx.Err() != nil {
				<-make(chan struct{})
			}
			return good.GetVolume(ctx, id)
		}}},
	"gives errors without a kind": {caught: "fault.NotFound when there is none", breaks: mutant{
		getVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
			vol, err := good.GetVolume(ctx, id)
			if err != nil {
				err = errors.New(err.Error())
			}
			return vol, err
		}}},
	"leaves a goroutine behind": {caught: "returns the present state", breaks: mutant{
		getVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
			go func() { <-make(chan struct{}) }()
			return good.GetVolume(ctx, id)
		}}},
	"finds names by their beginning": {caught: "FindVolume/fault.NotFound", breaks: mutant{
		findVolume: func(good cloud.Cloud, ctx context.Context, name string) (cloud.Volume, error) {
			for _, vol := range all(ctx, good) {
				if strings.HasPrefix(vol.Name, name) {
					return vol, nil
				}
			}
			return good.FindVolume(ctx, name)
		}}},
	"cuts names": {caught: "a volume of its own", breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			req.Name = req.Name[:min(len(req.Name), 32)]
			return good.CreateVolume(ctx, req)
		},
		findVolume: func(good cloud.Cloud, ctx context.Context, name string) (cloud.Volume, error) {
			return good.FindVolume(ctx, name[:min(len(name), 32)])
		}}},
	"deletes by name": {caught: "leaves the other's volume", shape: memory.Config{NamesPerCluster: true}, breaks: mutant{
		deleteVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) error {
			vol, err := good.GetVolume(ctx, id)
			for _, other := range all(ctx, good) {
				if err == nil && other.Name == vol.Name {
					err = good.DeleteVolume(ctx, other.ID)
				}
			}
			return err
		}}},
	"refuses to delete what is gone": {caught: "calling twice", breaks: mutant{
		deleteVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) error {
			if _, err := good.GetVolume(ctx, id); err != nil {
				return err
			}
			return good.DeleteVolume(ctx, id)
		}}},
	"detaches what it is to delete": {caught: "attached or in use", breaks: mutant{
		deleteVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) error {
			_ = good.Detach(ctx, id, "")
			return good.DeleteVolume(ctx, id)
		}}},
	"puts ids into a URL": {caught: "cannot have made is answered like a missing one", breaks: mutant{
		deleteVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) error {
			path, _, _ := strings.Cut(string(id), "?")
			return good.DeleteVolume(ctx, cloud.VolumeID(path))
		}}},
	"lists the first page only": {caught: "all together are complete", breaks: mutant{
		listVolumes: func(good cloud.Cloud, ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
			list, err := good.ListVolumes(ctx, page)
			list.Next = ""
			return list, err
		}}},
	"takes any token for the first page": {caught: "fault.StalePage", breaks: mutant{
		listVolumes: func(good cloud.Cloud, ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
			list, err := good.ListVolumes(ctx, page)
			if errors.Is(err, fault.StalePage) {
				return good.ListVolumes(ctx, cloud.Page{Most: page.Most})
			}
			return list, err
		}}},
	"counts entries instead of naming the last": {caught: "order is stable", breaks: mutant{
		listVolumes: func(good cloud.Cloud, ctx context.Context, page cloud.Page) (list cloud.VolumeList, err error) {
			vols := all(ctx, good)
			from, err := strconv.Atoi("0" + page.Token)
			if err != nil || from > len(vols) {
				return list, fault.StalePage
			}
			list.Volumes = vols[from:]
			if page.Most > 0 && len(list.Volumes) > page.Most {
				list.Volumes, list.Next = list.Volumes[:page.Most], strconv.Itoa(from+page.Most)
			}
			return list, nil
		}}},
	"lists no attachments": {caught: "shows what GetVolume shows", breaks: mutant{
		listVolumes: func(good cloud.Cloud, ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
			list, err := good.ListVolumes(ctx, page)
			for i := range list.Volumes {
				list.Volumes[i].AttachedTo = nil
			}
			return list, err
		}}},
	"answers the size that was asked for": {caught: "it never shrinks", breaks: mutant{
		expandVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
			exp, err := good.ExpandVolume(ctx, id, size)
			exp.Size = size
			return exp, err
		}}},
	"takes larger steps than its volumes say": {caught: "no more than the next step", breaks: mutant{
		expandVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
			if vol, err := good.GetVolume(ctx, id); err == nil && size > vol.Size {
				size += good.Capabilities().SizeStep
			}
			return good.ExpandVolume(ctx, id, size)
		}}},
	"expands what it says it cannot": {caught: "fault.Unsupported unless Capabilities.Expand", breaks: mutant{
		capabilities: func(good cloud.Capabilities) cloud.Capabilities { good.Expand = false; return good }}},
	"restores what it says it cannot": {caught: "cannot serve that kind of source", breaks: mutant{
		capabilities: func(good cloud.Capabilities) cloud.Capabilities { good.Clones = false; return good }}},
	"knows no free space after all": {caught: "falls by a create", breaks: mutant{
		capacity: func(_ cloud.Cloud, _ context.Context, _ string, _ []cloud.Parameter) (cloud.Bytes, error) {
			return 90 * cloud.GiB, nil
		}}},
	"measures a class that it does not understand": {caught: "fault.InvalidArgument for a parameter", breaks: mutant{
		capacity: func(good cloud.Cloud, ctx context.Context, zone string, _ []cloud.Parameter) (cloud.Bytes, error) {
			return good.Capacity(ctx, zone, nil)
		}}},
	"takes attached elsewhere for attached": {caught: "naming that node", breaks: mutant{attach: misreporting(fault.Precondition, nil)}},
	"calls another zone unavailable":        {caught: "of another zone than the node's", breaks: mutant{attach: misreporting(fault.WrongZone, fault.Unavailable)}},
	"calls a full node unavailable":         {caught: "no free slot", breaks: mutant{attach: misreporting(fault.Exhausted, fault.Unavailable)}},
	"detaches from whatever node": {caught: "never takes the volume off another node", breaks: mutant{
		detach: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID, _ cloud.NodeID) error {
			return good.Detach(ctx, id, "")
		}}},
	"takes another cluster's volume for its own": {caught: "never that volume", stacked: true, breaks: mutant{
		findVolume: func(good cloud.Cloud, ctx context.Context, name string) (cloud.Volume, error) {
			for _, vol := range all(ctx, good) {
				if vol.Name == name {
					return vol, nil
				}
			}
			return good.FindVolume(ctx, name)
		}}},
}
