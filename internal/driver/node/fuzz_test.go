package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// C6: no request of any call makes a handler panic or end without a reason, and none changes anything outside of the
// kubelet's folder: neither by a path that leads there nor by a link.
func FuzzCalls(f *testing.F) {
	dir, err := filepath.EvalSymlinks(f.TempDir())
	must(f, err)
	kubelet, outside := filepath.Join(dir, "kubelet"), filepath.Join(dir, "outside")
	for _, path := range []string{filepath.Join(outside, "empty"), filepath.Join(kubelet, "staging"), filepath.Join(kubelet, "pod")} {
		must(f, os.MkdirAll(path, 0o700))
	}
	must(f, os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
	must(f, os.Symlink(outside, filepath.Join(kubelet, "link")))
	var log drivertest.Log
	logger, err := driver.NewLogger("debug", "json", &log)
	must(f, err)
	conn := connect(f, node.Config{Devices: &emptyMachine{}, Mounter: mount.New(mount.Config{Dir: kubelet})}, driver.Config{Log: logger})
	before := drivertest.Tree(f, outside)
	texts := []string{
		"x", "ext4", anyGoodID, "../x", "\x01", strings.Repeat("long", 500),
		filepath.Join(kubelet, "staging"), filepath.Join(kubelet, "pod"), filepath.Join(kubelet, "pod", "mount"),
		filepath.Join(outside, "empty"), filepath.Join(outside, "file"), filepath.Join(kubelet, "link", "empty"),
		filepath.Join(kubelet, "link", "file"), kubelet + "/../outside/empty", filepath.Join(kubelet, "link"), dir, "/",
	}
	drivertest.FuzzCalls(f, "csi.v1.Node", conn, texts, func(t *testing.T, call string) {
		if text := log.Take(); strings.Contains(text, `"panic"`) {
			t.Fatalf("%s: a handler panicked:\n%s", call, text)
		}
		if after := drivertest.Tree(t, outside); after != before {
			t.Fatalf("%s changed something outside:\n%s\nbefore:\n%s", call, after, before)
		}
	})
}
