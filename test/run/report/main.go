// Command report reads what `go test -json` prints. It prints each package when it has finished, the output of what failed,
// every 15 s what is under way, and at the end one line with what ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; ImportPath is there while a package is built.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// report is what was read so far.
type report struct {
	out     io.Writer
	begin   time.Time
	running []string
	output  map[string]*strings.Builder // by package and test
	passed  int
	skipped int
	done    int
	failed  int
}

func main() {
	if !run(os.Stdin, os.Stdout, time.Tick(15*time.Second)) {
		os.Exit(1)
	}
}

// run reports whether everything passed.
func run(in io.Reader, out io.Writer, tick <-chan time.Time) bool {
	r := &report{out: out, begin: time.Now(), output: map[string]*strings.Builder{}}
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for s := bufio.NewReader(in); ; {
			line, err := s.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				_, _ = fmt.Fprintf(out, "%d packages, %d tests passed, %d skipped, %d failed, %.0f s\n",
					r.done, r.passed, r.skipped, r.failed, time.Since(r.begin).Seconds())
				return r.failed == 0 && r.done > 0
			}
			r.read(line)
		case <-tick:
			at := "compiling"
			if len(r.running) > 0 {
				at = "under way: " + strings.Join(r.running, " ")
			}
			_, _ = fmt.Fprintf(out, "  %.0f s, %d packages finished, %s\n", time.Since(r.begin).Seconds(), r.done, at)
		}
	}
}

func (r *report) read(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		_, _ = r.out.Write(line) // what is no event is go's own complaint
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		_, _ = fmt.Fprint(r.out, e.Output)
	case "start":
		r.running = append(r.running, short(e.Package))
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case "pass", "skip", "fail":
		r.end(e, key)
	}
}

func (r *report) end(e event, key string) {
	if e.Action == "fail" && r.output[key] != nil {
		_, _ = fmt.Fprint(r.out, r.output[key])
	}
	delete(r.output, key)
	switch {
	case e.Action == "fail":
		r.failed++
	case e.Test != "" && e.Action == "pass":
		r.passed++
	case e.Test != "":
		r.skipped++
	}
	if e.Test == "" {
		r.running = slices.DeleteFunc(r.running, func(p string) bool { return p == short(e.Package) })
		r.done++
		if e.Action != "skip" {
			_, _ = fmt.Fprintf(r.out, "%-4s %6.1f s  %s\n", e.Action, e.Elapsed, short(e.Package))
		}
	}
}

func short(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/cloudblock-csi/cloudblock-csi/")
}
