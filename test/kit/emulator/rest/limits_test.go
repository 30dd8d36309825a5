package rest_test

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

func TestLimitText(t *testing.T) {
	for _, row := range []struct {
		text string
		want rest.Limit
		bad  bool
	}{
		{"250/1m", rest.Limit{Requests: 250, Window: time.Minute}, false},
		{"250/60s", rest.Limit{Requests: 250, Window: time.Minute}, false},
		{"100/1m create", rest.Limit{Requests: 100, Window: time.Minute, Of: "create"}, false},
		{"100/1m ", rest.Limit{}, true},
		{"100/1m two words", rest.Limit{}, true},
		{"0/1m", rest.Limit{}, true},
		{"250", rest.Limit{}, true},
		{"250/0s", rest.Limit{}, true},
		{"/1m", rest.Limit{}, true},
	} {
		var got rest.Limit
		err := got.UnmarshalText([]byte(row.text))
		if got != row.want || (err != nil) != row.bad {
			t.Errorf("UnmarshalText(%q) = %v, %v, want %v (refused: %t)", row.text, got, err, row.want, row.bad)
		}
	}
}

func FuzzLimitText(f *testing.F) {
	f.Add("250/1m")
	f.Fuzz(func(t *testing.T, text string) {
		var read, again rest.Limit
		if read.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(read.String())); err != nil || again != read {
			t.Errorf("%q reads as %v, and that as %v (%v)", text, read, again, err)
		}
	})
}
