package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
