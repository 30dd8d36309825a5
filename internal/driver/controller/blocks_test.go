package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// tracked are snapshots of one volume of 1 GiB. Each has the blocks that are listed, in two lists; a delta is the blocks of its target.
type tracked map[cloud.SnapshotID][]cloud.BlockRange

func (s tracked) ReadBlocks(ctx context.Context, req cloud.BlocksRequest, send func(cloud.BlockList) error) error {
	blocks, ok := s[req.Target]
	_, hasBase := s[req.Base]
	switch {
	case req.Target == "hung":
		<-ctx.Done()
		return ctx.Err()
	case req.Target == "mad":
		panic("boom")
	case !ok || req.Base != "" && !hasBase:
		return fmt.Errorf("no such snapshot: %w", fault.NotFound)
	case req.From > cloud.GiB:
		return fmt.Errorf("beyond the end: %w", fault.OutOfRange)
	}
	half := len(blocks) / 2
	for _, list := range [][]cloud.BlockRange{blocks[:half], blocks[half:]} {
		if err := send(cloud.BlockList{Size: cloud.GiB, Blocks: list}); err != nil {
			return err
		}
	}
	return nil
}

type answer interface {
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csi.BlockMetadata
}

// receive returns the messages of a stream, as the offsets and sizes in each.
func receive[A any](stream grpc.ServerStreamingClient[A], err error) (messages [][]int64, _ error) {
	for err == nil {
		var message *A
		if message, err = stream.Recv(); err == nil {
			m := any(message).(answer)
			list := []int64{}
			for _, b := range m.GetBlockMetadata() {
				list = append(list, b.GetByteOffset(), b.GetSizeBytes())
			}
			if m.GetBlockMetadataType() != csi.BlockMetadataType_VARIABLE_LENGTH || m.GetVolumeCapacityBytes() != gib {
				return messages, fmt.Errorf("the message is of type %v and of %d bytes", m.GetBlockMetadataType(), m.GetVolumeCapacityBytes())
			}
			messages = append(messages, list)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return messages, err
}

func startBlocks(t *testing.T, blocks cloud.SnapshotBlocks) (*rig, csi.SnapshotMetadataClient) {
	t.Helper()
	names := memoryNames(t)
	r := &rig{log: &drivertest.Log{}, http: drivertest.FreeAddress(t)}
	log, err := driver.NewLogger("debug", "json", r.log)
	must(t, err)
	conn := drivertest.Serve(t, driver.Config{Names: names, HTTPEndpoint: r.http, Log: log}, func(s grpc.ServiceRegistrar) {
		csi.RegisterSnapshotMetadataServer(s, controller.NewBlocks(blocks))
	})
	return r, csi.NewSnapshotMetadataClient(conn)
}

func TestBlocksAreStreamedInMessages(t *testing.T) {
	many := make([]cloud.BlockRange, 5000)
	for i := range many {
		many[i] = cloud.BlockRange{Offset: cloud.Bytes(i) * 8192, Length: 4096}
	}
	_, client := startBlocks(t, tracked{"base": nil, "many": many, "s": {
		{Offset: 0, Length: 4096}, {Offset: 8192, Length: 512}, {Offset: 16384, Length: 4096}, {Offset: 65536, Length: 8192},
	}})
	for name, tc := range map[string]struct {
		most int32
		want [][]int64
	}{
		"as many as there are":     {0, [][]int64{{0, 4096, 8192, 512}, {16384, 4096, 65536, 8192}}},
		"one in each":              {1, [][]int64{{0, 4096}, {8192, 512}, {16384, 4096}, {65536, 8192}}},
		"more than there ever are": {1 << 30, [][]int64{{0, 4096, 8192, 512}, {16384, 4096, 65536, 8192}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := receive(client.GetMetadataAllocated(ctxOf(t), &csi.GetMetadataAllocatedRequest{SnapshotId: "s", MaxResults: tc.most}))
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("GetMetadataAllocated = %v, %v, want %v", got, err, tc.want)
			}
			got, err = receive(client.GetMetadataDelta(ctxOf(t), &csi.GetMetadataDeltaRequest{BaseSnapshotId: "base", TargetSnapshotId: "s", MaxResults: tc.most}))
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("GetMetadataDelta = %v, %v, want %v", got, err, tc.want)
			}
		})
	}
	got, err := receive(client.GetMetadataAllocated(ctxOf(t), &csi.GetMetadataAllocatedRequest{SnapshotId: "many"}))
	if total := 0; err != nil || len(got) != 6 {
		t.Errorf("5000 ranges came in %d messages, %v, want 6", len(got), err)
	} else {
		for _, list := range got {
			total += len(list) / 2
		}
		if total != len(many) {
			t.Errorf("%d ranges came, want %d", total, len(many))
		}
	}
	// A reader of nothing still gets the size.
	if got, err := receive(client.GetMetadataAllocated(ctxOf(t), &csi.GetMetadataAllocatedRequest{SnapshotId: "base"})); err != nil || len(got) == 0 {
		t.Errorf("GetMetadataAllocated of an empty snapshot = %v, %v, want the size", got, err)
	}
}

// The table of errors in the specification.
func TestRefusalsOfBlocks(t *testing.T) {
	_, client := startBlocks(t, tracked{"base": nil, "s": {{Offset: 0, Length: 4096}}})
	for name, tc := range map[string]struct {
		base, target string
		from         int64
		most         int32
		code         codes.Code
	}{
		"a snapshot that is not there": {"base", "gone", 0, 0, codes.NotFound},
		"an id that no snapshot has":   {"base", "../s", 0, 0, codes.NotFound},
		"an id that is too long":       {"base", strings.Repeat("s", 200), 0, 0, codes.NotFound},
		"no id":                        {"base", "", 0, 0, codes.InvalidArgument},
		"a start before the volume":    {"base", "s", -1, 0, codes.OutOfRange},
		"a start behind the volume":    {"base", "s", gib + 1, 0, codes.OutOfRange},
		"the end of the volume":        {"base", "s", gib, 0, codes.OK},
		"less than no ranges":          {"base", "s", 0, -1, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := receive(client.GetMetadataAllocated(ctxOf(t), &csi.GetMetadataAllocatedRequest{SnapshotId: tc.target, StartingOffset: tc.from, MaxResults: tc.most}))
			wantCode(t, "GetMetadataAllocated", err, tc.code)
			for _, req := range []*csi.GetMetadataDeltaRequest{
				{BaseSnapshotId: tc.base, TargetSnapshotId: tc.target, StartingOffset: tc.from, MaxResults: tc.most},
				{BaseSnapshotId: tc.target, TargetSnapshotId: tc.base, StartingOffset: tc.from, MaxResults: tc.most},
			} {
				_, err := receive(client.GetMetadataDelta(ctxOf(t), req))
				wantCode(t, fmt.Sprintf("GetMetadataDelta(%v)", req), err, tc.code)
			}
		})
	}
}

// A call with a stream is logged, counted, bounded and recovered as every other one.
func TestStreamsAreObserved(t *testing.T) {
	r, client := startBlocks(t, tracked{"base": nil, "s": nil})
	const secret = "canary-3b19"
	_, err := receive(client.GetMetadataDelta(ctxOf(t), &csi.GetMetadataDeltaRequest{BaseSnapshotId: "base", TargetSnapshotId: "s", Secrets: map[string]string{secret: secret}}))
	wantCode(t, "GetMetadataDelta", err, codes.OK)
	_, err = receive(client.GetMetadataAllocated(ctxOf(t), &csi.GetMetadataAllocatedRequest{SnapshotId: "mad"}))
	wantCode(t, "GetMetadataAllocated that panics", err, codes.Internal)
	ctx, cancel := context.WithCancel(ctxOf(t))
	stream, err := client.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{SnapshotId: "hung"})
	cancel()
	_, err = receive(stream, err)
	wantCode(t, "GetMetadataAllocated of a caller that has gone", err, codes.Canceled)
	_, err = receive(client.GetMetadataDelta(ctxOf(t), &csi.GetMetadataDeltaRequest{BaseSnapshotId: "gone", TargetSnapshotId: "s"}))
	wantCode(t, "GetMetadataDelta", err, codes.NotFound)
	log, metrics := r.log.String(), r.metrics(t)
	for _, want := range []string{`"base_snapshot_id":"base"`, `"target_snapshot_id":"s"`, `"snapshot_id":"mad"`, `"panic":"boom"`, `"method":"GetMetadataDelta"`, `"code":"NotFound"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
	for _, want := range []string{`code="OK",driver_name="memory.csi.cloudblock.io",method="GetMetadataDelta"} 1`, `method="GetMetadataAllocated"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s:\n%s", want, metrics)
		}
	}
	if strings.Contains(log+metrics, secret) {
		t.Error("a secret shows")
	}
}
