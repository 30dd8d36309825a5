package device

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	r := NewRecords(dir)
	a := Spec{Volume: "a/../" + strings.Repeat("x", 200), Name: "scsi-0DO_Volume_a", Size: 1}
	b := Spec{Volume: "b", Serial: "b-serial"}
	check := func(when, volume string, want Spec) {
		t.Helper()
		want.Size = 0
		got, ok := NewRecords(dir).Recall(volume) // as the next program
		if got != want || ok != (want != Spec{}) {
			t.Errorf("%s: Recall(%.9s) = %+v, %v, want %+v", when, volume, got, ok, want)
		}
	}
	check("at first", a.Volume, Spec{})
	for _, spec := range []Spec{a, b, {Volume: "nobody knows its disk"}, a} {
		must(t, r.Remember(spec))
	}
	check("remembered", a.Volume, a)
	check("remembered", b.Volume, b)
	check("without a disk", "nobody knows its disk", Spec{})
	if others, err := r.Others(a.Volume); err != nil || !reflect.DeepEqual(others, []Spec{b}) {
		t.Errorf("Others = %+v, %v, want %+v", others, err, b)
	}
	a.Serial = "late"
	must(t, r.Remember(a))
	check("changed", a.Volume, a)
	b.Encrypted = true
	must(t, r.Remember(b))
	check("known to be encrypted", b.Volume, b)
	for name, damage := range map[string]string{"cut off": `{"format":1,"vol`, "of a newer version": `{"format":2,"volume":"b","name":"x"}`, "of another volume": `{"format":1,"volume":"c","name":"x"}`} {
		must(t, os.WriteFile(r.path("b"), []byte(damage), 0o600))
		check(name, "b", Spec{})
	}
	for range 2 {
		must(t, r.Forget(a.Volume))
	}
	check("forgotten", a.Volume, Spec{})
	must(t, os.RemoveAll(dir))
	if others, err := r.Others("a"); err != nil || len(others) > 0 {
		t.Errorf("Others without a folder = %v, %v", others, err)
	}
}

// A record has where the volume is staged, also where the id identifies the disk; a record of an earlier release has not.
func TestRecordsOfPlaces(t *testing.T) {
	for name, r := range map[string]*Records{"records": NewRecords(t.TempDir()), "places": NewPlaces(t.TempDir())} {
		spec := Spec{Volume: "a", Name: "disk", Place: "/staging/a"}
		for _, spec := range []Spec{spec, spec, {Volume: "b", Name: "disk-b"}} {
			must(t, r.Remember(spec))
		}
		if places, err := r.Places(); err != nil || !reflect.DeepEqual(places, map[string]string{"a": "/staging/a"}) {
			t.Errorf("%s: Places = %v, %v", name, places, err)
		}
		want := spec
		if name == "places" {
			want = Spec{}
		}
		if got, _ := r.Recall("a"); got != want {
			t.Errorf("%s: Recall = %+v, want %+v", name, got, want)
		}
		if others, err := r.Others("c"); err != nil || (len(others) == 0) != (name == "places") {
			t.Errorf("%s: Others = %+v, %v", name, others, err)
		}
		must(t, r.Forget("a"))
		if places, err := r.Places(); err != nil || len(places) > 0 {
			t.Errorf("%s: Places of no volume = %v, %v", name, places, err)
		}
	}
}

func TestNoRecordsRememberNothing(t *testing.T) {
	var r *Records
	if err := r.Remember(Spec{Volume: "a", Name: "x"}); err != nil {
		t.Error(err)
	}
	if _, ok := r.Recall("a"); ok || r.Forget("a") != nil {
		t.Error("nil records remember")
	}
}
