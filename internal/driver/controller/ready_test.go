package controller

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Whichever of a group is not ready yet, the group is not.
func TestAGroupWaitsForEachOfIt(t *testing.T) {
	g := &Groups{service: &Service{}}
	for name, tc := range map[string]struct {
		ready []bool
		want  bool
	}{
		"all are ready":         {[]bool{true, true}, true},
		"the first is not":      {[]bool{false, true}, false},
		"the last is not":       {[]bool{true, false}, false},
		"a group of one is":     {[]bool{true}, true},
		"a group of one is not": {[]bool{false}, false},
	} {
		var members []cloud.Snapshot
		for _, ready := range tc.ready {
			members = append(members, cloud.Snapshot{ID: "s", Group: "g", Ready: ready})
		}
		if got := g.group(members).GetReadyToUse(); got != tc.want {
			t.Errorf("%s: ready = %v, want %v", name, got, tc.want)
		}
	}
}
