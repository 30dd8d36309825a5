package main

import (
	"bytes"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// The help is for people, and scripts may parse it.
func TestHelpIsAsFrozen(t *testing.T) {
	for file, args := range map[string][]string{"help.txt": {"--help"}, "help-doctor.txt": {"doctor", "--help"}, "help-check.txt": {"check", "--help"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, nil, &out, &out); err != nil {
			t.Error(err)
		}
		golden.Check(t, file, out.String())
	}
}

// Scripts parse the findings: a machine without a fault.
func TestDoctorIsAsFrozen(t *testing.T) {
	p := newPatient(t, "linode")
	report := doctor.Examine(t.Context(), p.checks())
	for _, output := range []string{"json", "table"} {
		var out bytes.Buffer
		must(t, report.Print(&out, output))
		golden.Check(t, "doctor."+output, out.String(), p.root)
	}
}
