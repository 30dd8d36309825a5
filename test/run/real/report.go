package real

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// LeftOut is a part of the suite that a run does not do.
type LeftOut struct {
	// Pattern is what -skip takes, below the suite's own name.
	Pattern, Why string
}

const (
	foreign  = "the account may have other volumes, which the run does not count"
	tooOften = "DigitalOcean takes one snapshot of a volume in 10 minutes"
	noTwo    = "needs two machines: MACHINES=id,id"
)

var leftOutEverywhere = []LeftOut{
	{"ListVolumes/(without|what_fits|no_page|the_order|fault.StalePage)", foreign},
	{"ListSnapshots/(without|what_fits|no_page|the_order|fault.StalePage)", foreign},
	{"Ids/for_an_id", "requests are not counted"},
	{"Ids/a_node", "an id that is made from a real one may be another machine's"},
	{"Attach/no_free_slot", "costs as many volumes as a machine takes"},
	{"Health/what_is_wrong", "nothing can be made to go wrong with a real volume"},
}

var leftOutDigitalOcean = []LeftOut{
	{"Snapshots/it_removes", tooOften},
	{"Snapshots/it_is_found", tooOften},
	{"Contexts/a_snapshot_that", tooOften},
	{"Snapshots/many_creates", tooOften},
	{"Snapshots/a_name_that_is_taken", tooOften},
}

var leftOutWithoutMachines = []LeftOut{
	{"(Attach|Detach)", noTwo},
	{"Concurrency/many_attaches", noTwo},
	{"Contexts/an_attach", noTwo},
	{"DeleteVolume/a_volume_that_is_attached", noTwo},
	{"ExpandVolume/fault.Precondition_where", noTwo},
	{"ModifyVolume/it_works_on_a_volume_in_use", noTwo},
}

// LeftOut are the parts of the suite that the account's run does not do.
func (a Account) LeftOut() []LeftOut {
	all := slices.Concat(leftOutEverywhere, clouds[a.Cloud].leftOut)
	if len(a.Machines) == 0 {
		all = append(all, leftOutWithoutMachines...)
	}
	return all
}

// Size is that of the smallest volume.
func (a Account) Size() cloud.Bytes { return clouds[a.Cloud].size }

// Parameters are values of a volume that cost no more than the usual ones.
func (a Account) Parameters() []cloud.Parameter { return clouds[a.Cloud].parameters }

// Assumptions are those of the cloud's page.
func (a Account) Assumptions() []Assumption { return clouds[a.Cloud].assumptions }

// NewBudget is what a run of the account may make.
func (a Account) NewBudget(volumes int) *Budget {
	return &Budget{Volumes: volumes, Largest: 4 * a.Size()}
}

// Announce says what the run will do and cost, before its first request.
func (a Account) Announce(out io.Writer, b *Budget, limit time.Duration) {
	c := clouds[a.Cloud]
	where := "the real API"
	if a.Endpoint != "" {
		where = a.Endpoint
	}
	fmt.Fprintf(out, "run %s on %s, region %s, by %s\n", a.Run, a.Cloud, a.Region, where)
	fmt.Fprintf(out, "makes max. %d volumes and snapshots, of %s as a rule and max. %s; their names begin with %s\n", b.Volumes, c.size, b.Largest, a.prefix())
	hours := max(1, int((limit+time.Hour-1)/time.Hour))
	gib := float64(b.Largest) / float64(cloud.GiB)
	fmt.Fprintf(out, "costs max. %.2f %s: each %d h of %s at %.6f %s for a GiB and hour (%s)\n",
		float64(b.Volumes*hours)*gib*c.price, c.currency, hours, b.Largest, c.price, c.currency, c.priceURL)
	fmt.Fprintf(out, "time limit %s; `make e2e-real-clean CLOUD=%s RUN=%s` removes what a run that was killed left\n", limit, a.Cloud, a.Run)
	fmt.Fprintln(out, "not run:")
	for _, l := range a.LeftOut() {
		fmt.Fprintf(out, "  %s: %s\n", l.Pattern, l.Why)
	}
}

// Outcomes are the parts that have ended, with whether each passed.
type Outcomes map[string]bool

// Held says what the run showed of an assumption.
func (o Outcomes) Held(a Assumption) string {
	if a.Shown == "" {
		return "not looked at: " + a.Why
	}
	pattern, seen := regexp.MustCompile(`(^|/)`+a.Shown), false
	for name, passed := range o {
		switch {
		case !pattern.MatchString(name):
		case !passed:
			return "NOT HELD (" + name + ")"
		default:
			seen = true
		}
	}
	if seen {
		return "held"
	}
	return "not looked at: " + strings.TrimSuffix(a.Shown, "$") + " was not run"
}

// Report says what the run showed.
func (a Account) Report(out io.Writer, o Outcomes, b *Budget) {
	fmt.Fprintf(out, "\n%d volumes and snapshots were made; %d parts ran\n\nwhat the driver assumes of the API (docs/contributing/clouds.md):\n", b.Made(), len(o))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, assumption := range a.Assumptions() {
		fmt.Fprintf(table, "  %s\t%s\n", assumption.Text, o.Held(assumption))
	}
	_ = table.Flush()
}
