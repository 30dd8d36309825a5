package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// asProgram makes the test binary the program itself, so that exit codes and signals are real.
const asProgram = "CLOUDBLOCK_TEST_AS_PROGRAM"

// poolMounts is the mount table of that program.
const poolMounts = "CLOUDBLOCK_TEST_MOUNTS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		mountTable = os.Getenv(poolMounts)
		main()
		return
	}
	os.Exit(m.Run())
}

const patience = 30 * time.Second

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", poolMounts+"="+mountTable)
	return cmd
}

// serving starts the program on a socket, until the test ends or end is called, and returns a connection to it.
func serving(t *testing.T, log io.Writer, args ...string) (conn *grpc.ClientConn, end func()) {
	t.Helper()
	endpoint := "unix://" + filepath.Join(t.TempDir(), "c.sock")
	cmd := program(t, append(args, "--endpoint="+endpoint)...)
	cmd.Stderr = log
	ok(t, cmd.Start())
	end = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	t.Cleanup(end)
	return drivertest.Dial(t, endpoint), end
}

// mounted makes these folders look like mount points of separate filesystems until the test ends.
func mounted(t testing.TB, folders ...string) {
	t.Helper()
	mountTable = mounts.Table(t, folders...)
	t.Cleanup(func() { mountTable = "" })
}

func TestExitCodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	tests := map[string]struct {
		args []string
		code int
		says string
	}{
		"the version needs nothing":        {[]string{"--version"}, 0, "cloudblock-controller unknown unknown\n"},
		"help is no error":                 {[]string{"--help"}, 0, "-local-pool"},
		"a wrong flag":                     {[]string{"--cloud=local", "--x"}, 2, "-x"},
		"a pool that is a file":            {[]string{"--cloud=local", "--node-id=n", "--local-pool=" + file, "--endpoint=" + drivertest.Endpoint(t)}, 1, "open --cloud local"},
		"a wrong flag of the sub-command":  {[]string{"volumes", "--cloud=mars"}, 2, "mars"},
		"a sub-command that finds no pool": {[]string{"volumes", "--cloud=local", "--local-pool=" + file + "-not"}, 1, file},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, tc.args...)
			out, err := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != tc.code || !strings.Contains(string(out), tc.says) {
				t.Errorf("%q exits with %d (%v), want %d and %q in:\n%s", tc.args, got, err, tc.code, tc.says, out)
			}
		})
	}
}

// The whole program with local: the requests of sidecars in per-node mode, one volume, and SIGTERM.
func TestProgramOnLocal(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.Mkdir(filepath.Join(dir, "pool"), 0o700))
	mounted(t, filepath.Join(dir, "pool"))
	endpoint, address := "unix://"+filepath.Join(dir, "c.sock"), drivertest.FreeAddress(t)
	cmd := program(t, "--cloud=local", "--local-pool="+filepath.Join(dir, "pool"), "--node-id=node-a", "--max-volumes=9",
		"--endpoint="+endpoint, "--http-endpoint="+address, "--cluster-id=c1")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	ok(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	conn := drivertest.Dial(t, endpoint)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	info, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}, grpc.WaitForReady(true))
	here := &csi.Topology{Segments: map[string]string{"topology.local.csi.cloudblock.io/node": "node-a"}}
	if err != nil || !proto.Equal(info, &csi.NodeGetInfoResponse{NodeId: "node-a", MaxVolumesPerNode: 9, AccessibleTopology: here}) {
		t.Errorf("NodeGetInfo = %v, %v", info, err)
	}
	caps, err := csi.NewNodeClient(conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil || len(caps.GetCapabilities()) != len(driver.NodeCapabilities(true)) {
		t.Errorf("NodeGetCapabilities = %v, %v", caps, err)
	}
	driveLocal(ctx, t, csi.NewControllerClient(conn), here)
	wantPage(t, address, "readyz", http.StatusOK, "")
	ok(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want exit 0\n%s", err, log.String())
	}
	if _, err := os.Lstat(filepath.Join(dir, "c.sock")); err == nil {
		t.Error("the socket is still there")
	}
}

func driveLocal(ctx context.Context, t *testing.T, client csi.ControllerClient, here *csi.Topology) {
	t.Helper()
	req := createRequest("pvc-1")
	req.CapacityRange.RequiredBytes = 5_000_000
	req.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{here}}
	first, err := client.CreateVolume(ctx, req)
	ok(t, err)
	second, err := client.CreateVolume(ctx, req)
	if err != nil || !proto.Equal(first, second) {
		t.Errorf("the second CreateVolume = %v, %v, want %v", second, err, first)
	}
	if _, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: first.GetVolume().GetVolumeId()}); err != nil {
		t.Error(err)
	}
	req.Name, req.CapacityRange.RequiredBytes = "too-big", 1<<50
	_, err = client.CreateVolume(ctx, req)
	if code := status.Code(err); code != codes.ResourceExhausted && code != codes.OutOfRange {
		t.Errorf("CreateVolume of 1 PiB: %v, want ResourceExhausted or OutOfRange", err)
	}
	list, err := client.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) > 0 {
		t.Errorf("ListVolumes = %v, %v, want none", list, err)
	}
}

func createRequest(name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: int64(3 * cloud.GiB)},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	}
}

func TestReachabilityAsksSeldom(t *testing.T) {
	var asked atomic.Int64
	bad := fmt.Errorf("token: %w", fault.Denied)
	r := &reachability{log: zap.NewNop(), check: func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded || ctx.Err() != nil {
			t.Error("the question has no bound of its own")
		}
		asked.Add(1)
		return bad
	}}
	registry := prometheus.NewRegistry()
	ok(t, r.register(registry))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 {
		if err := r.ask(gone); !errors.Is(err, fault.Denied) {
			t.Errorf("ask = %v, want %v", err, bad)
		}
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 || families[0].GetMetric()[0].GetGauge().GetValue() != 1 || families[1].GetMetric()[0].GetGauge().GetValue() != 0 {
		t.Errorf("the metrics are %v, %v, want the credentials refused and the cloud not reachable", families, err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the cloud was asked %d times, want 1", n)
	}
	r.asked = time.Now().Add(-doubtFor)
	bad = nil
	if err := r.ask(t.Context()); err != nil {
		t.Errorf("ask after %s of a bad answer = %v, want a new one", doubtFor, err)
	}
	r.asked = time.Now().Add(-2 * doubtFor)
	if err := r.ask(t.Context()); err != nil || asked.Load() != 2 {
		t.Errorf("ask soon after a good answer = %v, and the cloud was asked %d times, want 2", err, asked.Load())
	}
}

// A check that is not sent, because other requests have used up the budget, does not change the result.
func TestReachabilityWhenTheBudgetIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observed, lines := observer.New(zap.InfoLevel)
		governor := budget.New(budget.Config{Windows: []budget.Window{{Calls: 1, Per: time.Hour}}})
		var answer error
		r := &reachability{log: zap.New(observed), check: func(ctx context.Context) error {
			if err := governor.Acquire(ctx, budget.List); err != nil {
				return fmt.Errorf("check the token: %w", err)
			}
			return answer
		}}
		for i, before := range []error{nil, fmt.Errorf("token expired: %w", fault.Denied)} {
			answer = before
			if err := r.ask(t.Context()); !errors.Is(err, before) { // spends the budget
				t.Fatalf("step %d: ask = %v, want %v", i, err, before)
			}
			for range 2 {
				time.Sleep(freshFor)
				lines.TakeAll()
				if err := r.ask(t.Context()); !errors.Is(err, before) || lines.Len() > 0 {
					t.Errorf("step %d: without budget ask = %v, and logs %v, want %v as before", i, err, lines.All(), before)
				}
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// Each change of the result of the checks is logged once, with its cause; an unchanged result is not logged.
func TestEachChangeOfReachabilityIsLogged(t *testing.T) {
	observed, lines := observer.New(zap.InfoLevel)
	var answer error
	r := &reachability{log: zap.New(observed), check: func(context.Context) error { return answer }}
	denied, gone := fmt.Errorf("token expired: %w", fault.Denied), fmt.Errorf("no route: %w", fault.Unavailable)
	for i, step := range []struct {
		answer error
		logs   string
		level  zapcore.Level
	}{
		{nil, "", 0},
		{gone, "does not answer", zap.WarnLevel},
		{fmt.Errorf("timeout: %w", fault.Unavailable), "", 0},
		{denied, "refuses the credentials", zap.WarnLevel},
		{denied, "", 0},
		{gone, "does not answer", zap.WarnLevel},
		{nil, "can be reached again", zap.InfoLevel},
		{nil, "", 0},
	} {
		answer, r.asked = step.answer, time.Time{}
		if err := r.ask(t.Context()); !errors.Is(err, step.answer) {
			t.Fatalf("step %d: ask = %v, want %v", i, err, step.answer)
		}
		got := lines.TakeAll()
		switch {
		case step.logs == "" && len(got) == 0:
		case step.logs == "" || len(got) != 1:
			t.Errorf("step %d logs %v, want %q", i, got, step.logs)
		case !strings.Contains(got[0].Message, step.logs) || got[0].Level != step.level:
			t.Errorf("step %d logs %s %q, want %s and %q", i, got[0].Level, got[0].Message, step.level, step.logs)
		case step.answer != nil && got[0].ContextMap()["error"] != step.answer.Error():
			t.Errorf("step %d logs the cause %v, want %v", i, got[0].ContextMap(), step.answer)
		}
	}
}
