// Package upstream runs the "External Storage" suite of Kubernetes against a driver and judges its
// report: every spec that did not run needs a reason that is written down here.
package upstream

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Spec is what became of one test of the suite.
type Spec struct {
	Name  string
	State string
	// Why is what the suite said when it skipped the spec or failed it; empty for a spec that was not
	// selected.
	Why  string
	Time time.Duration
}

// The states of ginkgo that are used here. Every other one is a failure.
const (
	passed  = "passed"
	skipped = "skipped"
	pending = "pending"
)

// Parse reads a report as ginkgo's --json-report writes it.
func Parse(report []byte) ([]Spec, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			RunTime                 time.Duration
			Failure                 struct{ Message string }
		}
		SpecialSuiteFailureReasons []string
	}
	if err := json.Unmarshal(report, &suites); err != nil {
		return nil, fmt.Errorf("read the suite's report: %w", err)
	}
	var specs []Spec
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.LeafNodeType != "It" && (r.State == passed || r.State == skipped) {
				continue // a set-up that worked is no test
			}
			specs = append(specs, Spec{
				Name:  strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " "),
				State: r.State, Why: strings.TrimSpace(r.Failure.Message), Time: r.RunTime,
			})
		}
		for _, reason := range suite.SpecialSuiteFailureReasons {
			if !strings.Contains(reason, "Detected") { // programmatic focus, no failure
				specs = append(specs, Spec{Name: "the suite itself", State: "failed", Why: reason})
			}
		}
	}
	return specs, nil
}

// Result is what a report comes to.
type Result struct {
	Passed, Failed []Spec
	// Skipped are the specs that a known reason excuses, by reason.
	Skipped map[string][]Spec
	// Unexplained were skipped, and nobody has written down why that is all right.
	Unexplained []Spec
	// NotSelected counts the specs that the filters left out.
	NotSelected int
}

// Judge sorts the specs.
func Judge(specs []Spec, excuses []Skip) Result {
	result := Result{Skipped: map[string][]Spec{}}
	for _, s := range specs {
		switch {
		case s.State == passed:
			result.Passed = append(result.Passed, s)
		case s.State == pending || (s.State == skipped && s.Why == ""):
			result.NotSelected++
		case s.State != skipped:
			result.Failed = append(result.Failed, s)
		default:
			if reason := excuse(s, excuses); reason != "" {
				result.Skipped[reason] = append(result.Skipped[reason], s)
			} else {
				result.Unexplained = append(result.Unexplained, s)
			}
		}
	}
	return result
}

func excuse(s Spec, excuses []Skip) string {
	for _, e := range excuses {
		if e.Said == nil || !e.Said.MatchString(s.Why) {
			continue
		}
		if e.Named == "" || regexp.MustCompile(e.Named).MatchString(s.Name) {
			return e.Reason
		}
	}
	return ""
}

// Count says how many of the specs have a name that fits.
func Count(specs []Spec, name *regexp.Regexp) int {
	n := 0
	for _, s := range specs {
		if name.MatchString(s.Name) {
			n++
		}
	}
	return n
}
