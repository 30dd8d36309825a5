package node_test

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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// emptyMachine has no disks, and counts how often it was asked for one.
type emptyMachine struct{ asked atomic.Int64 }

// none is the answer to each question.
func (m *emptyMachine) none() error {
	m.asked.Add(1)
	return fmt.Errorf("no disk: %w", fault.NotFound)
}

func (m *emptyMachine) Open(context.Context, device.Spec) (*device.Device, error) {
	return nil, m.none()
}
func (m *emptyMachine) Lookup(context.Context, device.Spec) (*device.Device, error) {
	return nil, m.none()
}
func (m *emptyMachine) Number(context.Context, device.Spec) (uint64, error) { return 0, m.none() }

func (m *emptyMachine) ByNumber(context.Context, string, uint64) (*device.Device, error) {
	return nil, m.none()
}

func (m *emptyMachine) Release(context.Context, device.Spec) error { m.asked.Add(1); return nil }

func (m *emptyMachine) Grow(context.Context, device.Spec, int64) (int64, error) {
	m.asked.Add(1)
	return 0, errors.New("nothing to grow")
}

// call is one RPC with its error; the answers do not matter here.
type call func(ctx context.Context, c csi.NodeClient) error

func callOf[Request, Answer any](method func(csi.NodeClient, context.Context, Request, ...grpc.CallOption) (Answer, error), r Request) call {
	return func(ctx context.Context, c csi.NodeClient) error {
		_, err := method(c, ctx, r)
		return err
	}
}

func stageCall(change func(*csi.NodeStageVolumeRequest)) call {
	r := &csi.NodeStageVolumeRequest{VolumeId: anyGoodID, VolumeCapability: mountCapability("ext4", oneNode)}
	change(r)
	return callOf(csi.NodeClient.NodeStageVolume, r)
}

func unstageCall(id, path string) call {
	return callOf(csi.NodeClient.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path})
}

func publishCall(change func(*csi.NodePublishVolumeRequest)) call {
	r := &csi.NodePublishVolumeRequest{VolumeId: anyGoodID, VolumeCapability: mountCapability("ext4", oneNode)}
	change(r)
	return callOf(csi.NodeClient.NodePublishVolume, r)
}

func unpublishCall(id, path string) call {
	return callOf(csi.NodeClient.NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path})
}

func statsCall(id, path, staging string) call {
	return callOf(csi.NodeClient.NodeGetVolumeStats, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path, StagingTargetPath: staging})
}

func expandCall(change func(*csi.NodeExpandVolumeRequest)) call {
	r := &csi.NodeExpandVolumeRequest{VolumeId: anyGoodID}
	change(r)
	return callOf(csi.NodeClient.NodeExpandVolume, r)
}

// TestWrongInputIsNamedAndTouchesNothing sends what is missing, over-long, hostile or impossible, and
// wants the specification's code, a message that names the field, and that no disk was looked for.
func TestWrongInputIsNamedAndTouchesNothing(t *testing.T) {
	dir := realDir(t)
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	file := filepath.Join(dir, "file")
	link := filepath.Join(dir, "link")
	must(t, os.Mkdir(staging, 0o700))
	must(t, os.WriteFile(file, []byte("x"), 0o600))
	must(t, os.Symlink(dir, link))

	stage := func(change func(*csi.NodeStageVolumeRequest)) call {
		return stageCall(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = staging; change(r) })
	}
	publish := func(change func(*csi.NodePublishVolumeRequest)) call {
		return publishCall(func(r *csi.NodePublishVolumeRequest) {
			r.StagingTargetPath, r.TargetPath = staging, target
			change(r)
		})
	}
	expand := func(change func(*csi.NodeExpandVolumeRequest)) call {
		return expandCall(func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = staging; change(r) })
	}
	type test struct {
		call  call
		code  codes.Code
		field string
	}
	tests := map[string]test{
		"stage without a capability":      {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nil }), codes.InvalidArgument, "volume_capability"},
		"stage without an access type":    {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessType = nil }), codes.InvalidArgument, "access_type"},
		"stage without an access mode":    {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessMode = nil }), codes.InvalidArgument, "access_mode"},
		"stage with a mode of the future": {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = mountCapability("", 99) }), codes.InvalidArgument, "access_mode"},
		"stage for several nodes":         {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = mountCapability("", manyNodes) }), codes.InvalidArgument, "access_mode"},
		"stage with another filesystem":   {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = mountCapability("ntfs", oneNode) }), codes.InvalidArgument, "fs_type"},
		"stage with too much context": {stage(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext = map[string]string{"k": strings.Repeat("x", 5000)}
		}), codes.InvalidArgument, "volume_context"},
		"stage with too much publish context": {stage(func(r *csi.NodeStageVolumeRequest) {
			r.PublishContext = map[string]string{"k": strings.Repeat("x", 5000)}
		}), codes.InvalidArgument, "publish_context"},
		"stage with a device name that is a path": {stage(func(r *csi.NodeStageVolumeRequest) {
			r.PublishContext = map[string]string{names.Driver + "/device-name": "../sda"}
		}), codes.InvalidArgument, "device-name"},
		"stage with a size that is no number": {stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{names.Driver + "/size": "1G"} }), codes.InvalidArgument, "size"},
		"stage with mkfs options naming a device": {stage(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext = map[string]string{names.Driver + "/mkfs-options": "-J device=/dev/sda"}
		}), codes.InvalidArgument, "mkfs-options"},
		"stage with encryption that is no answer": {stage(func(r *csi.NodeStageVolumeRequest) {
			r.VolumeContext = map[string]string{names.Driver + "/luks": "yes"}
		}), codes.InvalidArgument, "luks"},
		"stage at a path that does not exist":        {stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = staging + "-not" }), codes.InvalidArgument, "staging_target_path"},
		"stage at a file":                            {stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = file }), codes.InvalidArgument, "staging_target_path"},
		"publish without a capability":               {publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }), codes.InvalidArgument, "volume_capability"},
		"publish without a staging path":             {publish(func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "" }), codes.FailedPrecondition, "staging_target_path"},
		"publish below the staging path":             {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = staging + "/x" }), codes.InvalidArgument, "target_path"},
		"publish at the staging path":                {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = staging }), codes.InvalidArgument, "target_path"},
		"publish below a folder that does not exist": {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = dir + "/no/target" }), codes.InvalidArgument, "target_path"},
		"publish below a file":                       {publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = file + "/target" }), codes.InvalidArgument, "target_path"},
		"expand to less than nothing":                {expand(func(r *csi.NodeExpandVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: -1} }), codes.OutOfRange, "required_bytes"},
		"expand to a limit below nothing":            {expand(func(r *csi.NodeExpandVolumeRequest) { r.CapacityRange = &csi.CapacityRange{LimitBytes: -1} }), codes.OutOfRange, "limit_bytes"},
		"expand to more than the limit": {expand(func(r *csi.NodeExpandVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}
		}), codes.OutOfRange, "limit_bytes"},
		"expand with a capability without a type":  {expand(func(r *csi.NodeExpandVolumeRequest) { r.VolumeCapability = &csi.VolumeCapability{} }), codes.InvalidArgument, "volume_capability"},
		"stats with a relative staging path":       {statsCall(anyGoodID, staging, "staging"), codes.InvalidArgument, "staging_target_path"},
		"expand with a relative staging path":      {expand(func(r *csi.NodeExpandVolumeRequest) { r.StagingTargetPath = "staging" }), codes.InvalidArgument, "staging_target_path"},
		"publish with flags that hold a line feed": {publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = mountCapability("", oneNode, "ro\x00rw") }), codes.InvalidArgument, "mount_flags"},
	}
	for what, id := range hostileIDs() {
		tests["stage: id: "+what] = test{stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = id }), codes.InvalidArgument, "volume_id"}
		tests["publish: id: "+what] = test{publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeId = id }), codes.InvalidArgument, "volume_id"}
		tests["expand: id: "+what] = test{expand(func(r *csi.NodeExpandVolumeRequest) { r.VolumeId = id }), codes.InvalidArgument, "volume_id"}
		tests["unstage: id: "+what] = test{unstageCall(id, staging), codes.InvalidArgument, "volume_id"}
		tests["unpublish: id: "+what] = test{unpublishCall(id, target), codes.InvalidArgument, "volume_id"}
		tests["stats: id: "+what] = test{statsCall(id, target, ""), codes.InvalidArgument, "volume_id"}
	}
	for what, path := range map[string]string{
		"missing":              "",
		"relative":             "var/target",
		"leads upwards":        dir + "/a/../target",
		"ends upwards":         dir + "/a/..",
		"has a trailing slash": target + "/",
		"is not clean":         dir + "//target",
		"is the root":          "/",
		"through a symlink":    link + "/target",
		"is a symlink":         link,
		"is 10 kB":             "/" + strings.Repeat("x/", 5000) + "x",
	} {
		tests["stage: path "+what] = test{stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = path }), codes.InvalidArgument, "staging_target_path"}
		tests["unstage: path "+what] = test{unstageCall(anyGoodID, path), codes.InvalidArgument, "staging_target_path"}
		tests["publish: path "+what] = test{publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = path }), codes.InvalidArgument, "target_path"}
		tests["unpublish: path "+what] = test{unpublishCall(anyGoodID, path), codes.InvalidArgument, "target_path"}
		nowhere := codes.NotFound
		if path == "" {
			nowhere = codes.InvalidArgument
		}
		tests["stats: path "+what] = test{statsCall(anyGoodID, path, ""), nowhere, "volume_path"}
		tests["expand: path "+what] = test{expand(func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = path }), nowhere, "volume_path"}
		if path != "" {
			tests["publish: staging path "+what] = test{publish(func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = path }), codes.InvalidArgument, "staging_target_path"}
		}
	}
	machine := &emptyMachine{}
	client := serve(t, machine, mount.New(mount.Config{}))
	before := listing(t, dir)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.call(t.Context(), client)
			if got := status.Code(err); got != tc.code {
				t.Fatalf("the answer is %v, want %v", err, tc.code)
			}
			if message := status.Convert(err).Message(); !strings.Contains(message, tc.field) {
				t.Errorf("the message is %q, want it to name %s", message, tc.field)
			} else if len(message) > 1024 {
				t.Errorf("the message has %d bytes, want it short", len(message))
			}
			if n := machine.asked.Load(); n != 0 {
				t.Errorf("a disk was looked for %d times, want never", n)
			}
			if after := listing(t, dir); after != before {
				t.Errorf("the folder holds %q, want %q as before", after, before)
			}
		})
	}
}

// hostileIDs are some of those that CheckVolumeID refuses, whose own test has the others.
func hostileIDs() map[string]string {
	return map[string]string{
		"missing":         "",
		"leads upwards":   "../volumes/0123456789abcdef0123456789abcdef",
		"has a zero byte": "node-a/0123456789abcdef\x000123456789abcde",
		"is 10 kB":        strings.Repeat("a", 10000),
	}
}

// TestAMachineWithoutTheVolume: what is not there is said so, and what undoes nothing is OK.
func TestAMachineWithoutTheVolume(t *testing.T) {
	dir := realDir(t)
	staging := filepath.Join(dir, "staging")
	must(t, os.Mkdir(staging, 0o700))
	target := filepath.Join(dir, "target")
	tests := map[string]struct {
		call call
		code codes.Code
	}{
		"stage of a volume that is not there":    {stageCall(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = staging }), codes.NotFound},
		"publish of a volume that is not staged": {publishCall(func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath, r.TargetPath = staging, target }), codes.FailedPrecondition},
		"unpublish of what is not published":     {unpublishCall(anyGoodID, target), codes.OK},
		"unstage of what is not staged":          {unstageCall(anyGoodID, staging), codes.OK},
		"unstage from a path that is gone":       {unstageCall(anyGoodID, staging+"-gone"), codes.OK},
		"stats of what is not published":         {statsCall(anyGoodID, staging, ""), codes.NotFound},
		"expansion of what is not staged":        {expandCall(func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = staging }), codes.NotFound},
	}
	client := serve(t, &emptyMachine{}, mount.New(mount.Config{}))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				if err := tc.call(t.Context(), client); status.Code(err) != tc.code {
					t.Errorf("the answer is %v, want %v", err, tc.code)
				}
			}
		})
	}
	if got := listing(t, dir); got != "staging/" {
		t.Errorf("the folder holds %q, want the staging folder alone", got)
	}
}

// TestPathsOutsideTheKubeletsFolder: a client of the socket makes and removes nothing elsewhere.
func TestPathsOutsideTheKubeletsFolder(t *testing.T) {
	dir := realDir(t)
	kubelet, link, outside := filepath.Join(dir, "kubelet"), filepath.Join(dir, "link"), filepath.Join(dir, "canary")
	must(t, errors.Join(os.MkdirAll(filepath.Join(kubelet, "staging"), 0o700), os.Mkdir(filepath.Join(kubelet, "target"), 0o700),
		os.MkdirAll(filepath.Join(outside, "empty"), 0o700), os.WriteFile(filepath.Join(outside, "file"), nil, 0o600), os.Symlink(kubelet, link)))
	client := serve(t, &emptyMachine{}, mount.New(mount.Config{Dir: link}))
	for _, path := range []string{filepath.Join(outside, "empty"), filepath.Join(outside, "file"), kubelet + "-not/x", filepath.Join(kubelet, "target"), link} {
		tests := map[string]struct {
			call call
			code codes.Code
		}{
			"stage": {stageCall(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = path }), codes.InvalidArgument},
			"publish": {publishCall(func(r *csi.NodePublishVolumeRequest) {
				r.StagingTargetPath, r.TargetPath = filepath.Join(link, "staging"), path
			}), codes.InvalidArgument},
			"publish from there": {publishCall(func(r *csi.NodePublishVolumeRequest) {
				r.StagingTargetPath, r.TargetPath = path, filepath.Join(link, "target")
			}), codes.InvalidArgument},
			"unpublish": {unpublishCall(anyGoodID, path), codes.InvalidArgument},
			"unstage":   {unstageCall(anyGoodID, path), codes.InvalidArgument},
			"stats":     {statsCall(anyGoodID, path, ""), codes.NotFound},
			"expand":    {expandCall(func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = path }), codes.NotFound},
		}
		for name, tc := range tests {
			if err := tc.call(t.Context(), client); status.Code(err) != tc.code {
				t.Errorf("%s at %s = %v, want %v", name, path, err, tc.code)
			}
		}
	}
	expect.Kind(t, "unpublish below the link", unpublishCall(anyGoodID, filepath.Join(link, "target"))(t.Context(), client), fault.None)
	if got := listing(t, dir); got != "canary/ canary/empty/ canary/file kubelet/ kubelet/staging/ link" {
		t.Errorf("the folder holds %q, want all but the target", got)
	}
}

// realDir returns a temporary folder without a symbolic link on the way.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

// listing names everything below a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != dir {
			name := strings.TrimPrefix(path, dir+"/")
			if d.IsDir() {
				name += "/"
			}
			all = append(all, name)
		}
		return err
	}))
	return strings.Join(all, " ")
}
