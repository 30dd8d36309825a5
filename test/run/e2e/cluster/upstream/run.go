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
	// Cloud is where the driver's volumes are.
	Cloud string
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

// pass is one start of the suite.
type pass struct {
	name, focus string
	left        []Skip
}

// passes are the starts that a run needs. Growth of a mounted filesystem is shown on xfs, wherever it
// runs, but the suite calls everything on xfs slow.
func (o Options) passes() []pass {
	focus := o.Focus
	if focus == "" {
		focus = "External.Storage"
	}
	all := []pass{{"external-storage", focus, o.Filter()}}
	if !o.Wide && o.Focus == "" {
		all = append(all, pass{"external-storage-xfs", `External.Storage.*Dynamic PV \(xfs\).*volume-expand`, of(o.Cloud, always)})
	}
	return all
}

// Run runs the suite, prints what became of it and returns the result. An error means that the suite
// has no result; specs that failed are in the result.
func Run(ctx context.Context, o Options, out io.Writer) (Result, error) {
	begin := time.Now()
	if err := os.MkdirAll(o.Reports, 0o755); err != nil {
		return Result{}, err
	}
	// Ginkgo runs the suite in a folder of its own choice.
	for _, path := range []*string{&o.Driver, &o.Bin, &o.Kubectl, &o.Kubeconfig, &o.Reports} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return Result{}, err
		}
	}
	var specs []Spec
	var errs []error
	for _, p := range o.passes() {
		some, err := o.start(ctx, p, out)
		specs, errs = append(specs, some...), append(errs, err)
	}
	result := Judge(specs, of(o.Cloud, excuses))
	result.print(out, o, time.Since(begin))
	return result, errors.Join(errs...)
}

// start runs the suite once.
func (o Options) start(ctx context.Context, p pass, out io.Writer) ([]Spec, error) {
	report := filepath.Join(o.Reports, p.name+".json")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.Reports, p.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := o.command(ctx, p, report)
	cmd.Stdout, cmd.Stderr = log, log
	fmt.Fprintf(out, "%s in %d processes; log: %s\n", p.focus, o.Processes, log.Name())
	runErr := cmd.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("the suite wrote no report (%w); its log is %s: %w", runErr, log.Name(), err)
	}
	specs, err := Parse(text)
	if err != nil {
		return nil, err
	}
	// Which spec failed is in the report; a suite that failed without one has to be looked at.
	if runErr != nil && len(Judge(specs, nil).Failed) == 0 {
		return specs, fmt.Errorf("no spec failed, but the suite did: %w; its log is %s", runErr, log.Name())
	}
	return specs, nil
}

func (o Options) command(ctx context.Context, p pass, report string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(o.Bin, "ginkgo"),
		"--procs="+strconv.Itoa(o.Processes), "--timeout=2h", "--no-color", "--silence-skips",
		"--poll-progress-after=5m", "--keep-going",
		"--output-dir="+filepath.Dir(report), "--json-report="+filepath.Base(report),
		"--focus="+p.focus, "--skip="+pattern(p.left),
		filepath.Join(o.Bin, "e2e-storage.test"), "--",
		"--storage.testdriver="+o.Driver, "--repo-root="+filepath.Dir(o.Driver), "--kubeconfig="+o.Kubeconfig, "--kubectl-path="+o.Kubectl,
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
