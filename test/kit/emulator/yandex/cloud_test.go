package yandex_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var noError = expect.NoError

const gib = int64(1) << 30

// api is the generated clients, pointed at the emulated folder.
type api struct {
	disks      compute.DiskServiceClient
	snapshots  compute.SnapshotServiceClient
	instances  compute.InstanceServiceClient
	operations operationpb.OperationServiceClient
}

func clients(conn grpc.ClientConnInterface) *api {
	return &api{
		compute.NewDiskServiceClient(conn), compute.NewSnapshotServiceClient(conn), compute.NewInstanceServiceClient(conn),
		operationpb.NewOperationServiceClient(conn),
	}
}

// dial connects to the folder, over the network if it listens there.
func dial(t *testing.T, c *emulator.Cloud) *grpc.ClientConn {
	t.Helper()
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	target := strings.TrimPrefix(c.URL, "http://")
	if strings.HasSuffix(target, ".invalid") {
		options = append(options, grpc.WithContextDialer(c.Dial))
	}
	conn, err := grpc.NewClient("passthrough:///"+target, options...)
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the folder may have gone before
	return conn
}

// start starts a folder with one instance.
func start(t *testing.T, opts emulator.Options) (c *emulator.Cloud, a *api, instance string) {
	t.Helper()
	opts.Instances = max(opts.Instances, 1)
	c = emulator.Start(t, opts)
	return c, clients(dial(t, c)), c.Instances()[0]
}

// simulated runs f in simulated time with a folder in memory.
func simulated(t *testing.T, opts emulator.Options, f func(t *testing.T, c *emulator.Cloud, a *api, instance string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.InMemory = true
		c, a, instance := start(t, opts)
		f(t, c, a, instance)
	})
}

// as is a context of a caller with the folder's token.
func as(ctx context.Context, headers ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{"authorization", "Bearer " + emulator.DefaultToken}, headers...)...)
}

// request to make a disk of a name, which change can change.
func request(name string, change ...func(*compute.CreateDiskRequest)) *compute.CreateDiskRequest {
	ask := &compute.CreateDiskRequest{FolderId: emulator.DefaultFolder, Name: name, ZoneId: emulator.DefaultZone, Size: gib}
	for _, f := range change {
		f(ask)
	}
	return ask
}

// must returns an operation that was accepted.
func must(t *testing.T, what string) func(*operationpb.Operation, error) *operationpb.Operation {
	t.Helper()
	return func(op *operationpb.Operation, err error) *operationpb.Operation {
		t.Helper()
		if err != nil {
			t.Fatalf("%s = %v", what, err)
		}
		return op
	}
}

// mustCreate makes a disk and returns its id.
func mustCreate(t *testing.T, a *api, name string, change ...func(*compute.CreateDiskRequest)) string {
	t.Helper()
	op := must(t, "Create("+name+")")(a.disks.Create(as(t.Context()), request(name, change...)))
	about := &compute.CreateDiskMetadata{}
	noError(t, op.GetMetadata().UnmarshalTo(about))
	return about.GetDiskId()
}

func attachRequest(disk, instance string) *compute.AttachInstanceDiskRequest {
	return &compute.AttachInstanceDiskRequest{InstanceId: instance, AttachedDiskSpec: &compute.AttachedDiskSpec{
		DeviceName: disk, Disk: &compute.AttachedDiskSpec_DiskId{DiskId: disk},
	}}
}

func detachRequest(disk, instance string) *compute.DetachInstanceDiskRequest {
	return &compute.DetachInstanceDiskRequest{InstanceId: instance, Disk: &compute.DetachInstanceDiskRequest_DiskId{DiskId: disk}}
}

func mustAttach(t *testing.T, a *api, disk, instance string) *operationpb.Operation {
	t.Helper()
	return must(t, "AttachDisk("+disk+")")(a.instances.AttachDisk(as(t.Context()), attachRequest(disk, instance)))
}

// mustSee returns what the API says of a disk.
func mustSee(t *testing.T, a *api, id string) *compute.Disk {
	t.Helper()
	d, err := a.disks.Get(as(t.Context()), &compute.GetDiskRequest{DiskId: id})
	if err != nil {
		t.Fatalf("Get(%s) = %v", id, err)
	}
	return d
}

// stands says how a disk stands, in a word for a table.
func stands(d *compute.Disk) string {
	return strings.Join(append([]string{d.GetStatus().String()}, d.GetInstanceIds()...), " ")
}

func mustPoll(t *testing.T, a *api, id string) *operationpb.Operation {
	t.Helper()
	return must(t, "operation "+id)(a.operations.Get(as(t.Context()), &operationpb.GetOperationRequest{OperationId: id}))
}

func TestEachOperationRunsOnAfterItsAnswer(t *testing.T) {
	const lasts = 10 * time.Second
	opts := emulator.Options{Durations: emulator.Each(clock.Fixed(lasts))}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, instance string) {
		ctx := as(t.Context())
		created := must(t, "Create")(a.disks.Create(ctx, request("pvc-1")))
		disk := c.Disks()[0].ID
		expect := func(want string) {
			t.Helper()
			if got := stands(mustSee(t, a, disk)); got != want {
				t.Errorf("the disk is %q, want %q", got, want)
			}
		}
		through := func(op *operationpb.Operation, during, after string) {
			t.Helper()
			if op.GetDone() {
				t.Errorf("%s is done when it is answered", op.GetDescription())
			}
			time.Sleep(lasts / 2)
			if expect(during); mustPoll(t, a, op.GetId()).GetDone() {
				t.Errorf("%s is done after half its time", op.GetDescription())
			}
			time.Sleep(lasts)
			if now := mustPoll(t, a, op.GetId()); !now.GetDone() || now.GetError() != nil || now.GetResponse() == nil {
				t.Errorf("%s = %v after its time, want it done", op.GetDescription(), now)
			}
			if after != "" {
				expect(after)
			}
		}
		through(created, "CREATING", "READY")
		through(mustAttach(t, a, disk, instance), "READY", "READY "+instance)
		i, err := a.instances.Get(ctx, &compute.GetInstanceRequest{InstanceId: instance})
		if err != nil || len(i.GetSecondaryDisks()) != 1 || i.GetSecondaryDisks()[0].GetDeviceName() != disk || i.GetBootDisk() == nil {
			t.Errorf("instance = %v, %v, want the disk beside the one that it boots from", i, err)
		}
		through(must(t, "Update")(a.disks.Update(ctx, resizeRequest(disk, 2*gib))), "READY "+instance, "READY "+instance)
		if got := mustSee(t, a, disk).GetSize(); got != 2*gib {
			t.Errorf("size = %d after it was resized, want %d", got, 2*gib)
		}
		through(must(t, "DetachDisk")(a.instances.DetachDisk(ctx, detachRequest(disk, instance))), "READY "+instance, "READY")
		through(must(t, "Delete")(a.disks.Delete(ctx, &compute.DeleteDiskRequest{DiskId: disk})), "DELETING", "")
		if _, err := a.disks.Get(ctx, &compute.GetDiskRequest{DiskId: disk}); status.Code(err) != codes.NotFound {
			t.Errorf("Get() of a deleted disk = %v, want not found", err)
		}
		var kinds []string
		for _, op := range c.Operations() {
			kinds = append(kinds, op.Kind)
			if op.Status != "done" || op.Finished.Sub(op.Accepted) != lasts {
				t.Errorf("operation %+v, want it done after %s", op, lasts)
			}
		}
		if got := strings.Join(kinds, " "); got != "create attach resize detach delete" {
			t.Errorf("operations = %s", got)
		}
		if stats := c.Stats(); stats.Writes != 5 || stats.Routes["InstanceService/AttachDisk"] != 1 || stats.MaxParallel[c.Folder] != 1 {
			t.Errorf("Stats() = %+v, want five writes one at a time", stats)
		}
	})
}
