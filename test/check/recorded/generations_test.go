package recorded_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// generation is a shape of a volume that the API had.
type generation struct {
	// fields is the number of its fields, lacks are those that came later.
	fields int
	lacks  string
	// files are the recordings that have it.
	files []string
}

// today is the shape of a volume that the emulator serves.
const today = "created encryption filesystem_path hardware_type id io_ready label linode_id linode_label locks region size status tags updated"

// generations are the older shapes.
var generations = []generation{
	{12, "encryption io_ready locks", []string{"TestInstance_Volumes_List"}},
	{13, "io_ready locks", []string{"TestVolume_WaitForLinodeID_volume", "TestVolume_WaitForLinodeID_waiting"}},
	{14, "locks", []string{"TestInstance_Config_VolumeLimitExtension"}},
}

// excuses are the generations that occurred.
type excuses map[int]bool

// unexplained returns the differences of an exchange that no generation explains.
func (x excuses) unexplained(t *testing.T, file string, e recorded.Exchange, all []difference) []difference {
	t.Helper()
	for i, g := range generations {
		if !slices.Contains(g.files, file) || !g.shows(t, e) {
			continue
		}
		all = slices.DeleteFunc(all, func(d difference) bool {
			field, is := strings.CutPrefix(d.Where, "volume.")
			older := is && d.What == additional && slices.Contains(strings.Fields(g.lacks), field)
			x[i] = x[i] || older
			return older
		})
	}
	return all
}

// shows reports whether the volumes of an answer have exactly the generation's fields.
func (g generation) shows(t *testing.T, e recorded.Exchange) bool {
	t.Helper()
	want := slices.DeleteFunc(strings.Fields(today), func(field string) bool { return slices.Contains(strings.Fields(g.lacks), field) })
	if len(want) != g.fields {
		t.Fatalf("a generation of %d fields lacks %q, which leaves %d", g.fields, g.lacks, len(want))
	}
	all := shapes(t, e)
	return len(all) > 0 && !slices.ContainsFunc(all, func(has []string) bool { return !slices.Equal(has, want) })
}

// shapes are the names of the fields of each volume in an answer.
func shapes(t *testing.T, e recorded.Exchange) (all [][]string) {
	t.Helper()
	var root map[string]any
	must(t, json.Unmarshal(e.Answer, &root))
	list, _ := root["data"].([]any)
	for _, element := range append(list, root) {
		if fields, is := element.(map[string]any); is && objectOf(fields) == "volume" {
			all = append(all, sortedKeys(fields))
		}
	}
	return all
}

// unused fails the test for each excuse that did not occur.
func (x excuses) unused(t *testing.T) {
	t.Helper()
	for i, g := range generations {
		if !x[i] {
			t.Errorf("no recording shows a volume of the generation of %d fields any more: %q", g.fields, g.files)
		}
	}
}
