package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// A credentials file that becomes unusable is logged once for each change, and shown by the metric as long as it is: the program
// continues with credentials that may have been revoked with the file.
func TestCredentialsThatCannotBeReadAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first-canary")
	cfg, err := parse([]string{"--cloud=linode", "--cluster-id=prod", "--credentials-file=" + path}, noEnvironment, &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	var text drivertest.Log
	log, err := driver.NewLogger("debug", "json", &text)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if err := cfg.file.watch(surroundings{log: log, registry: registry}, newAccount(cfg, log)); err != nil {
		t.Fatal(err)
	}
	const series, lost, back = "cloudblock_credentials_unreadable", "cannot be used", "can be used again"
	for _, step := range []struct {
		name               string
		change             func()
		token              string
		value              float64
		warnings, comeback int
	}{
		{"as it was at the start", func() {}, "first-canary", 0, 0, 0},
		{"what it holds is no token", func() { write("second canary") }, "first-canary", 1, 1, 0},
		{"the file is gone", func() { _ = os.Remove(path) }, "first-canary", 1, 1, 0},
		{"a new token", func() { write("third-canary") }, "third-canary", 0, 1, 1},
		{"it is empty", func() { write("") }, "third-canary", 1, 2, 1},
	} {
		step.change()
		for range 3 {
			if got, err := cfg.token(); err != nil || got != step.token {
				t.Errorf("%s: the token is %q, %v, want %q", step.name, got, err, step.token)
			}
		}
		metrics.Of(t, registry).Want(t, metrics.Samples{series: step.value})
		if w, b := strings.Count(text.String(), lost), strings.Count(text.String(), back); w != step.warnings || b != step.comeback {
			t.Errorf("%s: %d warnings and %d returns are logged, want %d and %d:\n%s", step.name, w, b, step.warnings, step.comeback, &text)
		}
	}
	if !strings.Contains(text.String(), path) || strings.Contains(text.String(), "canary") {
		t.Errorf("the log does not name the file, or repeats what it holds:\n%s", &text)
	}
}
