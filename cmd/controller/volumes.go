package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

const volumesUsage = `Usage: cloudblock-controller volumes --cloud local --local-pool [NAME=]DIR... [flags]
       cloudblock-controller volumes --cloud CLOUD [--credentials-file FILE] --cluster-id ID [flags]

Lists the volumes and snapshots that the cluster's driver has in an account of a cloud, or in the pools of a node with its
orphans; or deletes exactly one. It takes the flags of the program too.`

// volumesConfig has the flags of the sub-command "volumes".
type volumesConfig struct {
	config

	remove, output, claimed string
	all, unowned            bool

	handles []string // the handles in the file of --claimed; nil without that flag
}

// inventory is the account or the pools that the sub-command reads and deletes from.
type inventory interface {
	// list returns all objects. With an error it may return those that could be read.
	list(ctx context.Context) ([]row, error)
	// remove deletes the object of a row, with its data. It refuses an object in use.
	remove(ctx context.Context, r *row) error
}

// runVolumes lists volumes and snapshots, or deletes exactly one. The list goes to stdout and a note about orphans to stderr. The
// mistakes in the flags are one error, driver.ErrCommandLine.
func runVolumes(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	cfg, err := parseVolumes(args, environ, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	in, end, err := cfg.inventory(ctx, stderr)
	if err != nil {
		return err
	}
	defer end()
	// A missing pool does not hide the others; it makes the command fail.
	rows, missing := in.list(ctx)
	if missing != nil && rows == nil {
		return missing
	}
	cfg.judge(rows)
	if cfg.remove != "" {
		return cfg.removeOne(ctx, in, rows, missing, stdout)
	}
	if !cfg.all {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !r.Ours })
	}
	if n := countOrphans(rows); n > 0 {
		_, _ = fmt.Fprintf(stderr, "%d of %d are orphans; the driver never removes them by itself; use --delete ID\n", n, len(rows))
	}
	if cfg.output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return errors.Join(enc.Encode(rows), missing)
	}
	return errors.Join(printRows(stdout, rows), missing)
}

func (c *volumesConfig) inventory(ctx context.Context, stderr io.Writer) (in inventory, end func(), err error) {
	if c.backend.perNode {
		in, err = openPools(ctx, c)
		return in, func() {}, err
	}
	return openAccount(ctx, c, stderr)
}

// parseVolumes parses the flags. For --help it writes those of the sub-command to out and returns flag.ErrHelp.
func parseVolumes(args []string, environ driver.Environment, out io.Writer) (volumesConfig, error) {
	var cfg volumesConfig
	fs := cfg.flags()
	cfg.AnyNode = true
	settings := driver.SettingsOf(fs, nodeSettings...) // without the flags of the sub-command only
	err := driver.ParseCommand(fs, cfg.own, args, out, volumesUsage)
	if errors.Is(err, flag.ErrHelp) {
		return cfg, err
	}
	err = errors.Join(err, settings.Read(fs, environ), cfg.validate(environ), doctor.CheckOutput(cfg.output))
	fs.Visit(func(f *flag.Flag) {
		switch {
		case f.Name == "delete" && cfg.remove == "":
			err = errors.Join(err, errors.New("--delete: it needs an id"))
		case f.Name == "delete" && cfg.backend.perNode:
			_, volumeErr := pool.ParseHandle(cfg.remove)
			if _, snapshotErr := pool.ParseSnapshotHandle(cfg.remove); volumeErr != nil && snapshotErr != nil {
				err = errors.Join(err, driver.InFlag("--delete", volumeErr))
			}
		case (f.Name == "all" || f.Name == "unowned") && cfg.backend.perNode:
			err = errors.Join(err, fmt.Errorf("--%s: there is no such thing with --cloud %s", f.Name, cfg.Cloud))
		}
	})
	if cfg.unowned && cfg.remove == "" {
		err = errors.Join(err, errors.New("--unowned: only with --delete"))
	}
	if cfg.claimed != "" {
		var readErr error
		cfg.handles, readErr = readHandles(cfg.claimed)
		err = errors.Join(err, driver.InFlag("--claimed", readErr))
	}
	if err != nil {
		return cfg, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return cfg, nil
}

// own adds the flags that only this sub-command has.
func (c *volumesConfig) own(fs *flag.FlagSet) {
	fs.StringVar(&c.remove, "delete", "", "delete the volume, snapshot or orphan with exactly this `ID`, with its data; refused while it is in use or --claimed lists it")
	fs.StringVar(&c.output, "output", "table", "table or json")
	fs.BoolVar(&c.all, "all", false, "list what others have in the account too")
	fs.BoolVar(&c.unowned, "unowned", false, "let --delete remove what nothing on it says whose it is")
	fs.StringVar(&c.claimed, "claimed", "", "a `file` with a volume or snapshot handle on each line, as the cluster's PersistentVolumes and VolumeSnapshotContents have them; - is the standard input")
}

// readHandles reads one handle from each line of a file that is not blank. A file without any is an error, because --claimed would
// then list nothing.
func readHandles(name string) ([]string, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	var handles []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if handle := strings.TrimSpace(lines.Text()); handle != "" {
			handles = append(handles, handle)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(handles) == 0 {
		return nil, errors.New("it has no handle")
	}
	return handles, nil
}

// judge sets whether --claimed lists each row.
func (c *volumesConfig) judge(rows []row) {
	if c.handles == nil {
		return
	}
	for i := range rows {
		rows[i].Claimed = new(slices.ContainsFunc(c.handles, rows[i].hasHandle))
	}
}

// removeOne deletes the object of one row, but none that is another cluster's, in use or in --claimed. --all affects the list only.
func (c *volumesConfig) removeOne(ctx context.Context, in inventory, rows []row, missing error, stdout io.Writer) error {
	at := slices.IndexFunc(rows, func(r row) bool { return r.ID == c.remove })
	if at < 0 {
		return errors.Join(fmt.Errorf("delete %s: there is no volume or snapshot with this id: %w", c.remove, fault.NotFound), missing)
	}
	r := &rows[at]
	switch {
	case r.Claimed != nil && *r.Claimed:
		return fmt.Errorf("delete %s: the cluster claims it: %w", r.ID, fault.Precondition)
	case r.made && !r.Ours && r.Cluster == "":
		return fmt.Errorf("delete %s: another cluster's driver made it, and not that of --cluster-id %q: %w", r.ID, c.clusterID, fault.Precondition)
	case r.made && !r.Ours:
		return fmt.Errorf("delete %s: it was made with --cluster-id %q: %w", r.ID, r.Cluster, fault.Precondition)
	case !r.Ours && !c.unowned:
		return fmt.Errorf("delete %s: nothing on it says whose it is; with --unowned it is deleted all the same: %w", r.ID, fault.Precondition)
	case r.Temporary && r.Kind == kindVolume:
		return fmt.Errorf("delete %s: it is the unfinished copy of a clone; the controller finishes it when CreateVolume is repeated, else removes it: %w", r.ID, fault.Precondition)
	case len(r.AttachedTo) > 0:
		return fmt.Errorf("delete %s: it is attached to %v: %w", r.ID, r.AttachedTo, fault.Precondition)
	}
	if err := in.remove(ctx, r); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "deleted %s %s\n", r.Kind, r.ID)
	return err
}
