//go:build e2e

package monitoring

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// promtool runs one of its commands in a folder.
func promtool(t *testing.T, dir string, stdin []byte, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("should")) {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// TestRules: promtool finds nothing wrong with the alerts, and with their real times they fire and clear as
// testdata/rules.yaml says: also those that need hours, or more than a test can plant in real programs.
func TestRules(t *testing.T) {
	dir := t.TempDir()
	cases, err := os.ReadFile(filepath.Join("testdata", "rules.yaml"))
	must(t, err)
	for name, text := range map[string]string{"rules.yaml": rules(t), "cases.yaml": string(cases)} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	promtool(t, dir, nil, "check", "rules", "--lint-fatal", "rules.yaml")
	promtool(t, dir, nil, "test", "rules", "cases.yaml")
}

// checkMetrics holds what a program shows to the conventions of Prometheus.
func checkMetrics(t *testing.T, address string) {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics") //nolint:noctx // a test
	must(t, err)
	defer func() { _ = res.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	promtool(t, ".", text.Bytes(), "check", "metrics")
}
