package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// TestWrongCommandsSayWhatIsWrong: each mistake is reported once, on its own line, and nothing else.
func TestWrongCommandsSayWhatIsWrong(t *testing.T) {
	whole := func(args []string) error {
		return run(t.Context(), args, noEnvironment, &bytes.Buffer{}, &bytes.Buffer{})
	}
	linode := []string{"--cloud=linode", "--cluster-id=a", "--credentials-file=/nonexistent"}
	drivertest.WantRefused(t, whole, map[string]drivertest.CommandLine{
		"volumes of no cloud":             {{"volumes"}, {"--cloud: required: " + strings.Join(profile.Names(), ", ")}},
		"volumes of a cloud not known":    {{"volumes", "--cloud", "digitalocaen"}, {`--cloud "digitalocaen": known are digitalocean, `}},
		"the last cloud counts":           {{"volumes", "--cloud=linode", "--cloud=local", "--output=json"}, {"--local-pool: required"}},
		"a list of claims without a name": {{"volumes", "--cloud=local", "--local-pool=/p", "--claimed="}, {"--claimed: it needs a file"}},
		"an id that is none":              {{"volumes", "--cloud=local", "--local-pool=/p", "--delete=n1/0123"}, {"--delete: volume id \"n1/0123\" is not <node>/<pool>/"}},
		"a duration without a unit":       {append(linode, "--operation-timeout=5"), {`--operation-timeout "5": not a duration, such as 90s`}},
		"a flag that is none":             {append(linode, "--foo=1"), {"--foo: unknown flag"}},
		"a switch that is no switch":      {append(linode, "--version=maybe"), {`--version "maybe": `}},
		"a word that is no sub-command":   {{"help"}, {`"help": unknown command; known are doctor, relocate, volumes`}},
		"a misspelled sub-command":        {{"doctro", "--cloud=local"}, {`"doctro": unknown command`}},
	})
	if err := whole([]string{"--cloud=mars"}); err == nil || !strings.Contains(err.Error(), "--help") || strings.Count(err.Error(), "wrong command line") != 1 {
		t.Errorf("run = %v, want a word about --help, once", err)
	}
}

// TestAMissingSocketFolderIsNamed: the error has the folder, and no pool is created.
func TestAMissingSocketFolderIsNamed(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for folder, want := range map[string]string{"none": "/none does not exist", "file": "/file: not a directory"} {
		args := []string{"--cloud=local", "--local-pool=" + filepath.Join(dir, "pool"), "--node-id=a", "--endpoint=unix://" + filepath.Join(dir, folder, "x.sock")}
		err := run(t.Context(), args, noEnvironment, &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || errors.Is(err, driver.ErrCommandLine) || !strings.HasPrefix(err.Error(), "--endpoint: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("run with a socket in %s = %v, want --endpoint: ... %s", folder, err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "pool")); err == nil {
			t.Errorf("the pool was made for a socket in %s", folder)
		}
	}
}

// TestItSaysWhomItAsks: a program that waits for the metadata service logs that.
func TestItSaysWhomItAsks(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"the region": {nil, "asking the metadata service for the region"},
		"the folder": {[]string{"--region=ru-central1-a"}, "asking the metadata service for the folder"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var log drivertest.Log
			ctx, cancel := log.Until(t.Context(), tc.want)
			defer cancel()
			args := append([]string{"--cloud=yandex", "--cluster-id=a", "--metadata-endpoint=http://127.0.0.1:1", "--endpoint=" + drivertest.Endpoint(t)}, tc.args...)
			if err := run(ctx, args, noEnvironment, &bytes.Buffer{}, &log); err == nil {
				t.Error("run without a metadata service = nil")
			}
			if got := log.String(); !strings.Contains(got, tc.want) || !strings.Contains(got, `"at":"http://127.0.0.1:1"`) {
				t.Errorf("the log has no %q:\n%s", tc.want, got)
			}
		})
	}
}
