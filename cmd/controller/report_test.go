package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// pvOf and claimOf are a volume and its claim as kubectl prints them. The condition Unused is left out if its status is empty.
func pvOf(name, handle string) string {
	return fmt.Sprintf(`{"kind":"PersistentVolume","metadata":{"name":"pv-%s"},"spec":{"storageClassName":"fast","csi":{"volumeHandle":%q},
		"claimRef":{"namespace":"shop","name":%q,"uid":"u-%s"}},"status":{"phase":"Bound"}}`, name, handle, name, name)
}

func claimOf(name, unused string, since time.Time) string {
	conditions := ""
	if unused != "" {
		conditions = fmt.Sprintf(`{"type":"Resizing","status":"True","lastTransitionTime":null},{"type":"Unused","status":%q,"lastTransitionTime":%q}`, unused, since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf(`{"kind":"PersistentVolumeClaim","metadata":{"namespace":"shop","name":%q,"uid":"u-%s"},
		"spec":{"volumeName":"pv-%s"},"status":{"phase":"Bound","conditions":[%s]}}`, name, name, name, conditions)
}

// objectsFile writes what kubectl printed a time from now.
func objectsFile(t *testing.T, from time.Duration, items ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects")
	ok(t, os.WriteFile(file, []byte(`{"kind":"List","items":[`+strings.Join(items, ",")+`],"metadata":{"resourceVersion":""}}`), 0o600))
	at := time.Now().Add(from)
	ok(t, os.Chtimes(file, at, at))
	return file
}

// reported runs the sub-command on an account and returns its rows, its table, and the notes on stderr.
func (a *inCloud) reported(args ...string) (rows map[string]row, table, notes string) {
	a.t.Helper()
	var list []row
	for _, output := range []string{"json", "table"} {
		var out, stderr bytes.Buffer
		ok(a.t, run(a.t.Context(), slices.Concat([]string{"volumes"}, a.flags, []string{"--cluster-id=prod", "--output=" + output}, args), noEnvironment, &out, &stderr))
		if table, notes = out.String(), stderr.String(); output == "json" {
			ok(a.t, json.Unmarshal(out.Bytes(), &list))
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
	var sums []sum
	out, err := a.volumes("--claimed="+file, "--unused=30d", "--price=0.1", "--sum-by=namespace", "--output=json")
	ok(t, errors.Join(err, json.Unmarshal([]byte(out), &sums)))
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

// L4: where the list does not prove it, nothing is an orphan, and the notes say why.
func TestDoubtAboutOrphansIsSaid(t *testing.T) {
	a := newInCloud(t, "linode")
	kept, lost := a.create("prod", "kept"), a.create("prod", "lost")
	pv, claim := pvOf("data-kept", string(kept.ID)), claimOf("data-kept", "", time.Time{})
	pending := func(name string) string {
		return fmt.Sprintf(`{"kind":"PersistentVolumeClaim","metadata":{"namespace":"shop","name":%q,"uid":"9","annotations":{"volume.kubernetes.io/storage-provisioner":"x"}},"spec":{},"status":{}}`, name)
	}
	for name, tc := range map[string]struct {
		from  time.Duration
		items []string
		want  string
		notes string
	}{
		"a complete list":              {2 * time.Hour, []string{pv, claim}, "yes", ""},
		"it was written too soon":      {59 * time.Minute, []string{pv, claim}, unknown, "1h0m0s before the file"},
		"without claims":               {2 * time.Hour, []string{pv}, unknown, "no PersistentVolumeClaim"},
		"of one namespace":             {2 * time.Hour, []string{pv, claimOf("other", "", time.Time{})}, unknown, "lacks the claim shop/data-kept of PersistentVolume pv-data-kept"},
		"a claim waits for its volume": {2 * time.Hour, []string{pv, claim, pending("data-lost")}, unknown, "has no PersistentVolume yet"},
		"another claim waits":          {2 * time.Hour, []string{pv, claim, pending("data-new")}, "yes", ""},
		"of another cluster":           {2 * time.Hour, []string{pvOf("a", "999999"), claimOf("a", "", time.Time{})}, unknown, "may be another cluster's"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, table, notes := a.reported("--claimed=" + objectsFile(t, tc.from, tc.items...))
			kept := "no"
			if name == "of another cluster" {
				kept = unknown
			}
			if rows["lost"].Orphan != tc.want || rows["kept"].Orphan != kept || !strings.Contains(notes, tc.notes) || (tc.notes == "") != (notes == "") {
				t.Errorf("the list is\n%s%s\nwant an orphan: %s, and a note %q", table, notes, tc.want, tc.notes)
			}
		})
	}
	a.account.Attached(string(lost.ID), a.account.Machines()[0])
	if rows, _, notes := a.reported("--claimed=" + objectsFile(t, 2*time.Hour, pv, claim)); rows["lost"].Orphan != unknown || !strings.Contains(notes, "attached") {
		t.Errorf("an attached volume is an orphan: %s, %s", rows["lost"].Orphan, notes)
	}
}

// L4: an old list that comes through a pipe, which has no time of its own, is as old as its newest object.
func TestPipedClaimsAreAsOldAsTheirNewestObject(t *testing.T) {
	for name, tc := range map[string]struct {
		newest string // "": no object has a time
		want   string
	}{
		"two hours after the volume":   {"T12:00:00Z", "yes"},
		"an hour before the volume":    {"T09:00:00Z", unknown},
		"right after the volume":       {"T10:59:00Z", unknown},
		"of objects that have no time": {"", unknown},
	} {
		pv, claim := pvOf("kept", "1"), claimOf("kept", "", time.Time{})
		if tc.newest != "" {
			pv = strings.Replace(pv, `"metadata":{`, `"metadata":{"creationTimestamp":"2026-11-02`+tc.newest+`",`, 1)
		}
		pipe := filepath.Join(t.TempDir(), "pipe")
		ok(t, unix.Mkfifo(pipe, 0o600))
		written := make(chan error)
		go func() {
			written <- os.WriteFile(pipe, []byte(`{"kind":"List","items":[`+pv+","+claim+`]}`), 0)
		}()
		c, err := readClaims(pipe)
		ok(t, errors.Join(err, <-written))
		rows := []row{{ID: "lost", Kind: kindVolume, Ours: true, made: true, Created: new(time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC))}, {ID: "1", Ours: true}}
		c.judge(rows)
		if r := rows[0]; r.Orphan != tc.want || r.doubt != "" && !strings.Contains(r.doubt, "before the newest object in --claimed") {
			t.Errorf("a list %s: an orphan %s (%s), want %s", name, r.Orphan, r.doubt, tc.want)
		}
	}
}

// L4: a snapshot that lost what says whose volume it is of may be the one that a VolumeSnapshotContent waits for.
func TestASnapshotOfAnUnknownVolumeMayBeWaitedFor(t *testing.T) {
	content := func(volume, handle string) string {
		return fmt.Sprintf(`{"kind":"VolumeSnapshotContent","spec":{"source":{"volumeHandle":%q}},"status":{"snapshotHandle":%q}}`, volume, handle)
	}
	c, err := readClaims(objectsFile(t, 2*time.Hour, content("7", "70"), content("8", "")))
	ok(t, err)
	for of, want := range map[string]string{"7": "yes", "8": unknown, "": unknown} {
		rows := []row{{ID: "90", Kind: kindSnapshot, SnapshotOf: of, Ours: true, made: true, Created: new(time.Now())}, {ID: "70", Ours: true}}
		if c.judge(rows); rows[0].Orphan != want {
			t.Errorf("a snapshot of the volume %q is an orphan: %s, want %s", of, rows[0].Orphan, want)
		}
	}
}

// A file that is not what it should be is refused before anything is asked.
func TestClaimedThatCannotBeTrusted(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"cut off":              {`{"kind":"List","items":[` + pvOf("a", "1"), "as JSON"},
		"followed by a word":   {`{"kind":"List","items":[` + pvOf("a", "1") + `]} error`, "as JSON"},
		"a part of a list":     {`{"kind":"List","items":[` + pvOf("a", "1") + `],"metadata":{"continue":"x"}}`, "first part"},
		"of other objects":     {`{"kind":"List","items":[{"kind":"Secret"}]}`, `"Secret"`},
		"without kinds":        {`{"kind":"PersistentVolumeList","items":[{"spec":{"csi":{"volumeHandle":"1"}}}]}`, "PersistentVolumeList"},
		"of volumes of others": {`{"kind":"List","items":[{"kind":"PersistentVolume","spec":{"nfs":{}}}]}`, "no handle"},
		"empty":                {`{"kind":"List","items":[]}`, "no handle"},
		"handles and commas":   {"1,2\n", "one on each line"},
		"handles in quotes":    {`["1"]`, "one on each line"},
		"in UTF-16":            {"\xff\xfe1\x00\n\x00", "one on each line"},
	} {
		file := filepath.Join(t.TempDir(), "objects")
		ok(t, os.WriteFile(file, []byte(tc.text), 0o600))
		if c, err := readClaims(file); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %+v, %v, want that it says %q", name, c, err, tc.want)
		}
	}
	file := filepath.Join(t.TempDir(), "objects")
	ok(t, os.WriteFile(file, []byte("\n"+pvOf("a", "1")+"\n"+pvOf("b", "2")), 0o600))
	if c, err := readClaims(file); err != nil || !slices.Equal(c.handles, []string{"1", "2"}) {
		t.Errorf("two outputs of kubectl in one file: %+v, %v, want the handles of both", c, err)
	}
	ok(t, os.WriteFile(file, []byte("\ufeff"+pvOf("a", "1")), 0o600))
	if c, err := readClaims(file); err != nil || !c.objects {
		t.Errorf("an output of kubectl after a byte order mark: %+v, %v, want that it has objects", c, err)
	}
	// As kubectl get pv -o jsonpath={.items[*].spec.csi.volumeHandle} prints them.
	ok(t, os.WriteFile(file, []byte("1 2"), 0o600))
	if c, err := readClaims(file); err != nil || !slices.Equal(c.handles, []string{"1", "2"}) {
		t.Errorf("handles on one line: %+v, %v, want both", c, err)
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
	var sums []sum
	out, err := volumes(t, dir, "--claimed="+file, "--sum-by=orphan", "--output=json")
	if ok(t, errors.Join(err, json.Unmarshal([]byte(out), &sums))); len(sums) != 2 || sums[1].Orphan != "yes" || sums[1].Volumes != 1 {
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
	c, _ := a.open("prod")
	_, err = c.Attach(t.Context(), used.ID, cloud.NodeID(a.account.Machines()[0]))
	ok(t, err)
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
