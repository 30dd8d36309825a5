package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Options say which cluster is tested, and how far.
type Options struct {
	// Bin holds ginkgo and e2e-storage.test.
	Bin        string
	Kubectl    string
	Kubeconfig string
	// Driver is the file that describes the driver.
	Driver string
	// Focus selects specs by name; empty is everything.
	Focus string
	// Wide selects the slow and the serial specs too.
	Wide bool
	// GrowsMountedExt4: root on the nodes has CAP_SYS_RESOURCE.
	GrowsMountedExt4 bool
	// Processes is how many specs run at a time.
	Processes int
	// Reports is the folder for the suite's report and log.
	Reports string
}

// core are the specs that every CSI driver with volumes made on demand is measured by.
var core = regexp.MustCompile(`External.Storage.*Dynamic (PV|Snapshot)`)

// Run runs the suite, prints what became of it and returns the result. An error means that the suite
// has no result; specs that failed are in the result.
func Run(ctx context.Context, o Options, out io.Writer) (Result, error) {
	if err := os.MkdirAll(o.Reports, 0o755); err != nil {
		return Result{}, err
	}
	report := filepath.Join(o.Reports, "external-storage.json")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Result{}, err
	}
	log, err := os.Create(filepath.Join(o.Reports, "external-storage.log"))
	if err != nil {
		return Result{}, err
	}
	defer log.Close()

	begin := time.Now()
	cmd := o.command(ctx, report)
	cmd.Stdout, cmd.Stderr = log, log
	fmt.Fprintf(out, "the External Storage suite runs in %d processes; its log: %s\n", o.Processes, log.Name())
	runErr := cmd.Run() // ginkgo's exit code says nothing that the report does not say better
	text, err := os.ReadFile(report)
	if err != nil {
		return Result{}, fmt.Errorf("the suite wrote no report (%w); its log is %s: %w", runErr, log.Name(), err)
	}
	specs, err := Parse(text)
	if err != nil {
		return Result{}, err
	}
	result := Judge(specs, excuses)
	result.print(out, o, time.Since(begin))
	if runErr != nil && len(result.Failed) == 0 {
		return result, fmt.Errorf("no spec failed, but the suite did: %w; its log is %s", runErr, log.Name())
	}
	return result, nil
}

func (o Options) command(ctx context.Context, report string) *exec.Cmd {
	focus := o.Focus
	if focus == "" {
		focus = "External.Storage"
	}
	cmd := exec.CommandContext(ctx, filepath.Join(o.Bin, "ginkgo"),
		"--procs="+strconv.Itoa(o.Processes), "--timeout=2h", "--no-color", "--silence-skips",
		"--poll-progress-after=5m", "--keep-going",
		"--output-dir="+filepath.Dir(report), "--json-report="+filepath.Base(report),
		"--focus="+focus, "--skip="+pattern(o.Filter()),
		filepath.Join(o.Bin, "e2e-storage.test"), "--",
		"--storage.testdriver="+o.Driver, "--kubeconfig="+o.Kubeconfig, "--kubectl-path="+o.Kubectl,
		"--provider=skeleton", "--allowed-not-ready-nodes=0", "--report-dir="+o.Reports)
	// The suite's own end removes its namespaces; a killed one would leave them behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	return cmd
}

// OK says whether nothing failed and every skip has a reason.
func (r Result) OK() bool {
	return len(r.Failed) == 0 && len(r.Unexplained) == 0 && len(r.Passed) > 0
}

func (r Result) print(out io.Writer, o Options, took time.Duration) {
	for _, s := range r.Passed {
		fmt.Fprintf(out, "  passed %4.0f s  %s\n", s.Time.Seconds(), s.Name)
	}
	for _, s := range r.Failed {
		fmt.Fprintf(out, "  FAILED %4.0f s  %s\n      %s\n", s.Time.Seconds(), s.Name, s.Why)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(out, "  skipped %3d    %s\n", len(r.Skipped[reason]), reason)
	}
	for _, s := range r.Unexplained {
		fmt.Fprintf(out, "  SKIPPED WITHOUT A KNOWN REASON  %s\n      %s\n", s.Name, s.Why)
	}
	for _, s := range o.Filter() {
		fmt.Fprintf(out, "  left out       %s (%s)\n", s.Reason, s.Named)
	}
	skips := 0
	for _, specs := range r.Skipped {
		skips += len(specs)
	}
	fmt.Fprintf(out, "External Storage: %d passed, %d failed, %d skipped, %d unexplained, %d not selected; %d of the passed are Dynamic PV or Dynamic Snapshot; %.1f minutes\n",
		len(r.Passed), len(r.Failed), skips, len(r.Unexplained), r.NotSelected, Count(r.Passed, core), took.Minutes())
}
