package pool

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

const hex32 = "0123456789abcdef0123456789abcdef"

func TestParseHandle(t *testing.T) {
	a63 := strings.Repeat("a", 63)
	tests := map[string]struct {
		in   string
		want Handle
		ok   bool
	}{
		"a node and 32 digits":             {"n1/fast/" + hex32, Handle{"n1", "fast", hex32}, true},
		"a node with dots and dashes":      {"ip-10-0.eu.example/a/" + hex32, Handle{"ip-10-0.eu.example", "a", hex32}, true},
		"names of 63 characters":           {a63 + "/" + a63 + "/" + hex32, Handle{a63, a63, hex32}, true},
		"empty":                            {"", Handle{}, false},
		"no node":                          {"/p/" + hex32, Handle{}, false},
		"no pool":                          {"n1/" + hex32, Handle{}, false},
		"an empty pool":                    {"n1//" + hex32, Handle{}, false},
		"a pool with a dot":                {"n1/a.b/" + hex32, Handle{}, false},
		"a pool that leads upwards":        {"n1/../" + hex32, Handle{}, false},
		"a pool in upper case":             {"n1/Fast/" + hex32, Handle{}, false},
		"a pool of 64 characters":          {"n1/" + a63 + "a/" + hex32, Handle{}, false},
		"four parts":                       {"n1/fast/x/" + hex32, Handle{}, false},
		"no slash":                         {hex32, Handle{}, false},
		"a way out of the folder":          {"../volumes/" + hex32, Handle{}, false},
		"a way out in the id":              {"n1/p/../" + hex32[:29], Handle{}, false},
		"a query behind it":                {"n1/p/" + hex32 + "?force=1", Handle{}, false},
		"a fragment behind it":             {"n1/p/" + hex32 + "#x", Handle{}, false},
		"a newline behind it":              {"n1/p/" + hex32 + "\n", Handle{}, false},
		"a space in the node":              {"n 1/p/" + hex32, Handle{}, false},
		"upper-case digits":                {"n1/p/" + strings.ToUpper(hex32), Handle{}, false},
		"digits of another script":         {"n1/p/" + strings.Repeat("٣", 16), Handle{}, false},
		"31 digits":                        {"n1/p/" + hex32[1:], Handle{}, false},
		"a snapshot":                       {"n1/p/snap-" + hex32, Handle{}, false},
		"10 kB":                            {strings.Repeat("a", 10<<10), Handle{}, false},
		"a node of 64 characters":          {a63 + "a/p/" + hex32, Handle{}, false},
		"a node that ends in a dot":        {"n1./p/" + hex32, Handle{}, false},
		"a node that begins with a dash":   {"-n/p/" + hex32, Handle{}, false},
		"a node with an underscore":        {"n_1/p/" + hex32, Handle{}, false},
		"two slashes":                      {"n1/p//" + hex32, Handle{}, false},
		"a zero byte":                      {"n1/p/\x00" + hex32[1:], Handle{}, false},
		"a node with two dots in sequence": {"n1..x/p/" + hex32, Handle{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseHandle(tc.in)
			if got != tc.want || (err == nil) != tc.ok {
				t.Errorf("ParseHandle(%.80q) = %v, %v, want %v, ok %v", tc.in, got, err, tc.want, tc.ok)
			}
			if err != nil && !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("ParseHandle(%.80q) = %v, want kind %v", tc.in, err, fault.InvalidArgument)
			}
			snapshot := strings.TrimSuffix(tc.in, hex32) + "snap-" + hex32
			if got, err := ParseSnapshotHandle(snapshot); tc.ok && (got != tc.want || err != nil || got.Snapshot() != snapshot) {
				t.Errorf("ParseSnapshotHandle(%s) = %v, %v, want %v", snapshot, got, err, tc.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestIDsAreAsFrozen: the ids stand in PersistentVolumes and VolumeSnapshotContents.
func TestIDsAreAsFrozen(t *testing.T) {
	h := Handle{Node: "node-1.example.com", Pool: DefaultName, ID: "00112233445566778899aabbccddeeff"}
	golden.Format(t, "ids.txt", h.String()+"\n"+h.Snapshot()+"\n")
	if got, err := ParseHandle(h.String()); err != nil || got != h {
		t.Errorf("ParseHandle = %v, %v, want %v", got, err, h)
	}
	if got, err := ParseSnapshotHandle(h.Snapshot()); err != nil || got != h {
		t.Errorf("ParseSnapshotHandle = %v, %v, want %v", got, err, h)
	}
}

func TestNewIDsDiffer(t *testing.T) {
	a, b := NewID(), NewID()
	if a == b {
		t.Errorf("NewID gave %s twice", a)
	}
	if got, err := ParseID(string(a)); got != a || err != nil {
		t.Errorf("ParseID(%s) = %s, %v", a, got, err)
	}
}

func FuzzParseHandle(f *testing.F) {
	f.Add("n1/p/" + hex32)
	f.Add("../volumes/" + hex32)
	f.Add("n1/p/" + hex32 + "?force=1")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHandle(s)
		if err != nil {
			if !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("error without its kind: %v", err)
			}
			return
		}
		if h.String() != s {
			t.Errorf("ParseHandle(%q).String() = %q", s, h.String())
		}
		if path := filepath.Join("/pool", h.ID.ImageName()); filepath.Dir(path) != "/pool" || len(path) != len("/pool/")+idLen+len(".img") {
			t.Errorf("id %q leads to %s", h.ID, path)
		}
	})
}
