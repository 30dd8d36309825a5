package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

var must = expect.NoError

func TestVersionNeedsNothing(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, nil, &out, &bytes.Buffer{}); err != nil {
		t.Fatalf("run(--version) = %v, want no error", err)
	}
	if got, want := out.String(), "cloudblock-node "+version+" "+commit+"\n"; got != want {
		t.Errorf("run(--version) prints %q, want %q", got, want)
	}
}

// fakePath returns a PATH of one folder with these programs.
func fakePath(t *testing.T, programs ...string) driver.Environment {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		must(t, os.WriteFile(filepath.Join(dir, p), []byte("#!/bin/false\n"), 0o755))
	}
	return driver.Environment{"PATH=" + dir}
}

func everyTool() []string {
	var all []string
	for _, t := range tools {
		all = append(all, t.programs...)
	}
	return all
}

// newPool returns a folder that looks like an empty filesystem to the program.
func newPool(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mountTable = mounts.Table(t, dir)
	t.Cleanup(func() { mountTable = "" })
	return dir
}

// start runs the program on a new pool.
func start(t *testing.T, environ driver.Environment, more ...string) (csi.NodeClient, *drivertest.Log, func() error) {
	t.Helper()
	return startWith(t, environ, append([]string{"--cloud=local", "--local-pool=" + newPool(t), "--node-id=node-a"}, more...)...)
}

// startWith runs the program in this process and returns a client, its log, and the function that stops it.
func startWith(t *testing.T, environ driver.Environment, more ...string) (csi.NodeClient, *drivertest.Log, func() error) {
	t.Helper()
	endpoint := drivertest.Endpoint(t)
	args := append([]string{"--endpoint=" + endpoint}, more...)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var log drivertest.Log
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, environ, &bytes.Buffer{}, &log) }()
	conn := drivertest.Dial(t, endpoint)
	ready, cancelReady := context.WithTimeout(ctx, 20*time.Second)
	defer cancelReady()
	if _, err := csi.NewIdentityClient(conn).Probe(ready, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("Probe = %v, want ready\n%s", err, log.String())
	}
	return csi.NewNodeClient(conn), &log, func() error { cancel(); return <-done }
}

func TestRunServesTheNodeServiceUntilItIsToldToStop(t *testing.T) {
	client, log, stop := start(t, fakePath(t, everyTool()...), "--max-volumes=9", "--topology-key=x.example/node=node")
	info, err := client.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	must(t, err)
	if got := info.GetAccessibleTopology().GetSegments()["x.example/node"]; info.GetNodeId() != "node-a" || got != "node-a" || info.GetMaxVolumesPerNode() != 9 {
		t.Errorf("NodeGetInfo = %v, want node-a, its topology and 9 volumes", info)
	}
	caps, err := client.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	must(t, err)
	if got, want := len(caps.GetCapabilities()), len(driver.NodeCapabilities(true)); got != want || got == 0 {
		t.Errorf("NodeGetCapabilities lists %d, want %d", got, want)
	}
	expect.Kind(t, "run after its context ended", stop(), fault.None)
	if strings.Contains(log.String(), "not on PATH") {
		t.Errorf("the log complains about missing programs:\n%s", log.String())
	}
}

func TestAPoolOfAnotherNodeIsRefusedAtStart(t *testing.T) {
	pool := newPool(t)
	_, _, stop := startWith(t, fakePath(t, everyTool()...), "--cloud=local", "--local-pool="+pool, "--node-id=a")
	must(t, stop())
	args := []string{"--cloud=local", "--local-pool=" + pool, "--node-id=b", "--endpoint=" + drivertest.Endpoint(t)}
	if err := run(t.Context(), args, fakePath(t, everyTool()...), &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "--local-pool") {
		t.Errorf("run on the pool of another node = %v, want an error that names the flag", err)
	}
}

// Nodes have the same flags and different disks: the program serves the pools that exist, and logs which is missing.
func TestAPoolThatIsNotHereIsAWarning(t *testing.T) {
	bare := t.TempDir()
	_, log, stop := start(t, fakePath(t, everyTool()...), "--local-pool=fast="+bare)
	expect.Kind(t, "run", stop(), fault.None)
	if got := log.String(); strings.Count(got, "pool is not open") != 1 || !strings.Contains(got, "no filesystem is mounted at "+bare) {
		t.Errorf("the log does not say once that the pool is not there:\n%s", got)
	}
	args := []string{"--cloud=local", "--local-pool=" + bare, "--node-id=b", "--endpoint=" + drivertest.Endpoint(t)}
	err := run(t.Context(), args, fakePath(t, everyTool()...), &bytes.Buffer{}, &bytes.Buffer{})
	if fault.ReasonOf(err) != fault.PoolUnusable {
		t.Errorf("run on nothing = %v, want %s", err, string(fault.PoolUnusable))
	}
	if left, err := os.ReadDir(bare); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}
}

func TestANodeOfACloudIsWhoTheMetadataServiceSays(t *testing.T) {
	account := emulator.Start(t, emulator.Options{Droplets: 1, Region: "ams3"})
	droplet := account.Droplets()[0]
	tests := map[string]struct {
		args []string
		want *csi.NodeGetInfoResponse
	}{
		"the service alone": {
			[]string{"--metadata-endpoint=" + account.Metadata(droplet)},
			&csi.NodeGetInfoResponse{NodeId: strconv.Itoa(droplet), MaxVolumesPerNode: 15, AccessibleTopology: region("ams3")},
		},
		"flags over it": {
			[]string{"--metadata-endpoint=" + account.Metadata(droplet), "--zone=fra1", "--reserved-attachments=2"},
			&csi.NodeGetInfoResponse{NodeId: strconv.Itoa(droplet), MaxVolumesPerNode: 13, AccessibleTopology: region("fra1")},
		},
		"flags, and no service is read": {
			[]string{"--metadata-endpoint=http://127.0.0.1:1", "--node-id=7", "--zone=fra1"},
			&csi.NodeGetInfoResponse{NodeId: "7", MaxVolumesPerNode: 15, AccessibleTopology: region("fra1")},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client, _, stop := startWith(t, fakePath(t, everyTool()...), append([]string{"--cloud=digitalocean", "--device-dir=" + t.TempDir()}, tc.args...)...)
			info, err := client.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
			if err != nil || !proto.Equal(info, tc.want) {
				t.Errorf("NodeGetInfo = %v, %v, want %v", info, err, tc.want)
			}
			expect.Kind(t, "run", stop(), fault.None)
		})
	}
}

func region(name string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{"topology.digitalocean.csi.cloudblock.io/region": name}}
}
