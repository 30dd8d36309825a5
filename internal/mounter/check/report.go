package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The results of a check.
const (
	Intact    = "intact"
	Damaged   = "damaged"
	Undecided = "unchecked"
)

var (
	// ErrDamaged is the error of a report with a finding.
	ErrDamaged = errors.New("the volume is damaged")
	// ErrUnchecked is the error of a report without a finding if something could not be checked.
	ErrUnchecked = errors.New("the volume could not be checked")
)

// maxFindings is how many findings a report lists; the rest is counted.
const maxFindings = 100

// Report is what a check has done and found.
type Report struct {
	Device     string `json:"device"`
	Filesystem string `json:"filesystem,omitempty"`
	// Result is Intact, Damaged or Undecided.
	Result string `json:"result"`
	// Replayed: the kernel has mounted the filesystem and so replayed its journal.
	Replayed bool `json:"journalReplayed"`
	// Structure is the command that has checked the filesystem.
	Structure string `json:"structure,omitempty"`
	// Files, Directories and Others (symbolic links, sockets and the like) were read, with Bytes of data.
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Others      int64 `json:"others"`
	Bytes       int64 `json:"bytes"`
	// Checksums is the list of checksums, and Compared the number of files that were compared with it.
	Checksums string `json:"checksums,omitempty"`
	Compared  int64  `json:"compared"`
	// Findings are damages, and Unchecked is what could not be checked. More counts the findings that are not listed.
	Findings  []string `json:"findings"`
	More      int64    `json:"moreFindings,omitempty"`
	Unchecked []string `json:"unchecked"`
}

// judge adds an error to the findings or to what could not be checked.
func (r *Report) judge(err error) {
	if isDamage(err) {
		r.finding("%s", fault.Text(err))
		return
	}
	r.unchecked("%s", fault.Text(err))
}

func (r *Report) finding(message string, args ...any) {
	if len(r.Findings) == maxFindings {
		r.More++
		return
	}
	r.Findings = append(r.Findings, printable(fmt.Sprintf(message, args...)))
}

func (r *Report) unchecked(message string, args ...any) {
	r.Unchecked = append(r.Unchecked, printable(fmt.Sprintf(message, args...)))
}

// printable replaces what a terminal would interpret: names of files and labels come from the volume.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
}

// conclude sets the result.
func (r *Report) conclude() {
	switch {
	case len(r.Findings) > 0:
		r.Result = Damaged
	case len(r.Unchecked) > 0:
		r.Result = Undecided
	default:
		r.Result = Intact
	}
}

// Err is nil for an intact volume, ErrDamaged or ErrUnchecked.
func (r *Report) Err() error {
	switch r.Result {
	case Intact:
		return nil
	case Damaged:
		return fmt.Errorf("check %s: %w", r.Device, ErrDamaged)
	}
	return fmt.Errorf("check %s: %w", r.Device, ErrUnchecked)
}

// Print writes the report as text or as JSON.
func (r *Report) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(key, message string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", key, fmt.Sprintf(message, args...)) }
	row("device", "%s", r.Device)
	if r.Filesystem != "" {
		row("filesystem", "%s", r.Filesystem)
	}
	if r.Replayed {
		row("journal", "replayed")
	}
	if r.Structure != "" {
		row("structure", "checked with %s", r.Structure)
	}
	if r.Directories > 0 {
		row("files", "%d files, %d directories and %d others read, %d bytes", r.Files, r.Directories, r.Others, r.Bytes)
		if r.Checksums == "" {
			row("checksums", "the volume has no %s: what is in the files is not compared", DefaultChecksums)
		} else {
			row("checksums", "%d files compared with %s", r.Compared, printable(r.Checksums))
		}
	}
	for _, f := range r.Findings {
		row("finding", "%s", f)
	}
	if r.More > 0 {
		row("finding", "and %d more", r.More)
	}
	for _, u := range r.Unchecked {
		row("unchecked", "%s", u)
	}
	row("result", "%s", r.Result)
	return t.Flush()
}
