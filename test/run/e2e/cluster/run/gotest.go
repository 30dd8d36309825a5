package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// ourTest is the command of one of this suite's tests.
func ourTest(ctx context.Context, name string, o options) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-tags", "cluster", "-timeout", "90m", "-json",
		"-run", "^"+name+"$", "./test/run/e2e/cluster")
	cmd.Env = append(os.Environ(), "CLOUDBLOCK_REPORTS="+o.reports, "CLOUDBLOCK_CLOUD="+o.cloud)
	return cmd
}

// chartsTest is the command of the test that sends the chart with random values to the API server. It is in a module of its own.
func chartsTest(ctx context.Context, client kube.Client) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-tags", "cluster", "-timeout", "30m", "-json",
		"-run", "^TestTheAPIServerTakesRandomValues$", ".", "-args", "-kubectl", client.Kubectl)
	cmd.Dir = "test/check/charts"
	cmd.Env = append(os.Environ(), "KUBECONFIG="+client.Kubeconfig)
	return cmd
}

// goTest runs such a command and shows what the test says while it runs. Tests that only hold others are not counted.
func goTest(cmd *exec.Cmd, out io.Writer) line {
	cmd.Stderr = out
	// The go command then ends the test too; its namespace e2e-... is left for who wants to look.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	events, err := cmd.StdoutPipe()
	if err != nil {
		return line{err: err}
	}
	if err := cmd.Start(); err != nil {
		return line{err: err}
	}
	l := count(events, out)
	if err := cmd.Wait(); err != nil {
		l.err = fmt.Errorf("go test: %w", err)
	}
	if l.err == nil && l.passed == 0 {
		l.err = fmt.Errorf("%s passed nothing", strings.Join(cmd.Args, " "))
	}
	return l
}

// count reads what `go test -json` prints (go doc cmd/test2json).
func count(events io.Reader, out io.Writer) line {
	outcomes := map[string]string{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		switch e.Action {
		case "output", "build-output":
			fmt.Fprint(out, e.Output)
		case "pass", "fail", "skip":
			outcomes[e.Test] = e.Action
		}
	}
	delete(outcomes, "") // the package's own
	var l line
	for name, outcome := range outcomes {
		switch {
		case holdsOthers(name, outcomes) && outcome != "fail":
		case outcome == "pass":
			l.passed++
		case outcome == "skip":
			l.skipped++
		case !failedInside(name, outcomes):
			l.failed++
		}
	}
	l.err = lines.Err()
	return l
}

func holdsOthers(name string, outcomes map[string]string) bool {
	for other := range outcomes {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// failedInside says whether the failure of a test is already counted with one that it holds.
func failedInside(name string, outcomes map[string]string) bool {
	for other, outcome := range outcomes {
		if outcome == "fail" && strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}
