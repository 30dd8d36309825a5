package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestPrint(t *testing.T) {
	var report doctor.Report
	report.OK("kernel", "Linux %s", "6.1")
	report.Warn("pool", errors.New("on the root disk"), "mount a disk")
	printed := func(output string) (string, error) {
		var out bytes.Buffer
		err := report.Print(&out, output)
		return out.String(), err
	}
	if text, err := printed("table"); err != nil || !strings.Contains(text, "=> mount a disk") {
		t.Errorf("a warning prints %q, %v", text, err)
	}
	report.Wrong("region", errors.Join(fmt.Errorf("no volumes in nyc2: %w", fault.NoZone), errors.New("and more")), "set --region")
	text, err := printed("table")
	if err == nil || !strings.Contains(err.Error(), "region") || strings.Contains(err.Error(), "pool") {
		t.Errorf("Print = %v, want what is wrong", err)
	}
	if want := "CB-NO-ZONE: no volumes in nyc2: no room left; and more\n"; !strings.Contains(text, want) {
		t.Errorf("the table lacks %q:\n%s", want, text)
	}
	text, err = printed("json")
	var read doctor.Report
	if decodeErr := json.Unmarshal([]byte(text), &read); err == nil || decodeErr != nil || !reflect.DeepEqual(read, report) {
		t.Errorf("%s reads as %+v, %v, want %+v", text, read, decodeErr, report)
	}
	if doctor.CheckOutput("json") != nil || doctor.CheckOutput("yaml") == nil {
		t.Error("CheckOutput accepts other outputs than table and json")
	}
}

// TestWhatTheStartMakesOfAFinding, and what it leaves to doctor.
func TestWhatTheStartMakesOfAFinding(t *testing.T) {
	var ran []string
	says := func(name string, state doctor.State) func(context.Context, *doctor.Report) {
		return func(ctx context.Context, r *doctor.Report) {
			ran = append(ran, name)
			if _, bounded := ctx.Deadline(); bounded {
				name += " in time"
			}
			switch err := errors.New(name); state {
			case doctor.OK:
				r.OK(name, "well")
			case doctor.Warning:
				r.Warn(name, err, "do")
			default:
				r.Wrong(name, err, "do")
			}
		}
	}
	var logged []any
	warn := func(_ string, keysAndValues ...any) { logged = append(logged, fmt.Sprint(keysAndValues[1:]...)) }
	checks := []doctor.Check{
		{Name: "a", Find: says("a", doctor.Warning)},
		{Name: "b", Find: says("b", doctor.Wrong), Unready: true},
		{Name: "c", Find: says("c", doctor.OK), Needs: "b", Refuses: true},
		{Name: "d", Find: says("d", doctor.OK), Needs: "c"},
		{Name: "e", Find: says("e", doctor.OK), Needs: "a"},
		{Name: "f", Find: says("f", doctor.Wrong), DoctorOnly: "it takes long"},
		{Name: "g", Find: says("g", doctor.Wrong), Patience: time.Hour},
		{Name: "h", Find: says("h", doctor.Warning), Refuses: true},
		{Name: "i", Find: says("i", doctor.Wrong), Refuses: true},
		{Name: "j", Find: says("j", doctor.Wrong), Patience: time.Hour},
	}
	unready, refusal := doctor.Start(t.Context(), checks, warn)
	if got := fmt.Sprint(unready, "|", refusal, "|", logged, "|", ran); got != "b; do|h; do\ni; do|[aerrora; do gerrorg; do]|[a b e g h i]" {
		t.Errorf("the start says %q", got)
	}
	ran = nil
	report := doctor.Examine(t.Context(), checks)
	if got := fmt.Sprint(ran); got != "[a b e f g h i j]" || len(report) != 8 || report[4].Message != "g in time" || report[3].Message != "f" {
		t.Errorf("doctor runs %s and finds %+v", got, report)
	}
}
