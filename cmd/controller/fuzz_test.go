package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// frugal prevents fuzzed requests from filling the disk.
type frugal struct {
	cloud.Cloud

	made atomic.Int64
}

func (c *frugal) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	if req.Size > 64*cloud.MiB || c.made.Add(1) > 20 {
		return cloud.Volume{}, fmt.Errorf("too much for a test: %w", fault.Exhausted)
	}
	return c.Cloud.CreateVolume(ctx, req)
}

// C6: no request of any call to `local` makes a handler panic or fail without a reason, and none changes anything outside of the
// pool.
func FuzzCallsOnLocal(f *testing.F) {
	dir := f.TempDir()
	folder, outside := filepath.Join(dir, "pool"), filepath.Join(dir, "outside")
	ok(f, errors.Join(os.Mkdir(folder, 0o700), os.MkdirAll(filepath.Join(outside, "volumes"), 0o700)))
	ok(f, os.WriteFile(filepath.Join(outside, "volumes", strings.Repeat("a", 32)+".img"), []byte("data"), 0o600))
	bare, err := local.New(f.Context(), local.Config{Node: "node-a", Pools: []pool.Config{{Dir: folder, MountTable: mounts.Table(f, folder)}}})
	ok(f, err)
	f.Cleanup(func() { _ = bare.Close(context.Background()) })
	names, err := driver.NewNames("local", profile.ScopeNode, "", nil)
	ok(f, err)
	var log drivertest.Log
	logger, err := driver.NewLogger("error", "json", &log)
	ok(f, err)
	decorated := middleware.Stack(&frugal{Cloud: bare}, wait.Backoff{})
	service := controller.New(decorated, names)
	conn := drivertest.Serve(f, driver.Config{Names: names, Features: service.Features(), Log: logger},
		func(r grpc.ServiceRegistrar) { csi.RegisterControllerServer(r, service) })
	made, err := csi.NewControllerClient(conn).CreateVolume(drivertest.Waiting(f), &csi.CreateVolumeRequest{
		Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20}, VolumeCapabilities: createRequest("v").GetVolumeCapabilities(),
	})
	ok(f, err)
	id := made.GetVolume().GetVolumeId()
	before := drivertest.Tree(f, outside)
	texts := []string{
		"x", id, "node-a", "node-a/" + strings.Repeat("a", 32), "node-a/../outside", "node-a/snap-" + strings.Repeat("a", 32),
		"../outside/volumes/" + strings.Repeat("a", 32), "\x01", "a=b", strings.Repeat("long", 500),
	}
	drivertest.FuzzCalls(f, "csi.v1.Controller", conn, texts, func(t *testing.T, call string) {
		if text := log.Take(); strings.Contains(text, `"panic"`) {
			t.Fatalf("%s: a handler panicked:\n%s", call, text)
		}
		if after := drivertest.Tree(t, outside); after != before {
			t.Fatalf("%s changed something outside:\n%s\nbefore:\n%s", call, after, before)
		}
	})
}
