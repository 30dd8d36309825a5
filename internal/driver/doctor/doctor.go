// Package doctor runs the checks of the programs, and reports what is wrong with a deployment and what to do about it, for people
// and for scripts. The checks read, and change nothing.
package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// State is the outcome of one check.
type State string

// The states.
const (
	OK State = "ok"
	// Warning: the driver works, and some volumes or some days will not.
	Warning State = "warning"
	// Wrong: volumes cannot be served until this is mended.
	Wrong State = "wrong"
)

// Finding is what one check found. Its JSON form is for scripts and does not change.
type Finding struct {
	Check   string `json:"check"`
	State   State  `json:"state"`
	Message string `json:"message"`
	// Reason is a code of docs/troubleshooting.md, if there is one.
	Reason fault.Reason `json:"reason,omitempty"`
	Remedy string       `json:"remedy,omitempty"`
}

// text returns the message after the code of its reason.
func (f Finding) text() string {
	if f.Reason != fault.NoReason {
		return string(f.Reason) + ": " + f.Message
	}
	return f.Message
}

// Report is what all checks found.
type Report []Finding

// OK adds a check that found nothing wrong.
func (r *Report) OK(check, format string, args ...any) {
	*r = append(*r, Finding{Check: check, State: OK, Message: fmt.Sprintf(format, args...)})
}

// Result adds what is wrong or, without an error, that all is well.
func (r *Report) Result(check, well string, err error, remedy string) {
	if err != nil {
		r.Wrong(check, err, remedy)
	} else {
		r.OK(check, "%s", well)
	}
}

// Warn adds a warning.
func (r *Report) Warn(check string, err error, remedy string) { r.add(check, Warning, err, remedy) }

// Wrong adds what is wrong.
func (r *Report) Wrong(check string, err error, remedy string) { r.add(check, Wrong, err, remedy) }

func (r *Report) add(check string, state State, err error, remedy string) {
	*r = append(*r, Finding{
		Check: check, State: state, Message: strings.ReplaceAll(fault.Plain(err), "\n", "; "), Reason: fault.ReasonOf(err), Remedy: remedy,
	})
}

// CheckOutput refuses an output that Print does not know.
func CheckOutput(output string) error {
	if output != "table" && output != "json" {
		return fmt.Errorf("--output %q: table or json", output)
	}
	return nil
}

// Print writes the report as a table or as JSON. It returns an error if something is wrong.
func (r Report) Print(w io.Writer, output string) error {
	if err := r.write(w, output); err != nil {
		return err
	}
	var wrong []string
	for _, f := range r {
		if f.State == Wrong {
			wrong = append(wrong, f.Check)
		}
	}
	if len(wrong) > 0 {
		return errors.New("something is wrong: " + strings.Join(wrong, ", "))
	}
	return nil
}

func (r Report) write(w io.Writer, output string) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.State, f.Check, f.text()) //nolint:errcheck // Flush returns it
		if f.Remedy != "" {
			fmt.Fprintf(tw, "\t\t=> %s\n", f.Remedy) //nolint:errcheck // the same
		}
	}
	return tw.Flush()
}
