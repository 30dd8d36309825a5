package doctor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

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
