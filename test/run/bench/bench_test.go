package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

func TestEachCloudStaysWithinTheLimitsOfItsAPI(t *testing.T) {
	for _, target := range targets {
		t.Run(target.name, func(t *testing.T) {
			var out bytes.Buffer
			b := &cloudBench{target: target, table: &table{out: &out}}
			if err := b.limited(t, 2*time.Second); err != nil {
				t.Error(err)
			}
			if err := b.storm(t); err != nil {
				t.Error(err)
			}
			if err := b.table.verdict(); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

func TestABudgetThatIsTooSmallIsSeen(t *testing.T) {
	var out bytes.Buffer
	b := &cloudBench{target: digitalOceanTarget, table: &table{out: &out}}
	l := limit{takes: time.Second, atOnce: 16, cloud: []budget.Window{{Calls: 2 * volumes, Per: time.Hour, FromHeaders: true}}}
	run, err := b.simulate(t, l)
	if err != nil {
		t.Fatal(err)
	}
	b.table.limited(l, run)
	if err := b.table.verdict(); err == nil || !strings.Contains(err.Error(), "calls failed") {
		t.Errorf("half of the budget: %v, want calls that failed\n%s", err, &out)
	}
}
