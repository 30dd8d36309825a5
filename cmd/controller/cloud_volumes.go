package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// inventoryConfig holds the flags of the sub-command "volumes" for clouds that are reached over the network.
type inventoryConfig struct {
	config

	remove, output, claimed string
	all, unowned            bool

	handles []string // what --claimed lists; nil: it is not given
}

// runInventory lists the volumes and snapshots that this cluster's driver has in a cloud, or deletes exactly one. Wrong
// flags are driver.ErrCommandLine, all at once.
func runInventory(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	cfg, err := parseInventory(args, environ, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	log, err := driver.NewLogger(cfg.LogLevel, "console", stderr)
	if err != nil {
		return err
	}
	c, end, err := cfg.backend.open(ctx, cfg.config, surroundings{log: log, registry: prometheus.NewRegistry()})
	if err != nil {
		return fmt.Errorf("open --cloud %s: %w", cfg.Cloud, err)
	}
	defer func() {
		if err := end(context.WithoutCancel(ctx)); err != nil {
			log.Warn("close the backend", zap.Error(err))
		}
	}()
	items, err := inventory(ctx, c)
	if err != nil {
		return err
	}
	if cfg.remove != "" {
		return cfg.removeItem(ctx, c, items, stdout)
	}
	return cfg.print(items, stdout)
}

func parseInventory(args []string, environ driver.Environment, out io.Writer) (inventoryConfig, error) {
	var cfg inventoryConfig
	fs := cfg.flags()
	settings := driver.SettingsOf(fs, nodeSettings...) // not the flags of the sub-command alone
	fs.StringVar(&cfg.remove, "delete", "", "delete the volume or snapshot with exactly this `ID`, with its data; refused while it is attached or --claimed lists it")
	fs.StringVar(&cfg.output, "output", "table", "table or json")
	fs.BoolVar(&cfg.all, "all", false, "list what others have in the account too")
	fs.BoolVar(&cfg.unowned, "unowned", false, "let --delete remove what nothing on it says whose it is")
	fs.StringVar(&cfg.claimed, "claimed", "", "a `file` with a volume or snapshot handle on each line, as the cluster's PersistentVolumes and VolumeSnapshotContents have them; - is the standard input")
	err := driver.ParseArgs(fs, args, out, usage)
	if errors.Is(err, flag.ErrHelp) {
		return cfg, err
	}
	err = errors.Join(err, settings.Read(fs, environ), cfg.validate(environ))
	if cfg.unowned && cfg.remove == "" {
		err = errors.Join(err, errors.New("--unowned: only with --delete"))
	}
	if cfg.output != "table" && cfg.output != "json" {
		err = errors.Join(err, fmt.Errorf("--output %q: table or json", cfg.output))
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

// readHandles reads one handle from each line of a file that is not blank. A file without any is an error: it would
// make everything look unclaimed.
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

// item is a volume or a snapshot in a cloud; its JSON form is for scripts and does not change.
type item struct {
	ID         string         `json:"id"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name,omitempty"`
	Size       int64          `json:"size"`
	Zone       string         `json:"zone,omitempty"`
	AttachedTo []cloud.NodeID `json:"attachedTo,omitempty"`
	// Cluster is the --cluster-id that it was made with, Ours whether this cluster's driver made it, Temporary whether it is
	// what a clone goes through.
	Cluster   string     `json:"cluster,omitempty"`
	Ours      bool       `json:"ours"`
	Temporary bool       `json:"temporary,omitempty"`
	Namespace string     `json:"pvcNamespace,omitempty"`
	Claim     string     `json:"pvc,omitempty"`
	PV        string     `json:"pv,omitempty"`
	Created   *time.Time `json:"created,omitempty"`
	// SnapshotOf is the volume that a snapshot was made of.
	SnapshotOf string `json:"snapshotOf,omitempty"`
	// Claimed is whether --claimed lists it; absent without that flag.
	Claimed *bool  `json:"claimed,omitempty"`
	Problem string `json:"problem,omitempty"`

	made bool // by this driver, for whatever cluster
}

const (
	kindVolume   = "volume"
	kindSnapshot = "snapshot"
)

// inventory reads all volumes and snapshots that the credentials see.
func inventory(ctx context.Context, c cloud.Cloud) ([]item, error) {
	var items []item
	for page := (cloud.Page{}); ; {
		list, err := c.ListVolumes(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Volumes {
			items = append(items, volumeItem(&list.Volumes[i]))
		}
		if page.Token = list.Next; page.Token == "" {
			break
		}
	}
	if !c.Capabilities().Snapshots {
		return items, nil
	}
	for page := (cloud.Page{}); ; {
		list, err := c.ListSnapshots(ctx, "", page)
		if err != nil {
			return nil, err
		}
		for _, s := range list.Snapshots {
			items = append(items, item{
				ID: string(s.ID), Kind: kindSnapshot, Name: s.Name, Size: int64(s.Size), Zone: s.Zone, Created: &s.Created, SnapshotOf: string(s.Volume),
				Cluster: s.Mark.Cluster, Temporary: s.Mark.Temporary, made: s.Mark.Driver,
			})
		}
		if page.Token = list.Next; page.Token == "" {
			return items, nil
		}
	}
}

func volumeItem(v *cloud.Volume) item {
	row := item{
		ID: string(v.ID), Kind: kindVolume, Name: v.Name, Size: int64(v.Size), Zone: v.Zone, AttachedTo: v.AttachedTo, Problem: v.Health.Message,
		Cluster: v.Mark.Cluster, Temporary: v.Mark.Temporary, made: v.Mark.Driver,
	}
	for _, t := range v.Tags {
		switch t.Key {
		case "cloudblock-pvc-namespace":
			row.Namespace = t.Value
		case "cloudblock-pvc":
			row.Claim = t.Value
		case "cloudblock-pv":
			row.PV = t.Value
		}
	}
	return row
}

// judge says of each item whether this cluster's driver made it, by the item's own mark, and whether the cluster claims it.
func (c *inventoryConfig) judge(items []item) {
	for i := range items {
		it := &items[i]
		it.Ours = it.made && it.Cluster == c.clusterID
		if c.handles != nil {
			claimed := slices.ContainsFunc(c.handles, it.hasHandle)
			it.Claimed = &claimed
		}
	}
}

// hasHandle reports whether a handle is of this item. Those of one vendor's driver go on behind the id.
func (it *item) hasHandle(handle string) bool {
	return handle == it.ID || strings.HasPrefix(handle, it.ID+"-")
}

// removeItem deletes one item, and nothing that is another cluster's or still claimed. --all is about the list only.
func (c *inventoryConfig) removeItem(ctx context.Context, from cloud.Cloud, items []item, stdout io.Writer) error {
	c.judge(items)
	at := slices.IndexFunc(items, func(it item) bool { return it.ID == c.remove })
	if at < 0 {
		return fmt.Errorf("delete %s: there is no volume or snapshot with this id: %w", c.remove, fault.NotFound)
	}
	it := &items[at]
	switch {
	case it.Claimed != nil && *it.Claimed:
		return fmt.Errorf("delete %s: the cluster claims it: %w", it.ID, fault.Precondition)
	case it.made && !it.Ours && it.Cluster == "":
		return fmt.Errorf("delete %s: another cluster's driver made it, and not that of --cluster-id %q: %w", it.ID, c.clusterID, fault.Precondition)
	case it.made && !it.Ours:
		return fmt.Errorf("delete %s: it was made with --cluster-id %q: %w", it.ID, it.Cluster, fault.Precondition)
	case !it.Ours && !c.unowned:
		return fmt.Errorf("delete %s: nothing on it says whose it is; with --unowned it is deleted all the same: %w", it.ID, fault.Precondition)
	case it.Temporary && it.Kind == kindVolume:
		return fmt.Errorf("delete %s: it is the unfinished copy of a clone; the controller finishes it when CreateVolume is repeated, else removes it: %w", it.ID, fault.Precondition)
	case len(it.AttachedTo) > 0:
		return fmt.Errorf("delete %s: it is attached to %v: %w", it.ID, it.AttachedTo, fault.Precondition)
	}
	var err error
	if it.Kind == kindSnapshot {
		err = from.DeleteSnapshot(ctx, cloud.SnapshotID(it.ID))
	} else {
		err = from.DeleteVolume(ctx, cloud.VolumeID(it.ID))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "deleted %s %s\n", it.Kind, it.ID)
	return err
}

func (c *inventoryConfig) print(items []item, stdout io.Writer) error {
	c.judge(items)
	if !c.all {
		items = slices.DeleteFunc(items, func(it item) bool { return !it.Ours })
	}
	if c.output == "json" {
		return writeJSON(stdout, items)
	}
	tw := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tKIND\tCLAIM\tNAME\tSIZE\tZONE\tATTACHED TO\tCLAIMED\tCLUSTER") //nolint:errcheck // Flush returns it
	for i := range items {
		it := &items[i]
		claim, claimed := "", ""
		switch {
		case it.Temporary:
			claim = "temporary, of a clone"
		case it.Claim != "":
			claim = it.Namespace + "/" + it.Claim
		case it.SnapshotOf != "":
			claim = "snapshot of " + it.SnapshotOf
		}
		if it.Claimed != nil {
			claimed = map[bool]string{true: "yes", false: "no"}[*it.Claimed]
		}
		var nodes []string
		for _, n := range it.AttachedTo {
			nodes = append(nodes, string(n))
		}
		columns := []string{
			it.ID, it.Kind, claim, it.Name, cloud.Bytes(it.Size).String(), it.Zone, strings.Join(nodes, ","), claimed, it.Cluster,
		}
		for i, column := range columns {
			columns[i] = printable(column)
		}
		fmt.Fprintln(tw, strings.Join(columns, "\t")) //nolint:errcheck // Flush returns it
	}
	return tw.Flush()
}
