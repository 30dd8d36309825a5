package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// volumesConfig holds the flags of the sub-command "volumes".
type volumesConfig struct {
	cloud, node, remove, output string
	poolFlags                   []string
	pools                       []driver.LocalPool
}

// listVolumes is the sub-command "volumes". A pool has records of its own to show; of other clouds it shows what they
// list.
func listVolumes(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	if backends[cloudIn(args)].perNode {
		return runVolumes(ctx, args, stdout, stderr)
	}
	return runInventory(ctx, args, environ, stdout, stderr) // which says what is wrong with --cloud
}

// cloudIn returns what --cloud says last, which decides which flags there are.
func cloudIn(args []string) (last string) {
	for i, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case name != "cloud" || !strings.HasPrefix(arg, "-"):
		case strings.Contains(arg, "="):
			last = value
		case i+1 < len(args):
			last = args[i+1]
		}
	}
	return last
}

// runVolumes lists what is in a node's pools, snapshots and orphans too, or removes exactly one. It
// compares nothing with the cluster: the claim's name beside each volume lets the operator do that.
// The list goes to stdout and a word about orphans to stderr. Wrong flags are driver.ErrCommandLine, all at once.
func runVolumes(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parseVolumes(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	var configs []pool.Config
	for _, p := range cfg.pools {
		configs = append(configs, pool.Config{Name: p.Name, Dir: p.Dir, Node: cfg.node, MustExist: true})
	}
	pools, err := pool.OpenSet(ctx, configs...)
	if err != nil {
		return err
	}
	if cfg.remove != "" {
		return removeVolume(ctx, pools, cfg.remove, stdout)
	}
	// A pool that is missing does not hide the others; it makes the command fail.
	usable, missing := pools.Pools(ctx)
	rows := []volumeRow{}
	orphans := 0
	for _, p := range usable {
		entries, err := listPool(ctx, p)
		if err != nil {
			return err
		}
		for _, e := range entries {
			rows = append(rows, newVolumeRow(ctx, p, e))
			if e.Kind != pool.Whole && e.Kind != pool.UnderWay && e.Kind != pool.Newer {
				orphans++
			}
		}
	}
	if orphans > 0 {
		_, _ = fmt.Fprintf(stderr, "%d of %d are orphans; the driver never removes them by itself; use --delete ID\n", orphans, len(rows))
	}
	if cfg.output == "json" {
		return errors.Join(writeJSON(stdout, rows), missing)
	}
	return errors.Join(printVolumes(stdout, rows, len(cfg.pools) > 1), missing)
}

// listPool returns the volumes and the snapshots of a pool.
func listPool(ctx context.Context, p pool.Storage) ([]pool.Entry, error) {
	entries, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	snapshots, err := p.ListSnapshots(ctx)
	return append(entries, snapshots...), err
}

func writeJSON(w io.Writer, rows any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

// parseVolumes reads the flags. With --help it writes them to out and returns flag.ErrHelp.
func parseVolumes(args []string, out io.Writer) (volumesConfig, error) {
	var cfg volumesConfig
	fs := flag.NewFlagSet("cloudblock-controller volumes", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.cloud, "cloud", "", "local; the other clouds have flags of their own")
	fs.Var(driver.List(&cfg.poolFlags), "local-pool", driver.LocalPoolUsage)
	fs.StringVar(&cfg.node, "node-id", "", "name of the node that the pool must belong to (default: any)")
	fs.StringVar(&cfg.remove, "delete", "", "remove the volume, snapshot or orphan with exactly this id, with its data; refused while in use")
	fs.StringVar(&cfg.output, "output", "table", "table or json")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprint(out, "Usage: cloudblock-controller volumes --cloud local --local-pool [NAME=]DIR... [--output json] [--delete ID]\n\n"+
			"Lists the volumes, snapshots and orphans of a node's pools, or removes exactly one.\n\n")
		fs.SetOutput(out)
		fs.PrintDefaults()
		return cfg, err
	}
	var poolErr error
	cfg.pools, poolErr = driver.ParseLocalPools(cfg.poolFlags, pool.CheckName)
	if err := errors.Join(err, poolErr, cfg.validate(fs)); err != nil {
		return cfg, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return cfg, nil
}

func (c volumesConfig) validate(fs *flag.FlagSet) error {
	var wrong []error
	add := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(format, args...))
	}
	if len(c.poolFlags) == 0 {
		add("--local-pool: required")
	}
	if c.node != "" {
		if err := pool.CheckNode(c.node); err != nil {
			add("--node-id: %w", err)
		}
	}
	deleteSet := false
	fs.Visit(func(f *flag.Flag) { deleteSet = deleteSet || f.Name == "delete" })
	if deleteSet {
		if _, _, err := parseVolumeID(c.remove); err != nil {
			add("--delete: %w", err)
		}
	}
	if c.output != "table" && c.output != "json" {
		add("--output %q: table or json", c.output)
	}
	if fs.NArg() > 0 {
		add("unknown argument %q", fs.Arg(0))
	}
	return errors.Join(wrong...)
}

// parseVolumeID reads an id as the list shows it, or only its last part.
func parseVolumeID(s string) (h pool.Handle, snapshot bool, err error) {
	last := s[strings.LastIndex(s, "/")+1:]
	snapshot = strings.HasPrefix(last, "snap-")
	switch {
	case !strings.Contains(s, "/"):
		h.ID, err = pool.ParseID(strings.TrimPrefix(s, "snap-"))
	case snapshot:
		h, err = pool.ParseSnapshotHandle(s)
	default:
		h, err = pool.ParseHandle(s)
	}
	return h, snapshot, err
}

// removeVolume removes from the pool that the id names, or from the one that has the id.
func removeVolume(ctx context.Context, pools *pool.Set, id string, stdout io.Writer) error {
	h, snapshot, err := parseVolumeID(id)
	if err != nil {
		return err
	}
	usable, missing := pools.Pools(ctx)
	for _, p := range usable {
		if h.Pool != "" && (h.Pool != p.Name() || h.Node != p.Node()) {
			continue
		}
		full, remove := p.Handle(h.ID).String(), p.Remove
		if snapshot {
			full, remove = p.Handle(h.ID).Snapshot(), p.RemoveSnapshot
		}
		switch err := remove(ctx, h.ID); {
		case errors.Is(err, fault.NotFound):
			continue
		case err != nil:
			return err
		}
		_, err := fmt.Fprintf(stdout, "deleted %s\n", full)
		return err
	}
	return errors.Join(fmt.Errorf("%s is in no pool of --local-pool: %w", id, fault.NotFound), missing)
}

// volumeRow is one line of the list; its JSON form is for scripts and does not change.
type volumeRow struct {
	ID        string     `json:"id,omitempty"`
	Pool      string     `json:"pool,omitempty"`
	File      string     `json:"file"`
	State     string     `json:"state"`
	Problem   string     `json:"problem,omitempty"`
	Name      string     `json:"name,omitempty"`
	Size      int64      `json:"size"`
	Allocated int64      `json:"allocated"`
	InUse     bool       `json:"inUse"`
	UsedBy    string     `json:"usedBy,omitempty"`
	Namespace string     `json:"pvcNamespace,omitempty"`
	Claim     string     `json:"pvc,omitempty"`
	PV        string     `json:"pv,omitempty"`
	Created   *time.Time `json:"created,omitempty"`
	// SnapshotOf is the volume that a snapshot was made of; Source what a volume was copied from.
	SnapshotOf string `json:"snapshotOf,omitempty"`
	Source     string `json:"source,omitempty"`
}

func newVolumeRow(ctx context.Context, p pool.Storage, e pool.Entry) volumeRow {
	r := e.Record
	row := volumeRow{
		Pool: p.Name(), File: e.File, State: string(e.Kind), Problem: e.Problem, Name: r.Name, Size: e.Size, Allocated: e.Allocated,
		Namespace: r.Tag("cloudblock-pvc-namespace"), Claim: r.Tag("cloudblock-pvc"), PV: r.Tag("cloudblock-pv"),
	}
	switch {
	case e.ID == "":
	case e.Snapshot:
		row.ID = p.Handle(e.ID).Snapshot()
	default:
		row.ID = p.Handle(e.ID).String()
	}
	if r.Volume != "" {
		row.SnapshotOf = p.Handle(r.Volume).String()
	}
	switch from := r.SourceOf(); {
	case from.Volume != "":
		row.Source = p.Handle(from.Volume).String()
	case from.Snapshot != "":
		row.Source = p.Handle(from.Snapshot).Snapshot()
	}
	if !r.Created.IsZero() {
		row.Created = &r.Created
	}
	if e.Kind == pool.Whole {
		row.State, row.Size = string(r.State), r.Size
		if r.GrowTo > 0 {
			row.State = "growing"
		}
	}
	if e.Kind == pool.NoImage || e.Kind == pool.Unknown || e.Kind == pool.UnderWay {
		return row
	}
	// An image that cannot be looked at must not hide the others; the row says why instead.
	user, err := p.InUse(ctx, e)
	if err != nil && row.Problem == "" {
		row.Problem = err.Error()
	}
	row.UsedBy, row.InUse = user, user != ""
	return row
}

// printVolumes prints the list as a table, with the pool of each where there are several.
func printVolumes(w io.Writer, rows []volumeRow, several bool) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := []string{"ID", "CLAIM", "NAME", "SIZE", "ALLOCATED", "IN USE", "CREATED", "STATE"}
	if several {
		head = slices.Insert(head, 1, "POOL")
	}
	fmt.Fprintln(tw, strings.Join(head, "\t")) //nolint:errcheck // Flush returns it
	for _, r := range rows {
		claim, created := "-", "-"
		if r.Claim != "" {
			claim = r.Namespace + "/" + r.Claim
		}
		if r.Created != nil {
			created = r.Created.Format(time.RFC3339)
		}
		state := r.State
		if r.Problem != "" {
			state += ": " + r.Problem
		}
		id, name, used := r.ID, r.Name, r.UsedBy
		if id == "" {
			id = r.File
		}
		if claim == "-" && r.SnapshotOf != "" {
			claim = "snapshot of " + r.SnapshotOf
		}
		columns := []string{id, claim, name, cloud.Bytes(r.Size).String(), mebibytes(r.Allocated), used, created, state}
		if several {
			columns = slices.Insert(columns, 1, r.Pool)
		}
		for i, c := range columns {
			columns[i] = printable(c)
		}
		fmt.Fprintln(tw, strings.Join(columns, "\t")) //nolint:errcheck // Flush returns it
	}
	return tw.Flush()
}

// mebibytes keeps one digit: what is allocated is rarely a round number.
func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

// printable quotes what would disturb the table or the terminal; names come from outside.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	for _, c := range s {
		if !strconv.IsPrint(c) {
			return strconv.Quote(s)
		}
	}
	return s
}
