package controller_test

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// methods returns the methods of the controller service in the specification.
func methods(t *testing.T) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	return drivertest.Methods(t, "csi.v1.Controller")
}

// implementedBy has the calls that each capability requires.
var implementedBy = map[csi.ControllerServiceCapability_RPC_Type][]string{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME:         {"CreateVolume", "DeleteVolume"},
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME:     {"ControllerPublishVolume", "ControllerUnpublishVolume"},
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES:                 {"ListVolumes"},
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES: {"ListVolumes"},
	csi.ControllerServiceCapability_RPC_GET_CAPACITY:                 {"GetCapacity"},
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT:       {"CreateSnapshot", "DeleteSnapshot"},
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS:               {"ListSnapshots"},
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT:                 {"GetSnapshot"},
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME:                 {"CreateVolume"},
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME:                {"ControllerExpandVolume"},
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME:                {"ControllerModifyVolume", "CreateVolume"},
	csi.ControllerServiceCapability_RPC_GET_VOLUME:                   {"ControllerGetVolume"},
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH:            {"ControllerGetVolumeHealth"},
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH:           {"ControllerListVolumeHealth", "ControllerGetVolumeHealth"},
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:     {"CreateVolume"},
}

// C6: every advertised call is implemented, every other one returns Unimplemented, and no empty or full request of any call makes
// the program fail.
func TestEveryCallWithEmptyAndFullRequests(t *testing.T) {
	for name, caps := range map[string]cloud.Capabilities{"a cloud that can do all": memory.Full(), "a cloud that can do little": small()} {
		t.Run(name, func(t *testing.T) {
			r := start(t, memory.Config{Capabilities: caps})
			id := r.make(t, "v").GetVolumeId()
			answer, err := r.ControllerGetCapabilities(ctxOf(t), &csi.ControllerGetCapabilitiesRequest{})
			must(t, err)
			promised := map[string]bool{"ControllerGetCapabilities": true, "ValidateVolumeCapabilities": true}
			for _, c := range answer.GetCapabilities() {
				calls, known := implementedBy[c.GetRpc().GetType()]
				if !known {
					t.Errorf("%v is advertised, and this test does not know its calls", c)
				}
				for _, call := range calls {
					promised[call] = true
				}
			}
			for name, method := range methods(t) {
				for _, text := range []string{"", "x", id, "../x", "\x01", strings.Repeat("long", 500)} {
					req := drivertest.Message(t, method.Input())
					if text != "" {
						drivertest.Fill(req.ProtoReflect(), text, "secret")
					}
					code := status.Code(drivertest.Call(t, r.conn, method, req))
					if (code == codes.Unimplemented) == promised[name] {
						t.Errorf("%s(%.20q) has code %v, advertised: %v", name, text, code, promised[name])
					}
					if code == codes.Internal || code == codes.Unknown {
						t.Errorf("%s(%.20q) has code %v", name, text, code)
					}
				}
			}
			if strings.Contains(r.log.String(), `"panic"`) {
				t.Errorf("a handler panicked:\n%s", r.log)
			}
		})
	}
}

// C6: no request of any call makes a handler panic or fail without a reason.
func FuzzCalls(f *testing.F) {
	r := start(f, memory.Config{})
	made, err := r.CreateVolume(drivertest.Waiting(f), request("v"))
	must(f, err)
	id := made.GetVolume().GetVolumeId()
	snapshot, err := r.CreateSnapshot(drivertest.Waiting(f), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id})
	must(f, err)
	texts := []string{"x", "ext4", id, snapshot.GetSnapshot().GetSnapshotId(), "node-1", "../x", "\x01", "a=b", strings.Repeat("long", 500)}
	drivertest.FuzzCalls(f, "csi.v1.Controller", r.conn, texts, func(t *testing.T, call string) {
		if text := r.log.Take(); strings.Contains(text, `"panic"`) {
			t.Fatalf("%s: a handler panicked:\n%s", call, text)
		}
	})
}

func TestCapabilitiesFollowTheCloud(t *testing.T) {
	full, few := start(t, memory.Config{}), start(t, memory.Config{Capabilities: small()})
	for r, want := range map[*rig]int{full: len(implementedBy), few: 4} {
		answer, err := r.ControllerGetCapabilities(ctxOf(t), &csi.ControllerGetCapabilitiesRequest{})
		if err != nil || len(answer.GetCapabilities()) != want {
			t.Errorf("ControllerGetCapabilities = %v, %v, want %d", answer, err, want)
		}
	}
}

// P3: a secret in any secret field, in contexts, mount flags and parameters is in no log line, error or metric, whether the call
// succeeds or not.
func TestNoSecretLeaves(t *testing.T) {
	const canary = "canary-77d0c4"
	r := start(t, memory.Config{})
	secrets := map[string]string{"token": canary, "password": canary}
	hidden := filesystem()
	hidden.GetMount().MountFlags = []string{"password=" + canary}
	bad := filesystem()
	bad.GetMount().MountFlags = []string{canary, canary + "\x00"}

	create := request("v")
	create.Secrets, create.VolumeCapabilities = secrets, []*csi.VolumeCapability{hidden}
	made, err := r.CreateVolume(ctxOf(t), create)
	must(t, err)
	id, context := made.GetVolume().GetVolumeId(), made.GetVolume().GetVolumeContext()
	context["csi.storage.k8s.io/serviceAccount.tokens"], context[canary] = canary, canary

	requests := map[string]proto.Message{
		"ControllerPublishVolume": &csi.ControllerPublishVolumeRequest{
			VolumeId: id, NodeId: "node-1", VolumeCapability: hidden, VolumeContext: context, Secrets: secrets,
		},
		"ControllerExpandVolume": &csi.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 3 * gib}, VolumeCapability: hidden, Secrets: secrets,
		},
		"ValidateVolumeCapabilities": &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: id, VolumeContext: context, VolumeCapabilities: []*csi.VolumeCapability{hidden}, Secrets: secrets,
		},
		"CreateSnapshot":            &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id, Secrets: secrets},
		"ListSnapshots":             &csi.ListSnapshotsRequest{Secrets: secrets},
		"ControllerUnpublishVolume": &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "node-2", Secrets: secrets},
	}
	all := methods(t)
	for method, req := range requests {
		if err := drivertest.Call(t, r.conn, all[method], req); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	said := failWithSecrets(t, r, canary, bad)
	for what, text := range map[string]string{"log": r.log.String(), "metrics": r.metrics(t), "errors": strings.Join(said, "\n")} {
		if strings.Contains(text, canary) {
			t.Errorf("the canary is in the %s:\n%s", what, text)
		}
	}
	if !strings.Contains(r.log.String(), `"method":"CreateSnapshot"`) || len(said) < 20 {
		t.Errorf("the test does not see what it should: %d errors\n%s", len(said), r.log)
	}
}

// failWithSecrets makes calls that fail, with the canary in every possible place, and returns the texts of their errors.
func failWithSecrets(t *testing.T, r *rig, canary string, bad *csi.VolumeCapability) []string {
	t.Helper()
	var said []string
	note := func(err error) {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	for _, method := range methods(t) {
		for _, text := range []string{"", "x", "../x"} {
			req := drivertest.Message(t, method.Input())
			drivertest.Fill(req.ProtoReflect(), text, canary)
			note(drivertest.Call(t, r.conn, method, req))
		}
	}
	for _, change := range []func(*csi.CreateVolumeRequest){
		func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = []*csi.VolumeCapability{bad} },
		func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"unknown": canary} },
		func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"mkfsOptions": canary} },
		func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"formatNonZero": canary} },
		func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"tags": canary} },
		func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"unknown": canary} },
		func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"tags": canary} },
	} {
		req := request("fails")
		change(req)
		_, err := r.CreateVolume(ctxOf(t), req)
		note(err)
	}
	for _, key := range []string{"size", "content", "mkfs-options", "format-non-zero", "device-name"} {
		_, err := r.ControllerPublishVolume(ctxOf(t), &csi.ControllerPublishVolumeRequest{
			VolumeId: "v", NodeId: "n", VolumeCapability: filesystem(),
			VolumeContext: map[string]string{r.names.Driver + "/" + key: canary + "/"},
		})
		note(err)
	}
	return said
}
