package yandex_test

import (
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func errored(code, message string) faults.Effect {
	return faults.Effect{Errored: true, ID: code, Message: message}
}

func delayed(d time.Duration) faults.Effect { return faults.Effect{Delay: clock.Fixed(d)} }

func TestFaultsStrikeTheCallsThatTheyName(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault emulator.Fault
		code  codes.Code
		disks int
		hit   string
	}{
		{"none", emulator.Fault{Method: "Delete", Effect: faults.Effect{Status: int(codes.Internal)}}, codes.OK, 1, ""},
		{"a status", emulator.Fault{Method: "Create", Effect: faults.Effect{Status: int(codes.Unavailable)}}, codes.Unavailable, 0, "status-14"},
		{"a status by route", emulator.Fault{Route: "DiskService/Create", Effect: faults.Effect{Status: int(codes.Internal)}}, codes.Internal, 0, "status-13"},
		{"a status by what is asked for", emulator.Fault{Body: `"name":"pvc-1"`, Effect: faults.Effect{Status: int(codes.Aborted)}}, codes.Aborted, 0, "status-10"},
		{"another disk", emulator.Fault{Body: `"name":"pvc-2"`, Effect: faults.Effect{Status: int(codes.Aborted)}}, codes.OK, 1, ""},
		{"a request that gets lost", emulator.Fault{Effect: faults.Effect{Lost: faults.LostBefore}}, codes.Unavailable, 0, "lost-before"},
		{"an answer that gets lost", emulator.Fault{Effect: faults.Effect{Lost: faults.LostAfter}}, codes.Unavailable, 1, "lost-after"},
		{"an operation that fails", emulator.Fault{Effect: faults.Effect{Errored: true}}, codes.OK, 1, "errored"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, a, _ := start(t, emulator.Options{InMemory: true, Rules: emulator.Rules{ArrivesDone: true}})
			c.Arm(row.fault)
			op, err := a.disks.Create(as(t.Context()), request("pvc-1"))
			if status.Code(err) != row.code || len(c.Disks()) != row.disks {
				t.Errorf("Create() = %v, %d disks, want %s and %d", err, len(c.Disks()), row.code, row.disks)
			}
			if row.fault.Errored && (op.GetError().GetCode() != int32(codes.Internal) || c.Disks()[0].Status != "ERROR") {
				t.Errorf("operation = %v, want it failed", op)
			}
			if hits := c.Stats().Faults; len(hits) != min(1, len(row.hit)) || row.hit != "" && hits[row.hit] != 1 {
				t.Errorf("faults = %v, want %q once", hits, row.hit)
			}
			want := int(row.code)
			if row.fault.Lost != "" {
				want = -1
			}
			if log := c.Exchanges(); len(log) != 1 || log[0].Status != want || log[0].Route != "DiskService/Create" {
				t.Errorf("exchanges = %+v, want one with status %d", log, want)
			}
			c.Disarm()
			c.ResetStats()
			mustCreate(t, a, "pvc-3")
			if got := c.Stats(); got.Writes != 1 || len(got.Faults) != 0 {
				t.Errorf("Stats() after a reset = %+v", got)
			}
		})
	}
}

// What a machine writes to a disk while the cloud fails to change the disk's record stays.
func TestAFailedChangeKeepsTheData(t *testing.T) {
	opts := emulator.Options{Durations: emulator.Durations{Resize: clock.Fixed(2 * time.Second)}}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, _ string) {
		id := mustCreate(t, a, "pvc-1")
		c.Arm(emulator.Fault{Method: "Update", Times: 1, Effect: faults.Effect{Errored: true}})
		must(t, "Update")(a.disks.Update(as(t.Context()), &compute.UpdateDiskRequest{
			DiskId: id, Size: 2 * request("").GetSize(), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}},
		}))
		c.SetContent(id, "written meanwhile")
		time.Sleep(3 * time.Second)
		if d, _ := c.Disk(id); d.Content != "written meanwhile" || d.Size != request("").GetSize() {
			t.Errorf("after a resize that failed the disk is %+v, want its old size and the new data", d)
		}
	})
}

func TestAFaultsHeaderComesWithIt(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	c.Arm(emulator.Fault{Times: 1, Effect: faults.Effect{Status: int(codes.Unavailable), Header: map[string]string{"retry-after": "3"}}})
	var header metadata.MD
	_, err := a.disks.List(as(t.Context()), &compute.ListDisksRequest{FolderId: c.Folder}, grpc.Header(&header))
	if status.Code(err) != codes.Unavailable || header.Get("retry-after")[0] != "3" {
		t.Errorf("List() = %v with header %v", err, header)
	}
}

func TestAFolderThatClosesKeepsNobodyWaiting(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	c.Arm(emulator.Fault{Name: "slow", Effect: delayed(time.Hour)})
	answered := make(chan error, 1)
	go func() {
		_, err := a.disks.List(as(t.Context()), &compute.ListDisksRequest{FolderId: c.Folder})
		answered <- err
	}()
	for c.Stats().Faults["slow"] == 0 {
		if t.Context().Err() != nil {
			return
		}
	}
	noError(t, c.Close())
	if err := <-answered; status.Code(err) == codes.OK {
		t.Error("List() was answered by a folder that had closed")
	}
}
