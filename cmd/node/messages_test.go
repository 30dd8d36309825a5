package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

func TestAnUnknownCommandIsNamed(t *testing.T) {
	whole := func(args []string) error { return run(t.Context(), args, nil, &bytes.Buffer{}, &bytes.Buffer{}) }
	drivertest.WantRefused(t, whole, map[string]drivertest.CommandLine{
		"a word that is no sub-command": {{"help"}, {`"help": unknown command; known are check, doctor`}},
		"the controller's":              {{"volumes", "--cloud=local"}, {`"volumes": unknown command`}},
	})
}

func TestAMissingSocketFolderIsNamed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{drivertest.Local(), {"--cloud=linode", "--node-id=1", "--zone=us-ord", "--max-volumes=3"}} {
		err := run(t.Context(), append(args, "--endpoint=unix://"+folder+"/x.sock"), fakePath(t, everyTool()...), &bytes.Buffer{}, &bytes.Buffer{})
		if want := "--endpoint: the folder " + folder + " does not exist"; err == nil || !strings.HasPrefix(err.Error(), want) || errors.Is(err, driver.ErrCommandLine) {
			t.Errorf("run(%q) = %v, want %s", args, err, want)
		}
	}
}

// TestAMissingKubeletFolderIsAWarning: if the kubelet is elsewhere, each call is refused, and doctor reports why.
func TestAMissingKubeletFolderIsAWarning(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kubelet")
	for folder, want := range map[string]bool{missing: true, t.TempDir(): false} {
		_, log, stop := start(t, fakePath(t, everyTool()...), "--kubelet-dir="+folder)
		expect.Kind(t, "run", stop(), fault.None)
		if got := strings.Contains(log.String(), "--kubelet-dir"); got != want {
			t.Errorf("a word about --kubelet-dir=%s: %t, want %t:\n%s", folder, got, want, log.String())
		}
	}
}

// TestItSaysWhomItAsks: a program that waits for the metadata service logs that.
func TestItSaysWhomItAsks(t *testing.T) {
	var log drivertest.Log
	ctx, cancel := log.Until(t.Context(), "asking the metadata service")
	defer cancel()
	args := []string{"--cloud=yandex", "--metadata-endpoint=http://127.0.0.1:1", "--endpoint=" + drivertest.Endpoint(t)}
	expect.Kind(t, "run that was stopped", run(ctx, args, fakePath(t, everyTool()...), &bytes.Buffer{}, &log), fault.None)
	if got := log.String(); !strings.Contains(got, "asking the metadata service") || !strings.Contains(got, `"at":"http://127.0.0.1:1"`) {
		t.Errorf("the log does not say whom it asks:\n%s", got)
	}
}
