package yandex_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

const secretToken = "t1.canary-token-6d"

// raw passes bytes as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// answersAll is a server that answers each request with the same bytes, or with a code. It has no list of addresses.
func answersAll(t *testing.T, code codes.Code, words string, body []byte) *bufconn.Listener {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var ask []byte
		if err := stream.RecvMsg(&ask); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(stream)
		header, _ := metadata.FromIncomingContext(stream.Context())
		if strings.HasPrefix(method, "/yandex.cloud.endpoint.") {
			if len(header.Get("authorization")) > 0 {
				t.Error("the token goes to the service of addresses")
			}
			return status.Error(codes.Unimplemented, "")
		}
		if err := stream.SetHeader(metadata.Pairs("x-request-id", words)); err != nil {
			return err
		}
		if code != codes.OK {
			return status.Error(code, words)
		}
		return stream.SendMsg(&body)
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return listener
}

// FuzzAnswers checks the backend against any answer, from the API or from a program between: each call ends with a kind,
// and no token is in an error. The word TOKEN in an answer becomes the token.
func FuzzAnswers(f *testing.F) {
	add := func(m proto.Message) {
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for _, cut := range []int{len(body), len(body) / 2, 1} {
			f.Add(uint32(codes.OK), "TOKEN", body[:min(cut, len(body))])
		}
	}
	disk := &compute.Disk{Id: "fhmdisk0000000000001", FolderId: "b1g", Name: "new", ZoneId: emulator.DefaultZone, Size: 20 << 30, Status: compute.Disk_READY}
	add(disk)
	add(&compute.ListDisksResponse{Disks: []*compute.Disk{disk, {}}, NextPageToken: "again"})
	add(&compute.ListSnapshotsResponse{Snapshots: []*compute.Snapshot{{Id: "fd8snapshot000000001", Name: "new"}}, NextPageToken: "again"})
	add(&compute.Instance{Id: machine1, SecondaryDisks: []*compute.AttachedDisk{{DiskId: "fhmdisk0000000000001"}}})
	add(&operation.Operation{Id: "fhmoperation00000001", Done: true})
	add(&operation.Operation{Id: "fhmoperation00000001"})
	add(&endpoint.ApiEndpoint{Id: "compute", Address: "elsewhere.example:443"})
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		f.Add(uint32(code), "upstream got Bearer TOKEN", []byte(nil))
		f.Add(uint32(code), "TOKEN", []byte("TOKEN"))
	}
	objects := cloudtest.Objects{Volume: "fhmdisk0000000000001", Snapshot: "fd8snapshot000000001", Node: node1, Zone: emulator.DefaultZone}
	f.Fuzz(func(t *testing.T, code uint32, words string, body []byte) {
		if strings.ContainsFunc(words, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Skip("gRPC cannot carry these words in a header")
		}
		words = strings.ReplaceAll(words, "TOKEN", secretToken)
		body = []byte(strings.ReplaceAll(string(body), "TOKEN", secretToken))
		synctest.Test(t, func(t *testing.T) {
			listener := answersAll(t, codes.Code(code%17), words, body)
			c := open(t, start(t, emulator.Options{}), func(cfg *yandex.Config) {
				cfg.Tick, cfg.Busy = 0, wait.Backoff{} // as outside of tests
				cfg.Token = func() (string, error) { return secretToken, nil }
				cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
			})
			cloudtest.SurviveAnswers(t.Context(), t, c, objects, secretToken)
		})
	})
}
