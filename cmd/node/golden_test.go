package main

import (
	"bytes"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// What people read of the flags, and scripts may parse.
func TestHelpIsAsFrozen(t *testing.T) {
	for file, args := range map[string][]string{"help.txt": {"--help"}, "help-doctor.txt": {"doctor", "--help"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, nil, &out, &out); err != nil {
			t.Error(err)
		}
		golden.Check(t, file, out.String())
	}
}

// What scripts read of the checks: a machine on which nothing is wrong.
func TestDoctorIsAsFrozen(t *testing.T) {
	p := newPatient(t, "linode")
	report := doctor.Examine(t.Context(), p.checks())
	for _, output := range []string{"json", "table"} {
		var out bytes.Buffer
		p.failed(report.Print(&out, output))
		golden.Check(t, "doctor."+output, out.String(), p.root)
	}
}
