// Package yandex_test compares the emulated cloud, and what the driver reads, with answers of the real one that others recorded.
//
// The facts are of recordings of 2024 and 2025 that yandex-cloud/yandex-cloud-ml-sdk keeps in compat/yandex-cloud-ml-sdk/tests and tests,
// each in a folder cassettes, as *.gprc.json. They are of services other than compute, and have no refusal. The files are not copied.
package yandex_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// recordedEndpoints are those of the recorded list, of 84 to 112, that the driver uses, and serialssh, the only one with another port
// than 443.
var recordedEndpoints = map[string]string{
	"compute":   "compute.api.cloud.yandex.net:443",
	"endpoint":  "api.cloud.yandex.net:443",
	"iam":       "iam.api.cloud.yandex.net:443",
	"operation": "operation.api.cloud.yandex.net:443",
	"serialssh": "serialssh.cloud.yandex.net:9600",
}

// TestEndpointsAreAsRecorded: the emulator lists each service that the driver uses, once, with an address of the recorded form.
func TestEndpointsAreAsRecorded(t *testing.T) {
	folder := emulator.Start(t, emulator.Options{})
	conn, err := grpc.NewClient(strings.TrimPrefix(folder.URL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	cloudtest.Must(t, err)
	defer conn.Close()
	list, err := endpoint.NewApiEndpointServiceClient(conn).List(t.Context(), &endpoint.ListApiEndpointsRequest{})
	cloudtest.Must(t, err)
	var ids []string
	for _, e := range list.GetEndpoints() {
		ids = append(ids, e.GetId())
		if host, port, err := net.SplitHostPort(e.GetAddress()); err != nil || host == "" || port == "" {
			t.Errorf("%s is at %q, want a host and a port", e.GetId(), e.GetAddress())
		}
	}
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(recordedEndpoints)), func(id string) bool { return id == "serialssh" })
	if slices.Sort(ids); !slices.Equal(ids, want) {
		t.Errorf("the endpoints are %q, want %q", ids, want)
	}
}

// TestDriverUsesTheRecordedEndpoints: with the recorded list, each request goes to the address that the list has for its service.
func TestDriverUsesTheRecordedEndpoints(t *testing.T) {
	folder := emulator.Start(t, emulator.Options{InMemory: true})
	key, err := folder.NewKey()
	cloudtest.Must(t, err)
	var mu sync.Mutex
	dialed := map[string]bool{}
	c := open(t, folder, func(cfg *yandex.Config) {
		cfg.Endpoint = "http://" + recordedEndpoints["endpoint"] // the emulator in memory has no certificate
		cfg.Token = func() (string, error) { return string(key), nil }
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[address] = true
			return folder.Dial(ctx, address)
		}
		cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, ask, answer, conn, opts...)
			if list, is := answer.(*endpoint.ListApiEndpointsResponse); is && err == nil {
				list.Endpoints = nil
				for id, address := range recordedEndpoints {
					list.Endpoints = append(list.Endpoints, &endpoint.ApiEndpoint{Id: id, Address: address})
				}
			}
			return err
		}
	})
	_, err = c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: cloud.GiB, Zones: []string{emulator.DefaultZone}})
	cloudtest.Must(t, err)
	mu.Lock()
	defer mu.Unlock()
	want := slices.Sorted(maps.Values(recordedEndpoints))
	want = slices.DeleteFunc(want, func(address string) bool { return address == recordedEndpoints["serialssh"] })
	if got := slices.Sorted(maps.Keys(dialed)); !slices.Equal(got, want) {
		t.Errorf("the driver has connected to %q, want %q", got, want)
	}
}

// open returns the driver as the program runs it, over a folder in memory.
func open(t *testing.T, folder *emulator.Cloud, edit func(*yandex.Config)) cloud.Cloud {
	t.Helper()
	cfg := yandex.Config{
		Config: block.Config{
			Token:    func() (string, error) { return folder.Token, nil },
			Endpoint: "http://127.0.0.1:1", // no socket
			Region:   emulator.DefaultZone, ClusterID: "one",
		},
		Dial: folder.Dial, Folder: folder.Folder,
	}
	edit(&cfg)
	c, err := yandex.New(t.Context(), cfg)
	cloudtest.Must(t, err)
	cloudtest.CloseAfter(t, c.Close)
	return middleware.Stack(c, wait.Backoff{Tries: 4, First: time.Millisecond, Max: 5 * time.Millisecond})
}
