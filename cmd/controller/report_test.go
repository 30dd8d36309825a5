package main

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// reported runs the sub-command on an account and returns its rows, its table, and the notes on stderr.
func (a *inCloud) reported(args ...string) (rows map[string]row, table, notes string) {
	a.t.Helper()
	var list []row
	for _, output := range []string{"json", "table"} {
		var out, stderr bytes.Buffer
		ok(a.t, run(a.t.Context(), slices.Concat([]string{"volumes"}, a.flags, []string{"--cluster-id=prod", "--output=" + output}, args), noEnvironment, &out, &stderr))
		if table, notes = out.String(), stderr.String(); output == "json" {
			list = listed[row](a.t, out.String(), nil)
		}
	}
	rows = map[string]row{}
	for _, r := range list {
		rows[r.Name] = r
	}
	return rows, table, notes
}

// What the claims give a date for is unused since then. What has no date is listed apart from that if nothing has it attached, and never
// counts as unused for any time.
func TestUnusedTellsWhatHasNoDate(t *testing.T) {
	a := newInCloud(t, "linode")
	day, now := 24*time.Hour, time.Now()
	items, machine := []string{}, a.account.Machines()[0]
	for _, c := range []struct {
		name, status string
		since        time.Duration
		attached     bool
	}{
		{"long", "True", 40 * day, false},
		{"short", "True", 10 * day, false},
		{"used", "False", 40 * day, false},
		{"undated", "", 0, false},
		{"doubtful", "Unknown", 40 * day, false},
		{"undated-attached", "", 0, true},
		{"long-attached", "True", 40 * day, true},
	} {
		v := a.create("prod", c.name)
		items = append(items, pvOf(c.name, string(v.ID)), claimOf(c.name, c.status, now.Add(-c.since)))
		if c.attached {
			a.account.Attached(string(v.ID), machine)
		}
	}
	a.create("prod", "unclaimed")
	a.create("test", "theirs")
	file := objectsFile(t, 0, items...)

	rows, table, _ := a.reported("--claimed="+file, "--unused=30d", "--price=0.1")
	want := map[string]string{"long": "yes", "undated": unknown, "doubtful": unknown, "unclaimed": unknown}
	for name, unused := range want {
		if r := rows[name]; r.Unused != unused || (r.UnusedSince != nil) != (unused == "yes") {
			t.Errorf("%s is %+v, want it unused: %s", name, r, unused)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("listed are %d, want only %v:\n%s", len(rows), want, table)
	}
	if n := strings.Count(table, "unattached now, time unknown"); n != 3 {
		t.Errorf("the table says of %d that their time is unknown, want 3:\n%s", n, table)
	}
	out, err := a.volumes("--claimed="+file, "--unused=30d", "--price=0.1", "--sum-by=namespace", "--output=json")
	sums := listed[sum](t, out, err)
	for _, s := range sums {
		if s.Unused == "yes" && s.Volumes != 1 || s.Unused == unknown && s.Volumes != 3 || *s.Price != s.GiB/10 || len(sums) != 2 {
			t.Errorf("the sums are %s, want one volume that is unused and three of which that is unknown, apart", out)
		}
	}
	if rows, _, _ = a.reported("--claimed="+file, "--unused=240h"); rows["short"].Unused != "yes" {
		t.Errorf("what is unused for 10 days is not among that for 240 h: %+v", rows)
	}
	if rows, _, _ = a.reported("--unused=30d"); len(rows) != 6 || rows["long"].Unused != unknown {
		t.Errorf("without --claimed: %+v, want each volume that is not attached, of an unknown time", rows)
	}
}

// An account is listed once, and its prices are read once. What the list leaves out is said.
func TestReportReadsEachListOnce(t *testing.T) {
	a := newInCloud(t, "linode")
	v := a.create("prod", "dear")
	a.create("test", "theirs")
	_, err := a.account.AddVolume(accounts.Volume{Name: "foreign"})
	ok(t, err)
	a.account.ResetStats()
	out, err := a.volumes("--price=auto", "--sum-by=cluster", "--output=csv")
	want := "cluster,pvcNamespace,class,orphan,unused,volumes,gib,snapshots,snapshotGiB,pricePerMonth,withoutPrice,orphans,orphansUnknown\n" +
		"prod,,,,,1,10,0,0,1,0,0,1\n"
	if err != nil || out != want {
		t.Errorf("the sums: %v\n%s\nwant:\n%s", err, out, want)
	}
	if s := a.account.Stats(); s.Reads != 3 || s.Writes != 0 {
		t.Errorf("%d reads and %d writes, want one of the volumes, one of the snapshots and one of the prices", s.Reads, s.Writes)
	}
	if _, _, notes := a.reported(); !strings.Contains(notes, "1 of other clusters, 1 on which nothing says whose they are; --all lists them") {
		t.Errorf("the notes are %q", notes)
	}
	// A volume without a mark that a PersistentVolume names is the cluster's own to list.
	foreign := a.account.Volumes()[2]
	rows, table, notes := a.reported("--claimed=" + objectsFile(t, 0, pvOf("dear", string(v.ID)), claimOf("dear", "", time.Time{}), pvOf("old", foreign.ID), claimOf("old", "", time.Time{})))
	if r := rows["foreign"]; len(rows) != 2 || r.Claim != "old" || r.Class != "fast" || r.Orphan != "no" || r.Ours || !strings.Contains(table, unknown) {
		t.Errorf("the list is %+v\n%s%s", rows, table, notes)
	}
}

// Flags of the report that cannot be right are refused, with what would be.
func TestReportNamesEveryWrongFlag(t *testing.T) {
	for _, tc := range []struct{ cloud, flag, want string }{
		{"digitalocean", "--price=auto", "--cloud digitalocean has no list of prices; give a number"},
		{"yandex", "--price=auto", "has no list of prices"},
		{"local", "--price=auto", "has no list of prices"},
		{"linode", "--price=cheap", "not a price"},
		{"linode", "--price=-1", "not a price"},
		{"linode", "--snapshot-price=NaN", "not a price"},
		{"linode", "--unused=30", "not a time"},
		{"linode", "--unused=-1d", "not a time"},
		{"linode", "--unused=99999999999d", "not a time"},
		{"linode", "--unused=213504d", "not a time"}, // whose nanoseconds are those of 25 minutes, modulo 2^64
		{"linode", "--unused=-200000d", "not a time"},
		{"linode", "--sum-by=namespace,shape", `"shape"`},
		{"linode", "--sum-by=class,class", `"class"`},
		{"linode", "--sum-by=", `""`},
		{"linode", "--output=xml", "table, json or csv"},
	} {
		args := []string{"volumes", "--cloud=" + tc.cloud, "--cluster-id=prod", "--credentials-file=/nowhere", tc.flag}
		if tc.cloud == "local" {
			args = []string{"volumes", "--cloud=local", "--local-pool=/nowhere", tc.flag}
		}
		var out bytes.Buffer
		if err := run(t.Context(), args, noEnvironment, &out, &out); !errors.Is(err, driver.ErrCommandLine) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want a wrong command line that says %q", tc.cloud, tc.flag, err, tc.want)
		}
	}
}

// A pool is judged by the same list.
func TestReportOfAPool(t *testing.T) {
	p, dir := newPool(t)
	kept, lost := p.Handle(newVolume(t, p, "kept").ID).String(), p.Handle(newVolume(t, p, "lost").ID).String()
	file := objectsFile(t, 2*time.Hour, pvOf("data-kept", kept), claimOf("data-kept", "True", time.Now().Add(-40*24*time.Hour)))
	out, err := volumes(t, dir, "--claimed="+file, "--sum-by=orphan", "--output=json")
	if sums := listed[sum](t, out, err); len(sums) != 2 || sums[1].Orphan != "yes" || sums[1].Volumes != 1 {
		t.Errorf("the sums are %s, want one orphan", out)
	}
	out, err = volumes(t, dir, "--claimed="+file, "--unused=30d", "--output=csv")
	if ok(t, err); !strings.Contains(out, kept) || !strings.Contains(out, lost) || strings.Count(out, ",unknown,") != 1 {
		t.Errorf("the list is %s, want both, and that the time of %s is unknown", out, lost)
	}
}

// The sums count each kind, and price a snapshot as a volume only where the cloud bills it so and no price of snapshots is given. Sums of
// decimal prices are exact.
func TestSumsOfAReport(t *testing.T) {
	of := func(kind, zone, cluster, class, orphan string, gib int64) row {
		return row{Kind: kind, Zone: zone, Cluster: cluster, Class: class, Orphan: orphan, Size: gib << 30, made: true}
	}
	for name, tc := range map[string]struct {
		asVolumes bool
		snapshots *float64
		price     float64 // of the group with the snapshot
		unpriced  int
	}{
		"no price of a snapshot":      {false, nil, 0.34, 1},
		"billed as a volume":          {true, nil, 0.64, 0},
		"a price of its own":          {false, new(0.06), 0.52, 0},
		"a price, billed as a volume": {true, new(0.06), 0.52, 0},
	} {
		rows := []row{
			of(kindVolume, "near", "prod", "", "", 1), of(kindVolume, "near", "prod", "slow", orphanYes, 1), of(kindVolume, "dear", "prod", "slow", orphanNo, 2),
			of(kindSnapshot, "near", "prod", "slow", unknown, 3), of(kindVolume, "near", "", "wide", "", 1),
		}
		cfg := volumesConfig{price: new(0.1), snapshotPrice: tc.snapshots, regions: map[string]float64{"dear": 0.12}}
		cfg.backend.snapshotsAreVolumes = tc.asVolumes
		cfg.setPrices(rows)
		want := []sum{
			{Cluster: "another", Class: "wide", Volumes: 1, GiB: 1, Price: new(0.1), UnknownOrphans: 1},
			{Cluster: "prod", Class: "slow", Volumes: 2, GiB: 3, Snapshots: 1, SnapshotGiB: 3, Price: new(tc.price), Unpriced: tc.unpriced, Orphans: 1, UnknownOrphans: 1},
			{Cluster: "prod", Class: unknown, Volumes: 1, GiB: 1, Price: new(0.1), UnknownOrphans: 1},
		}
		if got := sumBy(rows, []string{"cluster", "class"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the sums are %+v, want %+v", name, got, want)
		}
	}
}

// Scripts parse the report, and people read it.
func TestReportIsAsFrozen(t *testing.T) {
	a := newInCloud(t, "linode")
	used, idle := a.create("prod", "used"), a.create("prod", "idle")
	a.create("prod", "lost")
	a.create("test", "theirs")
	_, err := a.account.AddVolume(accounts.Volume{Name: "foreign"})
	ok(t, err)
	a.account.Attached(string(used.ID), a.account.Machines()[0])
	file := objectsFile(t, 2*time.Hour, pvOf("data-used", string(used.ID)), claimOf("data-used", "False", time.Now()),
		pvOf("data-idle", string(idle.ID)), claimOf("data-idle", "True", time.Now().Add(-1000*time.Hour)))
	for _, output := range []string{"json", "csv", "table"} {
		for name, flags := range map[string][]string{"report": nil, "unused": {"--unused=30d"}, "sums": {"--sum-by=cluster,namespace,class"}} {
			out, err := a.volumes(append(flags, "--all", "--price=auto", "--claimed="+file, "--output="+output)...)
			ok(t, err)
			golden.Check(t, "volumes-"+name+"."+output, out)
		}
	}
}

// What the example's containers run works, on an account, and what they print is a report.
func TestExampleOfAReportWorks(t *testing.T) {
	text, err := os.ReadFile("../../deploy/examples/report.yaml")
	ok(t, err)
	a := newInCloud(t, "linode")
	v := a.create("prod", "used")
	file := objectsFile(t, 0, pvOf("data-used", string(v.ID)), claimOf("data-used", "True", time.Now().Add(-1000*time.Hour)))
	commands := strings.Split(string(text), "            args:\n")[1:]
	for i, want := range []string{"total", "CLAIM"} {
		var args []string
		for line := range strings.Lines(commands[i]) {
			arg, is := strings.CutPrefix(strings.TrimSpace(line), "- ")
			if !is {
				break
			}
			args = append(args, strings.ReplaceAll(arg, "/report/objects", file))
		}
		args = append(slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--credentials-file") }), a.flags...)
		var out, stderr bytes.Buffer
		if err := run(t.Context(), append(args, "--cluster-id=prod"), noEnvironment, &out, &stderr); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "1.00") {
			t.Errorf("%q: %v\n%s%s, want a table with %s and the price", args, err, &out, &stderr, want)
		}
	}
	if len(commands) != 2 {
		t.Errorf("the example runs the program %d times", len(commands))
	}
}
