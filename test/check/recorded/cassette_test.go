package recorded_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

var cassette = flag.String("cassette", "", "recording of a run on a Linode account (make e2e-real), with which the emulator is compared, too")

// The part of a run that makes its requests in order is replayed; the other parts make many at once.
func TestACassetteIsAnsweredAsRecorded(t *testing.T) {
	if *cassette == "" {
		t.Skip("no -cassette: make e2e-real gives one")
	}
	text, err := os.ReadFile(*cassette)
	must(t, err)
	var all []recorded.Exchange
	must(t, json.Unmarshal(text, &all))
	life := slices.DeleteFunc(all, func(e recorded.Exchange) bool { return e.Part != "Life" })
	if len(life) == 0 {
		t.Fatal("the recording has no volume's life")
	}
	equal, artefacts := 0, 0
	for i, found := range replay(t, "", life, direct) {
		if len(found) == 0 {
			equal++
		}
		for _, d := range found {
			if d.Where == "page.results" && !strings.Contains(life[i].Path, "/volumes") {
				artefacts++ // the number of the account's events, regions and so on
				continue
			}
			t.Errorf("exchange %d, %s %s: %s", i, life[i].Method, life[i].Path, d)
		}
	}
	t.Logf("%s: %d exchanges, %d equal, %d artefacts", *cassette, len(life), equal, artefacts)
}
