package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

const volumesUsage = `Usage: cloudblock-controller volumes --cloud local --local-pool [NAME=]DIR... [flags]
       cloudblock-controller volumes --cloud CLOUD [--credentials-file FILE] --cluster-id ID [flags]

Lists the volumes and snapshots that the cluster's driver has in an account of a cloud, or everything in the pools of a node; or what
no pod uses, what they cost, and sums of both; or deletes exactly one. It takes the flags of the program too.`

// volumesConfig has the flags of the sub-command "volumes".
type volumesConfig struct {
	config

	remove, output, claimed string
	all, unowned            bool

	claims *claims       // the content of the file of --claimed; nil without that flag
	unused time.Duration // 0: without --unused
	sumBy  []string      // keys of sumKeys

	// price and snapshotPrice are those of a GiB for a month; nil: unknown. regions are the regions with a price of their own.
	price, snapshotPrice *float64
	regions              map[string]float64
	publishedPrice       bool
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
	cfg.claims.judge(rows)
	if cfg.remove != "" {
		return cfg.removeOne(ctx, in, rows, missing, stdout)
	}
	rows = cfg.chosen(rows, stderr)
	cfg.setPrices(rows)
	return errors.Join(cfg.print(stdout, rows), missing)
}

// chosen returns the rows that --all and --unused choose, and writes to notes what the list does not show.
func (c *volumesConfig) chosen(rows []row, notes io.Writer) []row {
	var others, unmarked, damaged int
	chosen, doubts, since := []row{}, map[string]int{}, time.Now().Add(-c.unused)
	for _, r := range rows {
		switch {
		case c.all || r.Ours || r.Claimed != nil && *r.Claimed:
			if c.unused > 0 && !r.isUnused(since) {
				continue
			}
			chosen = append(chosen, r)
			if r.damaged {
				damaged++
			}
			if r.doubt != "" {
				doubts[r.doubt]++
			}
		case r.made:
			others++
		default:
			unmarked++
		}
	}
	if others+unmarked > 0 {
		_, _ = fmt.Fprintf(notes, "not listed: %d of other clusters, %d on which nothing says whose they are; --all lists them\n", others, unmarked)
	}
	if damaged > 0 {
		_, _ = fmt.Fprintf(notes, "%d of %d are damaged, and the driver never removes them by itself; put back what is missing: --delete ID also removes data that is still there\n", damaged, len(chosen))
	}
	for _, why := range slices.Sorted(maps.Keys(doubts)) {
		_, _ = fmt.Fprintf(notes, "unknown whether an orphan: %d, because %s\n", doubts[why], why)
	}
	return chosen
}

// isUnused sets Unused, and reports whether no pod has used a volume since before, as far as anything says. A volume that is not
// attached and of which nothing says since when is unused for an unknown time.
func (r *row) isUnused(before time.Time) bool {
	switch {
	case r.Kind != kindVolume || r.Temporary || r.used || len(r.AttachedTo) > 0 || r.InUse != nil && *r.InUse:
	case r.UnusedSince == nil:
		r.Unused = unknown
	case !r.UnusedSince.After(before):
		r.Unused = "yes"
	}
	return r.Unused != ""
}

// setPrices sets what each row costs a month.
func (c *volumesConfig) setPrices(rows []row) {
	for i := range rows {
		r := &rows[i]
		price := c.price
		if own, is := c.regions[r.Zone]; is {
			price = &own
		}
		if r.Kind == kindSnapshot && (c.snapshotPrice != nil || !c.backend.snapshotsAreVolumes) {
			price = c.snapshotPrice
		}
		if price != nil {
			r.Price = new(millionths(*price * float64(r.Size) / (1 << 30)))
		}
	}
}

// print prints the rows, or with --sum-by their sums.
func (c *volumesConfig) print(w io.Writer, rows []row) error {
	if len(c.sumBy) == 0 {
		return printAs(w, c.output, rows, columns)
	}
	sums := sumBy(rows, c.sumBy)
	if c.output == "table" {
		var total sum
		for i := range rows {
			total.add(&rows[i])
		}
		*sumKeys[c.sumBy[0]].in(&total) = "total"
		sums = append(sums, total)
	}
	return printAs(w, c.output, sums, sumColumns)
}

func printAs[T any](w io.Writer, output string, rows []T, columns []column[T]) error {
	switch output {
	case "csv":
		return printCSV(w, rows)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	return printRows(w, rows, columns)
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
	err = errors.Join(err, settings.Read(fs, environ), cfg.validate(environ), cfg.check())
	if cfg.backend.everything != nil {
		cfg.backend.everything(&cfg.config)
	}
	fs.Visit(func(f *flag.Flag) {
		switch {
		case f.Name == "delete" && cfg.remove == "":
			err = errors.Join(err, errors.New("--delete: it needs an id"))
		case f.Name == "claimed" && cfg.claimed == "": // without the list --delete would not refuse what it lists
			err = errors.Join(err, errors.New("--claimed: it needs a file, or - for the standard input"))
		case f.Name == "delete" && cfg.backend.perNode:
			_, volumeErr := pool.ParseHandle(cfg.remove)
			if _, snapshotErr := pool.ParseSnapshotHandle(cfg.remove); volumeErr != nil && snapshotErr != nil {
				err = errors.Join(err, driver.InFlag("--delete", volumeErr))
			}
		case (f.Name == "all" || f.Name == "unowned") && cfg.backend.perNode:
			err = errors.Join(err, fmt.Errorf("--%s: there is no such thing with --cloud %s", f.Name, cfg.Cloud))
		}
	})
	if err != nil {
		return cfg, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return cfg, nil
}

// own adds the flags that only this sub-command has.
func (c *volumesConfig) own(fs *flag.FlagSet) {
	fs.Func("delete", "delete the volume, snapshot or orphan with exactly this `ID`, with its data; refused while it is in use or --claimed lists it", once(&c.remove))
	fs.StringVar(&c.output, "output", "table", "table, json or csv")
	fs.BoolVar(&c.all, "all", false, "list what others have in the account too")
	fs.BoolVar(&c.unowned, "unowned", false, "let --delete remove what nothing on it says whose it is")
	fs.Func("claimed", "a `file` with what the cluster has: the output of kubectl get pv,pvc,volumesnapshotcontents -A -o json, or a volume or snapshot handle on each line; - is the standard input", once(&c.claimed))
	fs.Func("unused", "list only volumes that no pod has used for this `time`, such as 30d, according to --claimed, and apart from them those that are not attached now and of which nothing says since when", parseAge(&c.unused))
	fs.Func("price", "the `price` of a GiB of a volume for a month, in any currency; or auto, where the driver can read it from the cloud", func(text string) error {
		if c.publishedPrice = text == "auto"; c.publishedPrice {
			return nil
		}
		return parsePrice(&c.price)(text)
	})
	fs.Func("snapshot-price", "the `price` of a GiB of a snapshot for a month (default: none, or that of a volume where the cloud bills a snapshot as one)", parsePrice(&c.snapshotPrice))
	fs.Func("sum-by", "print sums of what would be listed, by these `keys`: some of cluster,namespace,class,orphan,unused", func(text string) error {
		c.sumBy = strings.Split(text, ",")
		for i, key := range c.sumBy {
			if _, known := sumKeys[key]; !known || slices.Contains(c.sumBy[:i], key) {
				return fmt.Errorf("%q: each key is cluster, namespace, class, orphan or unused, and is given once", key)
			}
		}
		return nil
	})
}

// once returns a flag's function that sets a variable. Package flag would take the last of several values and ignore the others.
func once(to *string) func(string) error {
	return func(text string) error {
		if *to != "" {
			return errors.New("it is given twice")
		}
		*to = text
		return nil
	}
}

// maxAge is a hundred years, in days.
const maxAge = 100 * 365

// parseAge returns a flag's function that parses days, such as 30d, or another duration, such as 12h, into a variable.
func parseAge(to *time.Duration) func(string) error {
	return func(text string) error {
		age, err := time.ParseDuration(text)
		if days, is := strings.CutSuffix(text, "d"); is {
			var n int
			n, err = strconv.Atoi(days)
			age = time.Duration(min(max(n, 0), maxAge+1)) * 24 * time.Hour
		}
		if err != nil || age <= 0 || age > maxAge*24*time.Hour {
			return errors.New("not a time, such as 30d or 12h")
		}
		*to = age
		return nil
	}
}

// parsePrice returns a flag's function that parses a price into a variable.
func parsePrice(to **float64) func(string) error {
	return func(text string) error {
		price, err := strconv.ParseFloat(text, 64)
		if err != nil || !(price >= 0 && price < 1e6) {
			return errors.New("not a price, such as 0.10")
		}
		*to = &price
		return nil
	}
}

// check checks the flags of the sub-command, and reads the file of --claimed.
func (c *volumesConfig) check() (err error) {
	if !slices.Contains([]string{"table", "json", "csv"}, c.output) {
		err = fmt.Errorf("--output %q: table, json or csv", c.output)
	}
	if c.unowned && c.remove == "" {
		err = errors.Join(err, errors.New("--unowned: only with --delete"))
	}
	if c.publishedPrice && c.backend.prices == nil {
		err = errors.Join(err, fmt.Errorf("--price auto: --cloud %s has no list of prices; give a number", c.Cloud))
	}
	if c.unused > 0 && len(c.sumBy) > 0 && !slices.Contains(c.sumBy, "unused") {
		c.sumBy = append(c.sumBy, "unused") // no sum of what is unused and what may be
	}
	if c.claimed != "" {
		var readErr error
		c.claims, readErr = readClaims(c.claimed)
		err = errors.Join(err, driver.InFlag("--claimed", readErr))
	}
	return err
}

// removeOne deletes the object of one row, but none that is another cluster's, in use or in --claimed. --all affects the list only.
func (c *volumesConfig) removeOne(ctx context.Context, in inventory, rows []row, missing error, stdout io.Writer) error {
	at := slices.IndexFunc(rows, func(r row) bool { return r.ID == c.remove })
	if at < 0 {
		return errors.Join(fmt.Errorf("delete %s: there is no volume or snapshot with this id: %w", c.remove, fault.NotFound), missing)
	}
	r := &rows[at]
	switch err := r.owned("delete", c.clusterID, c.unowned); {
	case r.Claimed != nil && *r.Claimed:
		return fmt.Errorf("delete %s: the cluster claims it: %w", r.ID, fault.Precondition)
	case c.claims != nil && !c.claims.known:
		return fmt.Errorf("delete %s: %s, or leave out --claimed: %w", r.ID, foreignList, fault.Precondition)
	case err != nil:
		return err
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

// owned returns an error if an object is not that of a cluster. unowned: nothing on it needs to say whose it is.
func (r *row) owned(doing, cluster string, unowned bool) error {
	switch {
	case r.made && !r.Ours && r.Cluster == "":
		return fmt.Errorf("%s %s: another cluster's driver made it, and not that of --cluster-id %q: %w", doing, r.ID, cluster, fault.Precondition)
	case r.made && !r.Ours:
		return fmt.Errorf("%s %s: it was made with --cluster-id %q: %w", doing, r.ID, r.Cluster, fault.Precondition)
	case !r.Ours && !unowned:
		return fmt.Errorf("%s %s: nothing on it says whose it is; use --unowned if it is yours all the same: %w", doing, r.ID, fault.Precondition)
	}
	return nil
}
