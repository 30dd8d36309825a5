package cloudtest_test

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
)

// mutantEnv has the name of the mutant for the child process.
const mutantEnv = "CLOUDTEST_MUTANT"

func allMutants() map[string]mutation {
	all := maps.Clone(mutants)
	maps.Copy(all, snapshotMutants)
	return all
}

// TestTheSuiteFindsEveryMutant proves that the suite can fail: it runs the suite on backends that each break one sentence, in a
// separate process because a failed subtest fails the whole test.
func TestTheSuiteFindsEveryMutant(t *testing.T) {
	if os.Getenv(mutantEnv) != "" {
		t.Fatal("a mutant was asked for, but not by -test.run=TestMutant")
	}
	for name, m := range allMutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutant$", "-test.v", "-test.timeout=60s")
			child.Env = append(os.Environ(), mutantEnv+"="+name)
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed")
			}
			failed := regexp.MustCompile(`(?m)^ *--- FAIL: (.*) \(`).FindAllStringSubmatch(string(out), -1)
			for _, line := range failed {
				if strings.Contains(line[1], strings.ReplaceAll(m.caught, " ", "_")) {
					return
				}
			}
			t.Errorf("no subtest %q failed, but\n%s", m.caught, out)
		})
	}
}

// TestMutant is the child process.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantEnv)
	if name == "" {
		return // there is nothing to test in the parent
	}
	m := allMutants()[name]
	h := harness(m.shape).InStack(func(c cloud.Cloud) cloud.Cloud {
		b := m.breaks
		b.Cloud = c
		if m.stacked {
			b.Cloud = middleware.NewIdempotent(c)
		}
		return b
	})
	h.Idempotent, h.Patience = m.stacked, time.Second
	cloudtest.Run(t, h)
}
