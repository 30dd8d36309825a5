//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
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

// hostileIDs are ids that a careless program turns into another volume's path or request.
func hostileIDs(real string) map[string]string {
	_, file, _ := strings.Cut(real, "/")
	return map[string]string{
		"climbs":              "../volumes/" + file,
		"climbs from a node":  "node-a/../volumes/" + file,
		"has a query":         real + "?force=1",
		"has a fragment":      real + "#x",
		"has an extension":    real + ".img",
		"has a space":         real + " ",
		"has a newline":       real + "\n",
		"has a zero byte":     real + "\x00",
		"is upper case":       strings.ToUpper(real),
		"is unicode":          "node-a/" + strings.Repeat("é", 16),
		"has no node":         file,
		"is only a slash":     "/",
		"is absolute":         "/etc/passwd",
		"is the pool's lock":  "node-a/../lock",
		"is 10 kB":            "node-a/" + strings.Repeat("a", 10_000),
		"is of another pool":  strings.Replace(real, "/default/", "/other/", 1),
		"is of another node":  "node-b/" + file,
		"is of another file":  "node-a/default/" + strings.Repeat("0", 32),
		"is empty":            "",
		"turns right to left": "node-a/\u202e" + file,
	}
}

// TestHostileIDs: whatever stands in an id, no RPC of either program changes anything, and deleting
// never claims that another node's volume is gone.
func TestHostileIDs(t *testing.T) {
	t.Parallel()
	pair := start(t, programs.Options{})
	v := create(t, pair, programs.Claim{Name: "victim", Filesystem: "ext4", Size: 64 * mib})
	must(t, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	before := everything(t, pair)
	for what, id := range hostileIDs(v.ID) {
		for rpc, call := range callsByID(pair, v) {
			t.Run(rpc+" with an id that "+what, func(t *testing.T) {
				err := call(t.Context(), id)
				wantRefusal(t, rpc, what, err)
				if after := everything(t, pair); after != before {
					t.Errorf("%s changed something:\nbefore:\n%s\nafter:\n%s", rpc, before, after)
				}
			})
		}
	}
	wantBytes(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage, v.Delete)
}

// callsByID are the calls that every cloud has and that name a volume by its id, with paths of v, which
// is published.
func callsByID(pair *programs.Pair, v *programs.Volume) map[string]func(ctx context.Context, id string) error {
	controller, node := csi.NewControllerClient(pair.Controller.Conn), csi.NewNodeClient(pair.Node.Conn)
	free := filepath.Join(filepath.Dir(v.Target), "free")
	capability := v.Capability()
	return map[string]func(ctx context.Context, id string) error{
		"DeleteVolume": func(ctx context.Context, id string) error {
			return second(controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}))
		},
		"ValidateVolumeCapabilities": func(ctx context.Context, id string) error {
			return second(controller.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{capability},
			}))
		},
		"NodeStageVolume": func(ctx context.Context, id string) error {
			return second(node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
				VolumeId: id, StagingTargetPath: filepath.Dir(v.Target), VolumeCapability: capability, VolumeContext: v.Context, PublishContext: v.Published,
			}))
		},
		"NodePublishVolume": func(ctx context.Context, id string) error {
			return second(node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
				VolumeId: id, StagingTargetPath: v.Staging, TargetPath: free, VolumeCapability: capability, VolumeContext: v.Context, PublishContext: v.Published,
			}))
		},
		"NodeUnpublishVolume": func(ctx context.Context, id string) error {
			return second(node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: v.Target}))
		},
		"NodeUnstageVolume": func(ctx context.Context, id string) error {
			return second(node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: v.Staging}))
		},
		"NodeExpandVolume": func(ctx context.Context, id string) error {
			return second(node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
				VolumeId: id, VolumePath: v.Target, CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
			}))
		},
		"NodeGetVolumeStats": func(ctx context.Context, id string) error {
			return second(node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: v.Target}))
		},
	}
}

// harmless ids are plain words that no volume has. CSI wants DeleteVolume to take them for volumes that
// are gone already, and csi-sanity checks it.
var harmless = []string{"has an extension", "is upper case", "has no node", "is of another file"}

// wantRefusal accepts the codes that say "there is no such volume".
func wantRefusal(t *testing.T, rpc, what string, err error) {
	t.Helper()
	switch code := status.Code(err); {
	case code == codes.InvalidArgument, code == codes.NotFound:
	case rpc == "DeleteVolume" && slices.Contains(harmless, what) && code == codes.OK:
	case strings.HasPrefix(what, "is of another") && code == codes.FailedPrecondition:
	default:
		t.Errorf("%s = %v, want InvalidArgument or NotFound", rpc, err)
	}
	if len(fmt.Sprint(err)) > 2000 {
		t.Errorf("the message has %d bytes; nobody can read that", len(fmt.Sprint(err)))
	}
}

// everything describes the pool's files, the mounts and the loop devices of a pair.
func everything(t *testing.T, pair *programs.Pair) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(pair.Pool(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintln(path, info.Mode(), info.Size()))
		return nil
	})
	noError(t, err)
	// Other tests mount and unmount at the same time; only what belongs to this pair counts.
	return strings.Join(slices.Concat(lines, mountsOf(t, pair.Dir(), ""), loops.Below(pair.Pool())), "")
}
