//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExitCodesOfCheck: Kubernetes and scripts see the exit code only.
func TestExitCodesOfCheck(t *testing.T) {
	intact, blank := filepath.Join(t.TempDir(), "intact"), filepath.Join(t.TempDir(), "blank")
	for _, image := range []string{intact, blank} {
		noError(t, os.WriteFile(image, nil, 0o600))
		noError(t, os.Truncate(image, 32*mib))
	}
	command(t, "mkfs.ext4", "-q", "-F", intact)
	for name, tc := range map[string]struct {
		args   []string
		code   int
		result string
	}{
		"an intact volume":           {[]string{intact}, 0, "result intact"},
		"a damaged one":              {[]string{blank}, 1, "result damaged"},
		"one that cannot be checked": {[]string{filepath.Join(t.TempDir(), "none")}, 2, "result unchecked"},
		"a wrong command line":       {[]string{intact, "--repair"}, 2, "-repair"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(binaries(t), "cloudblock-node"), append([]string{"check"}, tc.args...)...)
			out, _ := cmd.CombinedOutput() // the exit code is compared
			if got := cmd.ProcessState.ExitCode(); got != tc.code || !strings.Contains(strings.Join(strings.Fields(string(out)), " "), tc.result) {
				t.Errorf("check %q exits with %d, want %d and %q:\n%s", tc.args, got, tc.code, tc.result, out)
			}
		})
	}
}
