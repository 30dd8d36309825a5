//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"
	"testing"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// What the vendor's driver of Yandex Cloud calls itself, and the attribute that forbids to format. Deckhouse's has
// the same names.
const (
	yandexName  = "yandex.csi.flant.com"
	yandexNever = "com.flant.csi.yandex/noformat"
)

// yandexVendor is that driver.
type yandexVendor struct {
	*accounts.Yandex
	conn *grpc.ClientConn
}

func openYandexVendor(t *testing.T, dir string) vendor {
	t.Helper()
	account := emulator.Start(t, emulator.Options{DataDir: dir})
	conn, err := grpc.NewClient(strings.TrimPrefix(account.URL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return yandexVendor{&accounts.Yandex{Cloud: account}, conn}
}

func (yandexVendor) driver() string { return yandexName }

func (yandexVendor) places() (here, there map[string]string) {
	in := func(zone string) map[string]string {
		return map[string]string{"failure-domain.beta.kubernetes.io/region": "ru-central1", "failure-domain.beta.kubernetes.io/zone": zone}
	}
	return in("ru-central1-a"), in("ru-central1-b")
}

// device is the name that the vendor's driver attaches a disk under.
func device(id string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id))
	return fmt.Sprintf("csi-%d", hash.Sum32())
}

func (yandexVendor) link(v *programs.Volume) string { return "virtio-" + device(v.ID) }

// told is what its controller says; its node program never reads it, so ours may say something else there.
func (yandexVendor) told(v *programs.Volume) map[string]string {
	return map[string]string{yandexName + "/volume-name": device(v.ID)}
}

func (yandexVendor) attributes() map[string]string { return map[string]string{} }
func (yandexVendor) class() map[string]string      { return map[string]string{"typeID": "network-ssd"} }
func (yandexVendor) typo() (wrong, right string)   { return "typeid", "typeID" }

func (v yandexVendor) add(volume string) (string, error) {
	return v.AddDisk(emulator.Disk{Name: volume, Size: v.Size(), Description: "Created by Yandex CSI driver"})
}

// as puts the vendor's token into a call.
func (v yandexVendor) as(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.Cloud.Token)
}

func (v yandexVendor) attach(ctx context.Context, id, machine string) error {
	return v.done(v.as(ctx))(compute.NewInstanceServiceClient(v.conn).AttachDisk(v.as(ctx), &compute.AttachInstanceDiskRequest{
		InstanceId: machine, AttachedDiskSpec: &compute.AttachedDiskSpec{DeviceName: device(id), Disk: &compute.AttachedDiskSpec_DiskId{DiskId: id}},
	}))
}

func (v yandexVendor) detach(ctx context.Context, id, machine string) error {
	return v.done(v.as(ctx))(compute.NewInstanceServiceClient(v.conn).DetachDisk(v.as(ctx), &compute.DetachInstanceDiskRequest{
		InstanceId: machine, Disk: &compute.DetachInstanceDiskRequest_DiskId{DiskId: id},
	}))
}

func (v yandexVendor) remove(ctx context.Context, id string) error {
	return v.done(v.as(ctx))(compute.NewDiskServiceClient(v.conn).Delete(v.as(ctx), &compute.DeleteDiskRequest{DiskId: id}))
}

// done waits for an operation.
func (v yandexVendor) done(ctx context.Context) func(*operation.Operation, error) error {
	return func(op *operation.Operation, err error) error {
		for tick := time.NewTicker(5 * time.Millisecond); err == nil && !op.GetDone(); <-tick.C {
			op, err = operation.NewOperationServiceClient(v.conn).Get(ctx, &operation.GetOperationRequest{OperationId: op.GetId()})
		}
		if err == nil && op.GetError() != nil {
			err = errors.New(op.GetError().GetMessage())
		}
		return err
	}
}

func (v yandexVendor) tags(id string) (tags []string, exists bool) {
	d, exists := v.Disk(id)
	for key := range maps.Keys(d.Labels) {
		tags = append(tags, key)
	}
	return tags, exists
}

func (v yandexVendor) more(c takenOver) {
	c.run("never formatted", v.neverFormatted)
	c.run("the type of an old class", func(c takenOver) { v.madeAs(c, "typeID") })
	c.run("the type of the managed service's class", func(c takenOver) { v.madeAs(c, "type") })
	c.run("attached under its id", v.underItsID)
}

// neverFormatted: the vendor's attribute counts whatever its value is.
func (v yandexVendor) neverFormatted(c takenOver) {
	vol := c.blankVolume("never")
	vol.Context[yandexNever] = "true"
	c.refused("a blank disk that must not be formatted", vol, codes.FailedPrecondition, yandexNever)
	must(c.T, vol.Detach, vol.Delete)
}

// madeAs: the type of the disk is in this parameter.
func (v yandexVendor) madeAs(c takenOver, parameter string) {
	class := map[string]string{parameter: "network-ssd"}
	vol := create(c.T, c.pair, programs.Claim{Name: "typed", Filesystem: "ext4", Size: c.Size(), Parameters: class})
	if made, _ := v.Disk(vol.ID); made.Type != class[parameter] {
		c.Errorf("the disk is %+v, want the type %s", made, class[parameter])
	}
	must(c.T, vol.Delete)
}

// underItsID: a disk that is attached under another name, as this driver does it under its own, is found under that.
func (v yandexVendor) underItsID(c takenOver) {
	vol := c.blankVolume("by-id")
	err := v.done(v.as(c.Context()))(compute.NewInstanceServiceClient(v.conn).AttachDisk(v.as(c.Context()), &compute.AttachInstanceDiskRequest{
		InstanceId: c.machine, AttachedDiskSpec: &compute.AttachedDiskSpec{DeviceName: vol.ID, Disk: &compute.AttachedDiskSpec_DiskId{DiskId: vol.ID}},
	}))
	noError(c, err)
	must(c.T, vol.Attach, vol.Stage, vol.Publish, vol.Unpublish, vol.Unstage, vol.Detach, vol.Delete)
}
