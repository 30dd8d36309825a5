package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// driver is a CSI driver that can be told to be unwell.
type driver struct {
	csi.UnimplementedIdentityServer
	broken, starting atomic.Bool
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "driver.example"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	if d.broken.Load() {
		return nil, status.Error(codes.Internal, "out of order")
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(!d.starting.Load())}, nil
}

// serve starts the driver and returns its socket.
func (d *driver) serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// registered runs the registrar and plays the kubelet; it returns what run will return.
func registered(t *testing.T, ctx context.Context, notice *registration.RegistrationStatus) (dir string, end chan error) {
	t.Helper()
	dir = t.TempDir()
	end = make(chan error, 1)
	socket := (&driver{}).serve(t)
	go func() {
		end <- run(ctx, []string{
			"--csi-address=" + socket, "--kubelet-registration-path=/kubelet/csi.sock", "--plugin-registration-path=" + dir,
		}, os.Stderr)
	}()
	kubelet := registration.NewRegistrationClient(dial(t, filepath.Join(dir, "driver.example-reg.sock")))
	info, err := kubelet.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if info.Type != "CSIPlugin" || info.Name != "driver.example" || info.Endpoint != "/kubelet/csi.sock" {
		t.Errorf("GetInfo = %v", info)
	}
	if _, err := kubelet.NotifyRegistrationStatus(ctx, notice); err != nil {
		t.Fatal(err)
	}
	return dir, end
}

func TestRegistrarServesUntilItIsStoppedAndLeavesNoSocket(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	dir, end := registered(t, ctx, &registration.RegistrationStatus{PluginRegistered: true})
	stop()
	if err := <-end; err != nil {
		t.Errorf("run = %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left in the kubelet's folder: %v", left)
	}
}

func TestRegistrarEndsWhenTheKubeletRefuses(t *testing.T) {
	_, end := registered(t, t.Context(), &registration.RegistrationStatus{Error: "two drivers of one name"})
	if err := <-end; err == nil || !strings.Contains(err.Error(), "two drivers of one name") {
		t.Errorf("run = %v, want the kubelet's reason", err)
	}
}

func TestRegistrarGivesUpOnASilentDriver(t *testing.T) {
	err := run(t.Context(), []string{"--csi-address=/nowhere/csi.sock", "--timeout=100ms"}, os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "ask the driver for its name") {
		t.Errorf("run = %v", err)
	}
}

func TestHealthIsTheDriversOwnWord(t *testing.T) {
	d := &driver{}
	health := &probe{driver: csi.NewIdentityClient(dial(t, d.serve(t))), timeout: 5 * time.Second}
	for _, test := range []struct {
		name             string
		broken, starting bool
		code             int
	}{
		{"well", false, false, http.StatusOK},
		{"failing", true, false, http.StatusInternalServerError},
		{"not ready yet", false, true, http.StatusInternalServerError},
	} {
		t.Run(test.name, func(t *testing.T) {
			d.broken.Store(test.broken)
			d.starting.Store(test.starting)
			answer := httptest.NewRecorder()
			health.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			if answer.Code != test.code {
				t.Errorf("/healthz = %d %s, want %d", answer.Code, answer.Body, test.code)
			}
		})
	}
}

func TestHealthAddress(t *testing.T) {
	for flags, want := range map[string]string{
		"":                      ":9808",
		"--health-port=9900":    ":9900",
		"--http-endpoint=:9910": ":9910",
	} {
		o, err := parse(strings.Fields(flags), os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.healthAddress(); got != want {
			t.Errorf("with %q /healthz is at %s, want %s", flags, got, want)
		}
	}
}

func TestTheSocketIsTheRegistrarsHealth(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "reg.sock")
	ask := func() int {
		answer := httptest.NewRecorder()
		present(socket)(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		return answer.Code
	}
	if got := ask(); got != http.StatusInternalServerError {
		t.Errorf("without a socket /healthz = %d", got)
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != http.StatusOK {
		t.Errorf("with a socket /healthz = %d", got)
	}
}
