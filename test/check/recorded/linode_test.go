// Package recorded_test compares the emulators with recordings of the real APIs.
package recorded_test

import (
	"maps"
	"slices"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

const (
	linode = "linode"
	// refusals is the recording that is no sequence of requests.
	refusals = "refusals"
)

// byProfile are the exchanges before which a configuration profile of the Linode got the volume, which no route of volumes shows.
var byProfile = map[string]int{"TestInstance_Volumes_List": 1}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// sequences are the names of the recordings that are sequences of requests.
func sequences(t *testing.T) []string {
	t.Helper()
	names, err := recorded.Files(linode)
	must(t, err)
	return slices.DeleteFunc(names, func(name string) bool { return name == refusals })
}

func exchanges(t *testing.T, name string) []recorded.Exchange {
	t.Helper()
	all, err := recorded.Exchanges(linode, name)
	must(t, err)
	return all
}

// replay returns the differences of each exchange of a recording.
func replay(t *testing.T, name string, all []recorded.Exchange, serve func(*testing.T, *emulator.Cloud) string) [][]difference {
	t.Helper()
	p := newPlayer(t, all, serve)
	found := make([][]difference, len(all))
	for i, e := range all {
		if at, is := byProfile[name]; is && at == i {
			v := volumesIn(t, e.Answer)[0]
			p.account.Attached(p.ids[v.ID], v.LinodeID)
		}
		found[i] = compare(e, p.play(e), p.recordedID)
	}
	return found
}

// The emulator answers each recorded request as the real API did.
func TestLinodeAnswersAsRecorded(t *testing.T) {
	excused := excuses{}
	var sum, sumEqual int
	for _, name := range sequences(t) {
		equal, all := 0, exchanges(t, name)
		for i, found := range replay(t, name, all, direct) {
			if len(found) == 0 {
				equal++
			}
			for _, d := range excused.unexplained(t, name, all[i], found) {
				t.Errorf("%s, exchange %d, %s %s: %s", name, i, all[i].Method, all[i].Path, d)
			}
		}
		t.Logf("%s: %d exchanges, %d equal, %d artefacts", name, len(all), equal, len(all)-equal)
		sum, sumEqual = sum+len(all), sumEqual+equal
	}
	excused.unused(t)
	t.Logf("in total: %d exchanges, %d equal, %d artefacts", sum, sumEqual, sum-sumEqual)
}
