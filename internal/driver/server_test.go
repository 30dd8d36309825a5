package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must, eventually = expect.NoError, expect.Eventually

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handlers is a controller service with one call, which the test defines.
type handlers struct {
	csi.UnimplementedControllerServer

	create func(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error)
}

func (h handlers) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return h.create(ctx, req)
}

// running is a server under test.
type running struct {
	conn    *grpc.ClientConn
	log     *drivertest.Log
	socket  string
	http    string
	stop    context.CancelFunc
	stopped <-chan error
}

// start serves h on a socket in a temporary folder until the end of the test.
func start(t *testing.T, h handlers, change func(*driver.Config)) *running {
	t.Helper()
	r := &running{log: &drivertest.Log{}, socket: filepath.Join(t.TempDir(), "csi.sock"), http: drivertest.FreeAddress(t)}
	log, err := driver.NewLogger("debug", "json", r.log)
	must(t, err)
	cfg := driver.Config{
		Names: names(t), Version: "v1", Commit: "abc", Endpoint: "unix://" + r.socket, HTTPEndpoint: r.http,
		Log: log, Grace: drivertest.Patience,
	}
	if change != nil {
		change(&cfg)
	}
	if r.socket, err = driver.SocketPath(cfg.Endpoint); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stopped <- driver.Serve(ctx, cfg, func(s grpc.ServiceRegistrar) { csi.RegisterControllerServer(s, h) })
	}()
	r.stop, r.stopped = cancel, stopped
	r.conn = drivertest.Dial(t, "unix://"+r.socket)
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	drivertest.Ready(t, r.conn)
	return r
}

var waiting, get = drivertest.Waiting, drivertest.Page

func (r *running) create(t *testing.T, req *csi.CreateVolumeRequest) error {
	t.Helper()
	_, err := csi.NewControllerClient(r.conn).CreateVolume(waiting(t), req)
	return err
}

func TestServeIdentity(t *testing.T) {
	r := start(t, handlers{}, nil)
	client := csi.NewIdentityClient(r.conn)
	info, err := client.GetPluginInfo(waiting(t), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "local.csi.cloudblock.io" || info.GetVendorVersion() != "v1" {
		t.Errorf("GetPluginInfo = %v, %v", info, err)
	}
	if info, err := os.Stat(r.socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket's mode is %v, %v, want 0660", info.Mode(), err)
	}
}

func TestPluginCapabilitiesFollowTheFeatures(t *testing.T) {
	const always = "CONTROLLER_SERVICE/UNKNOWN VOLUME_ACCESSIBILITY_CONSTRAINTS/UNKNOWN UNKNOWN/ONLINE"
	for features, want := range map[driver.Features]string{
		{}:                     always,
		{SnapshotZones: true}:  always + " SNAPSHOT_ACCESSIBILITY_CONSTRAINTS/UNKNOWN",
		{SnapshotBlocks: true}: always + " SNAPSHOT_METADATA_SERVICE/UNKNOWN",
	} {
		r := start(t, handlers{}, func(cfg *driver.Config) { cfg.Features = features })
		caps, err := csi.NewIdentityClient(r.conn).GetPluginCapabilities(waiting(t), &csi.GetPluginCapabilitiesRequest{})
		must(t, err)
		var got []string
		for _, c := range caps.GetCapabilities() {
			got = append(got, c.GetService().GetType().String()+"/"+c.GetVolumeExpansion().GetType().String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("GetPluginCapabilities with %+v = %v, want %s", features, got, want)
		}
	}
}

// C6, A14: an error of a handler becomes one status; a panic becomes Internal, and the process continues. The text of a status is cut to
// what a VolumeAttachment takes (kubernetes-sigs/azuredisk-csi-driver#2093), and is whole in the log.
func TestServeErrorsAndPanics(t *testing.T) {
	mode := make(chan func() error, 1)
	r := start(t, handlers{create: func(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
		return &csi.CreateVolumeResponse{}, (<-mode)()
	}}, nil)
	var empty *csi.Volume
	long := strings.Repeat("schön", 300)
	tests := map[string]struct {
		handler func() error
		code    codes.Code
		logged  string
	}{
		"a kind becomes its code":       {func() error { return fmt.Errorf("x: %w", fault.Exhausted) }, codes.ResourceExhausted, `"code":"ResourceExhausted"`},
		"an error without a kind":       {func() error { return errors.New("x") }, codes.Internal, `"code":"Internal"`},
		"a reason goes before the text": {func() error { return fmt.Errorf("x: %w", fault.NoSlot) }, codes.ResourceExhausted, `"error":"CB-NO-SLOT: x: `},
		"a long text":                   {func() error { return fmt.Errorf("%w: %s: detach it", fault.WrongZone, long) }, codes.FailedPrecondition, long},
		"a panic with words":            {func() error { panic("boom") }, codes.Internal, `"panic":"boom"`},
		"a panic of the runtime":        {func() error { empty.VolumeId = "x"; return nil }, codes.Internal, "nil pointer dereference"},
		"a panic with a whole struct":   {func() error { panic(handlers{}) }, codes.Internal, "a value of type driver_test.handlers"},
		"and then all is well":          {func() error { return nil }, codes.OK, `"code":"OK"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			mode <- tc.handler
			err := r.create(t, &csi.CreateVolumeRequest{Name: "n"})
			if status.Code(err) != tc.code {
				t.Errorf("CreateVolume: %v, want code %v", err, tc.code)
			}
			if err != nil && len(err.Error()) > 1024 {
				t.Errorf("the error has %d bytes, more than a VolumeAttachment takes", len(err.Error()))
			}
			if says := status.Convert(err).Message(); name == "a long text" && (!strings.HasPrefix(says, "CB-WRONG-ZONE: ") || !strings.HasSuffix(says, "ön: detach it")) {
				t.Errorf("a long message lost its reason or its end: %q", says)
			}
			if !strings.Contains(r.log.String(), tc.logged) {
				t.Errorf("the log has no %s:\n%s", tc.logged, r.log)
			}
		})
	}
	if _, counted := get(t, "http://"+r.http+"/metrics"); !strings.Contains(counted, "cloudblock_refusals_total{driver_name=\"local.csi.cloudblock.io\",reason=\"CB-NO-SLOT\"} 1\n") ||
		!strings.Contains(counted, "cloudblock_refusals_total{driver_name=\"local.csi.cloudblock.io\",reason=\"CB-QUOTA\"} 0\n") {
		t.Errorf("the metrics do not count the reason once:\n%s", counted)
	}
}

// P3: every line of the log has the ids of the request, and none has anything else from it.
func TestServeLogsIDsAndNoSecret(t *testing.T) {
	const canary = "canary-5f2e"
	r := start(t, handlers{create: func(ctx context.Context, _ *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
		driver.LogOf(ctx).Info("inside", zap.Stringer("token", driver.NewSecret(canary)))
		return nil, fmt.Errorf("x: %w", fault.NotFound)
	}}, nil)
	_ = r.create(t, &csi.CreateVolumeRequest{
		Name: "pvc-7", Secrets: map[string]string{"token": canary}, Parameters: map[string]string{"token": canary},
	})
	_, err := csi.NewControllerClient(r.conn).ControllerPublishVolume(waiting(t), &csi.ControllerPublishVolumeRequest{
		VolumeId: "vol-1", NodeId: strings.Repeat("n", 10_000), Secrets: map[string]string{canary: canary},
		VolumeContext: map[string]string{canary: canary},
	})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("ControllerPublishVolume: %v, want the stub's Unimplemented", err)
	}
	_, metrics := get(t, "http://"+r.http+"/metrics")
	log := r.log.String()
	for _, want := range []string{
		`"method":"CreateVolume"`, `"name":"pvc-7"`, `"code":"NotFound"`, `"duration":`, `"request":`,
		`"volume_id":"vol-1"`, `(10000 bytes)`, `"token":"***"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
	for _, want := range []string{
		`cloudblock_rpc_duration_seconds_count{code="NotFound",driver_name="local.csi.cloudblock.io",method="CreateVolume"} 1`,
		`cloudblock_rpc_in_flight{driver_name="local.csi.cloudblock.io",method="CreateVolume"} 0`,
		`cloudblock_build_info{commit="abc",driver_name="local.csi.cloudblock.io",version="v1"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s:\n%s", want, metrics)
		}
	}
	if strings.Contains(log+metrics+err.Error(), canary) {
		t.Errorf("the canary is in the log, the metrics or the error:\n%s\n%s\n%v", log, metrics, err)
	}
	if strings.Contains(log, strings.Repeat("n", 1000)) {
		t.Error("the log repeats an id of 10 kB whole")
	}
}

func TestServeDrains(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	r := start(t, handlers{create: func(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
		close(entered)
		<-leave
		return &csi.CreateVolumeResponse{}, nil
	}}, nil)
	if code, body := get(t, "http://"+r.http+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz = %d %s, want 200", code, body)
	}
	answered := make(chan error, 1)
	go func() { answered <- r.create(t, &csi.CreateVolumeRequest{Name: "n"}) }()
	<-entered
	r.stop()
	eventually(t, "readyz is 503 while a call is under way", func() bool {
		code, body := get(t, "http://"+r.http+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "stopping")
	})
	if code, _ := get(t, "http://"+r.http+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz = %d while draining, want 200", code)
	}
	select {
	case err := <-r.stopped:
		t.Fatalf("Serve returned %v with a call under way", err)
	case err := <-answered:
		t.Fatalf("the call under way was cut off: %v", err)
	default:
	}
	close(leave)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-r.stopped; err != nil {
		t.Errorf("Serve = %v, want nil after draining", err)
	}
	if _, err := os.Lstat(r.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// L9: a call may be in the kernel, on a disk that hangs, so that it does not end with its context. The next program waits for what this
// one releases after Serve.
func TestServeStopsAfterGrace(t *testing.T) {
	for name, hangs := range map[string]bool{"a call that ends with its context": false, "a call that hangs": true} {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			r := start(t, handlers{create: func(ctx context.Context, _ *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
				close(entered)
				<-ctx.Done()
				if hangs {
					<-leave
				}
				return nil, ctx.Err()
			}}, func(c *driver.Config) { c.Grace = 50 * time.Millisecond })
			t.Cleanup(func() { close(leave) })
			answered := make(chan error, 1)
			go func() { answered <- r.create(t, &csi.CreateVolumeRequest{Name: "n"}) }()
			<-entered
			r.stop()
			select {
			case err := <-r.stopped:
				if err == nil || !strings.Contains(err.Error(), "still running") {
					t.Errorf("Serve = %v, want an error about calls still running", err)
				}
			case <-waiting(t).Done():
				t.Fatal("Serve waits for a call that does not end with its context")
			}
			if err := <-answered; err == nil {
				t.Error("the call that outlived the grace period got an answer without error")
			}
		})
	}
}

func TestServeReadyAsksTheProgram(t *testing.T) {
	r := start(t, handlers{}, func(c *driver.Config) {
		c.Ready = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				return errors.New("no deadline")
			}
			return errors.New("the pool is gone")
		}
	})
	if code, body := get(t, "http://"+r.http+"/readyz"); code != http.StatusServiceUnavailable || body != "the pool is gone\n" {
		t.Errorf("/readyz = %d %q", code, body)
	}
	probe, err := csi.NewIdentityClient(r.conn).Probe(waiting(t), &csi.ProbeRequest{})
	if err != nil || !probe.GetReady().GetValue() {
		t.Errorf("Probe = %v, %v, want ready: it never asks what the program depends on", probe, err)
	}
	if code, _ := get(t, "http://"+r.http+"/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing = %d, want 404", code)
	}
}

func TestServeWithoutHTTP(t *testing.T) {
	r := start(t, handlers{}, func(c *driver.Config) { c.HTTPEndpoint = "" })
	r.stop()
	if err := <-r.stopped; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

// A request above the maximum legal size is refused before it is read.
func TestServeBoundsARequest(t *testing.T) {
	r := start(t, handlers{}, nil)
	for size, want := range map[int]codes.Code{100 << 10: codes.OK, 129 << 10: codes.ResourceExhausted} {
		// A message of another type, with a name of this length.
		req := &csi.GetPluginInfoResponse{Name: strings.Repeat("x", size)}
		err := r.conn.Invoke(waiting(t), csi.Identity_GetPluginInfo_FullMethodName, req, &csi.GetPluginInfoResponse{})
		if got := status.Code(err); got != want {
			t.Errorf("a request of %d bytes = %v, want %s", size, err, want)
		}
	}
}
