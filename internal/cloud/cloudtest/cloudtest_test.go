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
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
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

// elsewhere returns the other place and its ids, if the shape has one.
func (m mutation) elsewhere() cloudtest.Elsewhere {
	if len(m.shape.Places) == 0 {
		return cloudtest.Elsewhere{}
	}
	return cloudtest.Elsewhere{Place: "island", Volume: "island/vol-1", Snapshot: "island/snap-1"}
}

// TestMutant is the child process.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantEnv)
	if name == "" {
		return // there is nothing to test in the parent
	}
	m := allMutants()[name]
	m.shape.Space, m.shape.Slots = 90*cloud.GiB, 8
	broken := func(c cloud.Cloud) cloud.Cloud {
		b := m.breaks
		b.Cloud = c
		if m.stacked {
			b.Cloud = middleware.NewIdempotent(c)
		}
		return b
	}
	var newest *memory.Cloud
	cloudtest.Run(t, cloudtest.Harness{
		Idempotent: m.stacked,
		Zones:      []string{"zone-a", "zone-b"},
		Nodes:      []cloud.NodeID{"node-1", "node-2"},
		Slots:      m.shape.Slots,
		Patience:   time.Second,
		New: func(*testing.T) cloud.Cloud {
			newest = memory.New(m.shape)
			return broken(newest)
		},
		Unfit: func(t *testing.T, id cloud.VolumeID) func() {
			_ = newest.Account().SetUnfit(id, "busy")
			return func() { _ = newest.Account().SetUnfit(id, "") }
		},
		Sick: func(t *testing.T, id cloud.VolumeID) cloud.Health {
			health := cloud.Health{Kind: cloud.Degraded, Reason: "Slow", Message: "it is slow"}
			_ = newest.Account().SetHealth(id, health)
			return health
		},
		Elsewhere: m.elsewhere(),
		Pair: func(*testing.T) (a, b cloud.Cloud) {
			account := memory.NewAccount(m.shape)
			return broken(account.Cluster("one")), broken(account.Cluster("two"))
		},
	})
}
