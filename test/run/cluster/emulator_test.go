package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// The changes name containers and the emulator's ports, so an overlay that has changed is noticed here and not when a
// cluster does not come up.
func TestTheOverlayIsLedToTheEmulator(t *testing.T) {
	l := layout{cache: t.TempDir(), project: "../../.."}
	must(t, os.MkdirAll(l.run(emulatorName), 0o755))
	must(t, os.WriteFile(l.run(emulatorName, "ca.pem"), []byte("a certificate\n"), 0o600))
	for cloud := range emulatedClouds {
		folder, err := writeEmulated(l, cloud)
		must(t, err)
		text := renderFolder(t, l, folder)
		for _, want := range []string{
			"API_ENDPOINT: https://" + hostPort(emulatorTLSPort), "DEVICE_DIR: /" + linksFolder, "mountPath: /" + linksFolder, "path: /" + linksFolder, "a certificate",
			"kind: Secret", "kind: CSIDriver",
		} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: %d times %q in the rendered manifests, want once", cloud, strings.Count(text, want), want)
			}
		}
		if len(imagesNamed(text)) == 0 {
			t.Errorf("%s: no images", cloud)
		}
		if got := strings.Count(text, "kind: VolumeSnapshotClass"); got == 1 != emulatedClouds[cloud].Snapshots {
			t.Errorf("%s: %d classes of snapshots", cloud, got)
		}
	}
}

func TestTheOverlayOfNodesHasSnapshots(t *testing.T) {
	l := layout{cache: t.TempDir(), project: "../../.."}
	folder, err := writeLocal(l, "local")
	must(t, err)
	text := renderFolder(t, l, folder)
	for _, want := range []string{"kind: VolumeSnapshotClass\n", "name: csi-snapshotter\n", "name: cloudblock-local-restores\nspec:\n  fail"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%d times %q in the rendered manifests, want once", strings.Count(text, want), want)
		}
	}
}

func renderFolder(t *testing.T, l layout, folder string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "kustomize", "build", folder)
	cmd.Dir = l.source("test/check/manifests") // whose go.mod pins it
	text, err := output(cmd)
	must(t, err)
	return text
}

func TestTheEmulatorEnds(t *testing.T) {
	l := layout{cache: t.TempDir()}
	d, err := launch(l, "host", "program", exec.Command("sleep", "600"))
	must(t, err)
	started, err := startTime(d.pid)
	must(t, err)
	p := &process{ID: d.pid, Started: started}
	for _, state := range []string{"that runs", "that has ended"} {
		if err := endEmulator(t.Context(), p); err != nil || p.alive() {
			t.Errorf("endEmulator of one %s = %v, alive: %v", state, err, p.alive())
		}
		<-d.ended
	}
	if err := endEmulator(t.Context(), nil); err != nil {
		t.Errorf("endEmulator of a cluster that has none = %v", err)
	}
	other := &process{ID: os.Getpid(), Started: "at another time"}
	if err := endEmulator(t.Context(), other); err != nil {
		t.Errorf("endEmulator of a process id that is used again = %v", err)
	}
}
