//go:build e2e

package e2e

import (
	"context"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// hostileCloudIDs are ids that a careless program puts into a URL, where they become another request.
func hostileCloudIDs(real string) map[string]string {
	return map[string]string{
		"climbs":                 "../volumes/" + real,
		"climbs back to itself":  real + "/../" + real,
		"climbs in disguise":     "%2e%2e%2fvolumes%2f" + real,
		"names what is below":    real + "/actions",
		"names another kind":     "snapshots/" + real,
		"has a query":            real + "?force=1",
		"has a fragment":         real + "#x",
		"has an extension":       real + ".img",
		"has a space":            real + " ",
		"has a newline":          real + "\n",
		"has a zero byte":        real + "\x00",
		"is unicode":             strings.Repeat("é", 16),
		"is only a slash":        "/",
		"is a slash and more":    "/" + real,
		"is a URL":               "http://127.0.0.1:1/" + real,
		"is 10 kB":               strings.Repeat("a", 10_000),
		"is a number below zero": "-1",
		"is empty":               "",
		"turns right to left":    "\u202e" + real,
	}
}

// gone are the calls whose answer for what does not exist is success, as CSI wants it.
var gone = []string{"DeleteVolume", "DeleteSnapshot", "ControllerUnpublishVolume"}

// TestHostileIDsReachNoCloud: an id that the cloud cannot have made is refused before any request leaves,
// in whichever call and for whatever it names, and changes nothing on the machine.
func TestHostileIDsReachNoCloud(t *testing.T) {
	t.Parallel()
	for _, where := range clouds {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			w := where.start(t)
			v := create(t, w.Pair, programs.Claim{Name: "victim", Filesystem: "ext4", Size: where.size})
			must(t, v.Attach, v.Stage, v.Publish)
			write(t, data(v), 1, 8*mib)
			ids := hostileCloudIDs(v.ID)
			maps.Copy(ids, where.ids(v.ID))
			calls := callsByID(w.Pair, v)
			maps.Copy(calls, cloudCallsByID(w.Pair, v))
			for what, id := range ids {
				for rpc, call := range calls {
					t.Run(rpc+" with an id that "+what, func(t *testing.T) { w.wantNothingOf(t, rpc, func() error { return call(t.Context(), id) }) })
				}
			}
			wantBytes(t, data(v), 1, 8*mib)
			must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete)
			w.wantNothingLeft(t)
		})
	}
}

// wantNothingOf checks that a call with a hostile id is refused and does nothing.
func (w world) wantNothingOf(t *testing.T, rpc string, call func() error) {
	t.Helper()
	before := onMachine(t, w.Pair)
	w.account.ResetStats()
	err := call()
	for _, sent := range w.account.Exchanges() {
		// A refused create may be the repeat of one that had worked, which is looked for by its name.
		search := sent.Method == http.MethodGet && sent.Route == "/v2/snapshots" || sent.Route == "SnapshotService/List"
		if rpc != "CreateSnapshot" || !search {
			t.Errorf("a request reached the cloud: %+v", sent)
		}
	}
	switch code := status.Code(err); {
	case code == codes.InvalidArgument, code == codes.NotFound, code == codes.FailedPrecondition && strings.HasPrefix(rpc, "Node"):
	case code == codes.OK && slices.Contains(gone, rpc):
	default:
		t.Errorf("%s = %v, want InvalidArgument or NotFound", rpc, err)
	}
	if after := onMachine(t, w.Pair); after != before {
		t.Errorf("%s changed something:\nbefore:\n%s\nafter:\n%s", rpc, before, after)
	}
}

// cloudCallsByID are the calls with an id that a cloud has beyond callsByID.
func cloudCallsByID(pair *programs.Pair, v *programs.Volume) map[string]func(ctx context.Context, id string) error {
	controller := csi.NewControllerClient(pair.Controller.Conn)
	larger := &csi.CapacityRange{RequiredBytes: 2 * v.Size}
	calls := map[string]func(ctx context.Context, id string) error{
		"ControllerPublishVolume": func(ctx context.Context, id string) error {
			return second(controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: id, NodeId: pair.NodeID(), VolumeCapability: v.Capability(), VolumeContext: v.Context,
			}))
		},
		"ControllerPublishVolume to a node": func(ctx context.Context, id string) error {
			return second(controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: v.ID, NodeId: id + "!", VolumeCapability: v.Capability(), VolumeContext: v.Context,
			}))
		},
		"ControllerUnpublishVolume": func(ctx context.Context, id string) error {
			return second(controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: pair.NodeID()}))
		},
		"ControllerExpandVolume": func(ctx context.Context, id string) error {
			return second(controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: larger}))
		},
	}
	if pair.Snapshots() {
		calls["CreateSnapshot"] = func(ctx context.Context, id string) error {
			return second(controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "hostile", SourceVolumeId: id}))
		}
		calls["DeleteSnapshot"] = func(ctx context.Context, id string) error {
			return second(controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id}))
		}
	}
	return calls
}

// onMachine describes the mounts and loop devices of a pair.
func onMachine(t *testing.T, pair *programs.Pair) string {
	t.Helper()
	return strings.Join(append(mountsOf(t, pair.Dir(), inKubelet), loops.Below(pair.Dir())...), "\n")
}

// hostileContexts are what an attach could be said to have told, with a device of this machine and a
// victim's.
func hostileContexts(key, device, victim, up string) map[string]map[string]string {
	return map[string]map[string]string{
		"climbs to a device":        {key + "device-name": up + strings.TrimPrefix(device, "/")},
		"climbs in the middle":      {key + "device-name": "x/../" + victim},
		"is an absolute path":       {key + "device-name": device},
		"is the folder itself":      {key + "device-name": "."},
		"is the folder above":       {key + "device-name": ".."},
		"has a serial that climbs":  {key + "serial": "../../victim"},
		"has a size that is none":   {key + "size": "-1"},
		"is another volume's":       {key + "device-name": victim, key + "serial": "victim"},
		"has another's device only": {key + "device-name": victim},
	}
}

// F4: what an attach is said to have told cannot lead the node program to a device outside its folder, nor to another
// volume's.
func TestHostilePublishContexts(t *testing.T) {
	t.Parallel()
	for _, where := range clouds {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			w := where.start(t)
			victim := create(t, w.Pair, programs.Claim{Name: "victim", Filesystem: "ext4", Size: where.size})
			must(t, victim.Attach, victim.Stage, victim.Publish)
			write(t, data(victim), 1, 8*mib)
			key := where.driver() + "/"
			up := strings.Repeat("../", strings.Count(w.Dir(), "/")+2)
			// A volume of its own id, created as blank: the one kind that may be formatted.
			id := strings.Repeat("9", min(8, len(victim.ID)-1)) + victim.ID[min(8, len(victim.ID)-1):]
			link, err := filepath.Glob(filepath.Join(w.Dir(), "by-id", where.device+"*"))
			if err != nil || len(link) != 1 {
				t.Fatalf("the links are %v (%v), want the victim's", link, err)
			}
			for what, published := range hostileContexts(key, loops.Below(w.Dir())[0], filepath.Base(link[0]), up) {
				for _, kind := range []string{"ext4", ""} {
					t.Run(kindName(kind)+" with a context that "+what, func(t *testing.T) {
						w.wantNothingOf(t, "NodeStageVolume", func() error {
							return second(csi.NewNodeClient(w.Node.Conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
								VolumeId: id, StagingTargetPath: filepath.Join(w.Dir(), "kubelet", "staging"), VolumeCapability: programs.Claim{Filesystem: kind}.Capability(),
								VolumeContext: map[string]string{key + "content": "blank"}, PublishContext: published,
							}))
						})
					})
				}
			}
			wantBytes(t, data(victim), 1, 8*mib)
			must(t, victim.Unpublish, victim.Unstage, victim.Detach, victim.Delete)
			w.wantNothingLeft(t)
		})
	}
}
