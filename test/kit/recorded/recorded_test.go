package recorded

import (
	"net/http"
	"testing"
)

func TestRecordingsAreWhole(t *testing.T) {
	names, err := Files("linode")
	if err != nil || len(names) < 16 {
		t.Fatalf("Files = %q, %v, want 16 recordings at least", names, err)
	}
	if none, err := Files("none"); err == nil {
		t.Errorf("Files of a cloud without recordings = %q, want an error", none)
	}
	for _, name := range names {
		all, err := Exchanges("linode", name)
		if err != nil || len(all) == 0 {
			t.Errorf("%s has %d exchanges, %v", name, len(all), err)
		}
		for i, e := range all {
			if e.Method == "" || e.Path == "" || e.Status < 200 || len(e.Answer) == 0 || len(e.Header) == 0 {
				t.Errorf("%s: exchange %d lacks something: %s %s, %d", name, i, e.Method, e.Path, e.Status)
			}
			if refused := e.Status != http.StatusOK; refused != (e.Seen > 0) {
				t.Errorf("%s: exchange %d has status %d and was seen %d times", name, i, e.Status, e.Seen)
			}
		}
	}
}
