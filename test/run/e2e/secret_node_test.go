//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// nodeCanary is in each secret that the node program gets, the passphrase of an encrypted volume among them.
const nodeCanary = "canary-of-the-node-c3"

// watched are the programs that the node program runs.
var watched = []string{"mkfs.ext4", "mkfs.xfs", "e2fsck", "blkid", "mount", "umount", "xfs_growfs", "cryptsetup", "dmsetup"}

// watching returns a PATH with wrappers that record the arguments and the environment of each program in a file.
func watching(t *testing.T, dir, record string) string {
	t.Helper()
	wrappers := filepath.Join(dir, "wrappers")
	noError(t, os.Mkdir(wrappers, 0o700))
	for _, name := range watched {
		real, err := exec.LookPath(name)
		if err != nil {
			continue // where it is not installed it is not run
		}
		script := fmt.Sprintf("#!/bin/sh\n{ echo \"ran %s $*\"; env; } >>%s\nexec %s \"$@\"\n", name, record, real)
		noError(t, os.WriteFile(filepath.Join(wrappers, name), []byte(script), 0o700))
	}
	return wrappers + ":" + os.Getenv("PATH")
}

// Every secret that the node program gets (failure P3 of the catalogue): at the highest verbosity, through a volume's life
// and through calls that fail, the log, the errors, the metrics, its command line and environment, and those of the programs
// that it runs have none of them, and no file has.
func TestTheNodeProgramShowsNoSecret(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	noError(t, os.MkdirAll(dir, 0o700))
	record, address := filepath.Join(dir, "ran"), drivertest.FreeAddress(t)
	disk := hostDisk(t, folder(t), "xfs", 4*gib) // elsewhere: all files in dir are read
	pair := start(t, programs.Options{
		Dir: dir, NodePath: watching(t, dir, record), Cloud: servingPool{disk, address},
	})
	// A mounted xfs grows without a capability.
	plain := create(t, pair, programs.Claim{Name: "plain", Filesystem: "xfs", Size: gib / 2})
	encrypted := create(t, pair, programs.Claim{Name: "encrypted", Filesystem: "ext4", Size: gib / 4, Parameters: map[string]string{"luks": "true"}})
	var said []string
	note := func(err error) { said = append(said, fmt.Sprint(err)) }
	secrets := map[string]string{"passphrase": nodeCanary, "token": nodeCanary}
	for _, v := range []*programs.Volume{plain, encrypted} {
		for _, err := range serveWith(t, pair, v, secrets) {
			if note(err); v == plain && err != nil {
				t.Errorf("the volume is not served: %v", err)
			}
		}
		must(t, v.Unpublish, v.Unstage, v.Delete)
	}
	for _, method := range drivertest.Methods(t, "csi.v1.Node") {
		for _, text := range []string{"", "x", "../x"} {
			req := drivertest.Message(t, method.Input())
			drivertest.Fill(req.ProtoReflect(), text, nodeCanary)
			note(drivertest.Call(t, pair.Node.Conn, method, req))
		}
	}
	seen := map[string]string{"the errors": strings.Join(said, "\n")}
	_, seen["/metrics"] = drivertest.Page(t, "http://"+address+"/metrics")
	whatIsKnownOf(t, seen, pair.Node)
	ran, err := os.ReadFile(record)
	if err != nil || !strings.Contains(string(ran), "ran mkfs.xfs ") || !strings.Contains(string(ran), "PATH=") {
		t.Errorf("the programs that were run are recorded as %q, %v", ran, err)
	}
	seen["what was run"] = string(ran)
	for where, text := range seen {
		if strings.Contains(text, nodeCanary) {
			t.Errorf("the canary is in %s:\n%s", where, text)
		}
	}
	if found := append(drivertest.FilesWith(t, dir, nodeCanary), drivertest.FilesWith(t, disk, nodeCanary)...); len(found) > 0 {
		t.Errorf("the canary is in the files %v", found)
	}
}

// serveWith stages, publishes and grows a volume with secrets in each call.
func serveWith(t *testing.T, pair *programs.Pair, v *programs.Volume, secrets map[string]string) (ends [3]error) {
	t.Helper()
	for _, path := range []string{v.Staging, filepath.Dir(v.Target)} {
		noError(t, os.MkdirAll(path, 0o700))
	}
	node := csi.NewNodeClient(pair.Node.Conn)
	_, ends[0] = node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.ID, StagingTargetPath: v.Staging, VolumeCapability: v.Capability(), VolumeContext: v.Context, Secrets: secrets,
	})
	_, ends[1] = node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.ID, StagingTargetPath: v.Staging, TargetPath: v.Target, VolumeCapability: v.Capability(), VolumeContext: v.Context, Secrets: secrets,
	})
	_, ends[2] = node.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: v.ID, VolumePath: v.Target, StagingTargetPath: v.Staging, VolumeCapability: v.Capability(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, Secrets: secrets,
	})
	return ends
}

// servingPool is `local` with a node program that serves its metrics.
type servingPool struct{ dir, address string }

func (servingPool) Name() string { return "local" }

func (p servingPool) Controller(string) ([]string, error) {
	return []string{"--local-pool=" + p.dir, "--node-id=node-a"}, nil
}

func (p servingPool) Machine(dir string) ([]string, error) {
	flags, err := p.Controller(dir)
	return append(flags, "--http-endpoint="+p.address), err
}
