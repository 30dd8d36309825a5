package controller_test

import (
	"bytes"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gib     = int64(cloud.GiB)
	zoneKey = "topology.memory.csi.cloudblock.io/zone"
)

var ctxOf, must = drivertest.Waiting, expect.NoError

// rig is a controller service on a real socket, over an in-memory cloud.
type rig struct {
	csi.ControllerClient

	conn  *grpc.ClientConn
	cloud *memory.Cloud
	names driver.Names
	log   *drivertest.Log
	http  string
}

// memoryNames are the names of a driver of the in-memory cloud.
func memoryNames(t testing.TB) driver.Names {
	t.Helper()
	names, err := driver.NewNames("memory", profile.ScopeZone, "", nil)
	must(t, err)
	return names
}

func start(t testing.TB, cfg memory.Config, tags ...cloud.Tag) *rig {
	t.Helper()
	names := memoryNames(t)
	r := &rig{cloud: memory.New(cfg), names: names, log: &drivertest.Log{}, http: drivertest.FreeAddress(t)}
	log, err := driver.NewLogger("debug", "json", r.log)
	must(t, err)
	service := controller.New(r.cloud, names, tags...)
	r.conn = drivertest.Serve(t, driver.Config{
		Names: names, Features: service.Features(), Version: "test", HTTPEndpoint: r.http, Log: log,
	}, func(s grpc.ServiceRegistrar) {
		csi.RegisterControllerServer(s, service)
	})
	r.ControllerClient = csi.NewControllerClient(r.conn)
	return r
}

func (r *rig) metrics(t *testing.T) string {
	t.Helper()
	_, text := drivertest.Page(t, "http://"+r.http+"/metrics")
	return text
}

// small returns the capabilities of a cloud that can only create and delete.
func small() cloud.Capabilities {
	caps := memory.Full()
	caps.Attach, caps.Expand, caps.Snapshots, caps.Clones, caps.Capacity = false, false, false, false, false
	caps.Health, caps.Modify, caps.Parameters = false, false, nil
	return caps
}

func capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

func filesystem() *csi.VolumeCapability {
	return capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
}

func block() *csi.VolumeCapability {
	c := filesystem()
	c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	return c
}

// request returns a valid CreateVolume request, which callers can change.
func request(name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name:               name,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 2 * gib},
		VolumeCapabilities: []*csi.VolumeCapability{filesystem()},
	}
}

func (r *rig) make(t *testing.T, name string) *csi.Volume {
	t.Helper()
	answer, err := r.CreateVolume(ctxOf(t), request(name))
	if err != nil {
		t.Fatalf("CreateVolume(%s): %v", name, err)
	}
	return answer.GetVolume()
}

// wantCode fails the test unless the error has the code and its message all of the words.
func wantCode(t *testing.T, call string, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: %v, want code %v", call, err, code)
		return
	}
	for _, w := range words {
		if !bytes.Contains([]byte(status.Convert(err).Message()), []byte(w)) {
			t.Errorf("%s: %v, want it to say %q", call, err, w)
		}
	}
}

func topology(zones ...string) []*csi.Topology {
	var list []*csi.Topology
	for _, z := range zones {
		list = append(list, &csi.Topology{Segments: map[string]string{zoneKey: z}})
	}
	return list
}
