package yandex_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

const key = "11111111-2222-4333-8444-555555555555"

func TestAKnownKeyIsAnsweredWithItsOperation(t *testing.T) {
	rules := emulator.Rules{KeysForgottenAfter: clock.Fixed(time.Hour), NamesRepeat: true}
	opts := emulator.Options{Durations: emulator.Each(clock.Fixed(time.Minute)), Rules: rules}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, _ string) {
		ctx := as(t.Context(), "idempotency-key", key)
		create := func(ask *compute.CreateDiskRequest) *operationpb.Operation {
			t.Helper()
			return must(t, "Create")(a.disks.Create(ctx, ask))
		}
		first := create(request("pvc-1"))
		if again := create(request("pvc-1")); again.GetId() != first.GetId() || again.GetDone() {
			t.Errorf("the second answer = %v, want the first operation, still running", again)
		}
		time.Sleep(2 * time.Minute)
		if again := create(request("another")); again.GetId() != first.GetId() || !again.GetDone() {
			t.Errorf("the third answer = %v, want the first operation, as it ended", again)
		}
		time.Sleep(time.Hour)
		if again := create(request("pvc-1")); again.GetId() == first.GetId() || len(c.Disks()) != 2 {
			t.Errorf("the answer after an hour = %v, disks %v, want the key forgotten and a second disk", again, c.Disks())
		}
		_, err := a.disks.Create(as(t.Context(), "idempotency-key", "pvc-1"), request("pvc-1"))
		refused(t, "a key that is no UUID", err, codes.InvalidArgument, "")
	})
}

func TestADeletedDisksKeyStillStandsForIt(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	ctx := as(t.Context(), "idempotency-key", key)
	first := must(t, "Create")(a.disks.Create(ctx, request("pvc-1")))
	must(t, "Delete")(a.disks.Delete(as(t.Context()), &compute.DeleteDiskRequest{DiskId: c.Disks()[0].ID}))
	if again := must(t, "Create again")(a.disks.Create(ctx, request("pvc-1"))); again.GetId() != first.GetId() || len(c.Disks()) != 0 {
		t.Errorf("operation %s, disks %v, want the first operation %s and no disk", again.GetId(), c.Disks(), first.GetId())
	}
}

func TestADiskGrowsWhileAttachedUnlessThatIsRefused(t *testing.T) {
	c, a, instance := start(t, emulator.Options{})
	ctx := as(t.Context())
	for i, row := range []struct {
		name, instance, status string
		rules                  emulator.Rules
		want                   codes.Code
	}{
		{name: "it is free where growth is refused", rules: emulator.Rules{ResizeRefused: true}},
		{name: "it is attached", instance: instance},
		{name: "growth is refused everywhere", instance: instance, rules: emulator.Rules{ResizeRefused: true}, want: codes.FailedPrecondition},
		{name: "its instance is stopped", instance: instance, status: "STOPPED", rules: emulator.Rules{ResizeRefused: true}},
	} {
		disk := mustCreate(t, a, fmt.Sprintf("pvc-%d", i))
		if row.instance != "" {
			mustAttach(t, a, disk, row.instance)
		}
		if row.status != "" {
			c.SetStatus(row.instance, row.status)
		}
		c.SetRules(func(r *emulator.Rules) { *r = row.rules })
		_, err := a.disks.Update(ctx, resizeRequest(disk, 2*gib))
		words := ""
		if row.want != codes.OK {
			words = fmt.Sprintf("Disk %q has an invalid state for this operation: attached to non-stopped instance", disk)
		}
		refused(t, row.name, err, row.want, words)
		if d, _ := c.Disk(disk); (d.Size == 2*gib) != (row.want == codes.OK) {
			t.Errorf("%s: size %d", row.name, d.Size)
		}
	}
}

func TestChangesCanShowEarly(t *testing.T) {
	opts := emulator.Options{Durations: emulator.Durations{Attach: clock.Fixed(time.Hour)}, Rules: emulator.Rules{ChangeOnAccept: true}}
	simulated(t, opts, func(t *testing.T, _ *emulator.Cloud, a *api, instance string) {
		disk := mustCreate(t, a, "pvc-1")
		op := mustAttach(t, a, disk, instance)
		if got := stands(mustSee(t, a, disk)); op.GetDone() || got != "READY "+instance {
			t.Errorf("the disk is %q while it is being attached, want it to show already", got)
		}
	})
}

func TestChangesCanShowHalfway(t *testing.T) {
	opts := emulator.Options{Durations: emulator.Durations{Attach: clock.Fixed(time.Hour), Detach: clock.Fixed(time.Hour)}, Rules: emulator.Rules{ChangeHalfway: true}}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, instance string) {
		disk, free, attached := mustCreate(t, a, "pvc-1"), "READY", "READY "+instance
		sees := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			for _, stand := range want { // soon, after the half, after the end
				if got := stands(mustSee(t, a, disk)); got != stand {
					t.Errorf("%s: the disk is %q, want %q", what, got, stand)
				}
				time.Sleep(40 * time.Minute)
			}
		}
		detach := func() {
			must(t, "Detach")(a.instances.DetachDisk(as(t.Context()), detachRequest(disk, instance)))
		}
		fails := func(route string) {
			c.Arm(emulator.Fault{Route: route, Times: 1, Effect: faults.Effect{Errored: true, ID: "INTERNAL"}})
		}
		fails("InstanceService/AttachDisk")
		mustAttach(t, a, disk, instance)
		sees("an attach that fails", free, attached, free)
		mustAttach(t, a, disk, instance)
		sees("an attach", free, attached, attached)
		fails("InstanceService/DetachDisk")
		detach()
		sees("a detach that fails", attached, free, attached)
		detach()
		sees("a detach", attached, free, free)
	})
}

func TestAFreshOperationIsNotFoundAtFirst(t *testing.T) {
	c, a, _ := start(t, emulator.Options{Rules: emulator.Rules{FreshNotFound: 2, PollInterval: 7}})
	op := must(t, "Create")(a.disks.Create(as(t.Context()), request("pvc-1")))
	if op.GetDone() {
		t.Error("the operation is done when it is answered")
	}
	var header metadata.MD
	var got []codes.Code
	for range 3 {
		_, err := a.operations.Get(as(t.Context()), &operationpb.GetOperationRequest{OperationId: op.GetId()}, grpc.Header(&header))
		got = append(got, status.Code(err))
	}
	if fmt.Sprint(got) != "[NotFound NotFound OK]" {
		t.Errorf("answers = %v, want it found the third time", got)
	}
	if header.Get("x-operation-poll-interval")[0] != "7" || len(header.Get("x-request-id")) == 0 {
		t.Errorf("header = %v, want the interval and an id", header)
	}
	if stats := c.Stats(); stats.Reads != 3 || stats.Writes != 1 {
		t.Errorf("Stats() = %+v, want three reads", stats)
	}
}

func TestTheFolderRunsFifteenOperations(t *testing.T) {
	opts := emulator.Options{Durations: emulator.Each(clock.Fixed(time.Minute))}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, _ string) {
		for i := range 15 {
			mustCreate(t, a, fmt.Sprintf("pvc-%d", i))
		}
		_, err := a.disks.Create(as(t.Context()), request("pvc-15"))
		refused(t, "the sixteenth", err, codes.ResourceExhausted, "The limit on maximum number of active operations has exceeded.")
		time.Sleep(2 * time.Minute)
		mustCreate(t, a, "pvc-15")
		if stats := c.Stats(); stats.MaxParallel[c.Folder] != 15 || stats.Refused != 1 {
			t.Errorf("Stats() = %+v, want 15 at once and one refused", stats)
		}
	})
}

func TestAnInstanceAndADiskTakeOneOperationAtATime(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		opts := emulator.Options{Durations: emulator.Durations{Attach: clock.Fixed(time.Minute)}}
		opts.Rules = emulator.Rules{ParallelOperations: parallel, Codes: map[string]string{"busy_instance": "ABORTED"}}
		simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, instance string) {
			one, two := mustCreate(t, a, "one"), mustCreate(t, a, "two")
			mustAttach(t, a, one, instance)
			_, err := a.instances.AttachDisk(as(t.Context()), attachRequest(two, instance))
			want := codes.Aborted
			if parallel {
				want = codes.OK
			}
			refused(t, "a second attach", err, want, "")
			_, err = a.disks.Delete(as(t.Context()), &compute.DeleteDiskRequest{DiskId: one})
			refused(t, "a delete during an attach", err, codes.FailedPrecondition, "")
			if got := c.Stats().MaxParallel[instance]; (got == 2) != parallel {
				t.Errorf("%d operations ran at once", got)
			}
		})
	}
}

func TestAnInstanceTakesAsManyDisksAsItsShapeAllows(t *testing.T) {
	for _, row := range []struct {
		name  string
		shape emulator.Instance
		want  int // disks besides the one that it boots from
	}{
		{"unknown generation, few cores", emulator.Instance{Cores: 4}, 7},
		{"unknown generation, many cores", emulator.Instance{Cores: 36}, 15},
		{"generation 1.2 with four cores", emulator.Instance{Generation: emulator.Generation12, Cores: 4}, 61},
		{"generation 2 with six cores", emulator.Instance{Generation: emulator.Generation2, Cores: 6}, 79},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, a, _ := start(t, emulator.Options{InMemory: true})
			instance := c.AddInstance(row.shape)
			attach := func(i int) error {
				disk := mustCreate(t, a, fmt.Sprintf("pvc-%d", i))
				_, err := a.instances.AttachDisk(as(t.Context()), attachRequest(disk, instance))
				return err
			}
			for i := range row.want {
				if err := attach(i); err != nil {
					t.Fatalf("attach %d of %d: %v", i+1, row.want, err)
				}
			}
			refused(t, "one more", attach(row.want), codes.ResourceExhausted,
				"The limit on maximum number of attached disks and filesystems has exceeded.")
		})
	}
}

func TestAnOperationThatFailedMayRollBackFirst(t *testing.T) {
	opts := emulator.Options{Durations: emulator.Each(clock.Fixed(time.Minute)), Rules: emulator.Rules{Rollback: clock.Fixed(time.Hour)}}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, _ string) {
		c.Arm(emulator.Fault{Route: "DiskService/Create", Effect: errored("RESOURCE_EXHAUSTED", "no more room")})
		op := must(t, "Create")(a.disks.Create(as(t.Context()), request("pvc-1")))
		time.Sleep(2 * time.Minute)
		now := mustPoll(t, a, op.GetId())
		if code, words := outcome(now); now.GetDone() || code != codes.ResourceExhausted || words != "no more room" {
			t.Errorf("operation = %v, want its error before it is done", now)
		}
		time.Sleep(time.Hour)
		if now = mustPoll(t, a, op.GetId()); !now.GetDone() || now.GetError() == nil {
			t.Errorf("operation = %v, want it done with its error", now)
		}
		if got := c.Disks()[0].Status; got != "ERROR" {
			t.Errorf("the disk is %s, want ERROR", got)
		}
		if got := c.Operations()[0]; got.Status != "failed" || got.Error != "no more room" || len(c.Running()) != 0 {
			t.Errorf("Operations() = %+v", got)
		}
	})
}
