package driver_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

func names(t testing.TB, flags ...string) driver.Names {
	t.Helper()
	n, err := driver.NewNames("local", profile.ScopeNode, "", flags)
	if err != nil {
		t.Fatalf("NewNames: %v", err)
	}
	return n
}

func TestNewNames(t *testing.T) {
	tests := map[string]struct {
		name  string
		flags []string
		want  driver.Names
	}{
		"the defaults are made from the cloud's name": {want: driver.Names{
			Cloud:    "local",
			Driver:   "local.csi.cloudblock.io",
			Topology: []driver.TopologyKey{{Key: "topology.local.csi.cloudblock.io/node", Scope: profile.ScopeNode}},
		}},
		"a driver name does not change the topology key": {name: "disks.example.org", want: driver.Names{
			Cloud:    "local",
			Driver:   "disks.example.org",
			Topology: []driver.TopologyKey{{Key: "topology.local.csi.cloudblock.io/node", Scope: profile.ScopeNode}},
		}},
		"given keys replace the default and keep their order": {flags: []string{"b.example/host=node", "a=node"}, want: driver.Names{
			Cloud:  "local",
			Driver: "local.csi.cloudblock.io",
			Topology: []driver.TopologyKey{
				{Key: "b.example/host", Scope: profile.ScopeNode}, {Key: "a", Scope: profile.ScopeNode},
			},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := driver.NewNames("local", profile.ScopeNode, tc.name, tc.flags)
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("NewNames(%q, %q) = %+v, %v, want %+v", tc.name, tc.flags, got, err, tc.want)
			}
		})
	}
}

// With the name of a vendor's driver its labels are the default, and a flag overrides them.
func TestNewNamesOfAVendor(t *testing.T) {
	const vendor = "dobs.csi.digitalocean.com"
	tests := map[string]struct {
		name  string
		flags []string
		want  string
	}{
		"its own label":      {name: vendor, want: "region"},
		"a flag wins":        {name: vendor, flags: []string{"example.org/place=region"}, want: "example.org/place"},
		"its name of old":    {name: "com.digitalocean.csi.dobs", want: "region"},
		"nobody's name":      {name: "dobs.example.org", want: "topology.digitalocean.csi.cloudblock.io/region"},
		"in another case":    {name: "DOBS.csi.digitalocean.com", want: "topology.digitalocean.csi.cloudblock.io/region"},
		"no name: our label": {want: "topology.digitalocean.csi.cloudblock.io/region"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := driver.NewNames("digitalocean", profile.ScopeRegion, tc.name, tc.flags)
			want := []driver.TopologyKey{{Key: tc.want, Scope: profile.ScopeRegion}}
			if err != nil || !reflect.DeepEqual(got.Topology, want) || got.Vendor != compat.Of(tc.name) {
				t.Errorf("NewNames(%q, %q) = %+v, %v, want the key %s", tc.name, tc.flags, got, err, tc.want)
			}
		})
	}
	_, err := driver.NewNames("local", profile.ScopeNode, vendor, nil)
	if !errors.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), "of --cloud digitalocean, and not of --cloud local") {
		t.Errorf("NewNames of a vendor's driver on another cloud: error %v, want one that names both clouds", err)
	}
}

func TestNewNamesRefuses(t *testing.T) {
	tests := map[string]struct {
		name  string
		flags []string
		says  []string
	}{
		"a driver name with a slash":            {name: "a/b", says: []string{"--driver-name"}},
		"a driver name that ends in a dot":      {name: "a.", says: []string{"--driver-name"}},
		"a driver name of 64 characters":        {name: strings.Repeat("a", 64), says: []string{"--driver-name"}},
		"a key without a scope":                 {flags: []string{"a.b/c"}, says: []string{"KEY=node"}},
		"a scope that does not exist":           {flags: []string{"a.b/c=rack"}, says: []string{"region, zone or node"}},
		"a scope that is another cloud's":       {flags: []string{"a.b/c=zone"}, says: []string{"bound to a node"}},
		"a key that is no label":                {flags: []string{"a b/c=node"}, says: []string{"not a label name"}},
		"a key with an empty name":              {flags: []string{"a.b/=node"}, says: []string{"not a label name"}},
		"a key with an empty prefix":            {flags: []string{"/c=node"}, says: []string{"not a label name"}},
		"a key given twice in different case":   {flags: []string{"x/c=node", "x/C=node"}, says: []string{"given twice"}},
		"three mistakes, and names all of them": {name: "?", flags: []string{"a", "b=rack"}, says: []string{"--driver-name", `"a"`, `"b=rack"`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := driver.NewNames("local", profile.ScopeNode, tc.name, tc.flags)
			if !errors.Is(err, fault.InvalidArgument) {
				t.Fatalf("NewNames(%q, %q): error %v, want %v", tc.name, tc.flags, err, fault.InvalidArgument)
			}
			for _, text := range tc.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("NewNames(%q, %q): error %q does not say %q", tc.name, tc.flags, err, text)
				}
			}
		})
	}
}

func TestZone(t *testing.T) {
	n := names(t, "a=node", "x.io/b=node")
	tests := map[string]struct {
		segments map[string]string
		want     string
		ours     bool
	}{
		"no segments":                             {nil, "", false},
		"only keys of others":                     {map[string]string{"c": "n1"}, "", false},
		"the first of our keys":                   {map[string]string{"a": "n1", "c": "n9"}, "n1", true},
		"the second of our keys":                  {map[string]string{"x.io/b": "n1"}, "n1", true},
		"both of our keys, of one mind":           {map[string]string{"a": "n1", "x.io/b": "n1"}, "n1", true},
		"both of our keys, with different places": {map[string]string{"a": "n1", "x.io/b": "n2"}, "", false},
		"an empty place":                          {map[string]string{"a": ""}, "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ours := n.Zone(tc.segments); got != tc.want || ours != tc.ours {
				t.Errorf("Zone(%v) = %q, %v, want %q, %v", tc.segments, got, ours, tc.want, tc.ours)
			}
		})
	}
	want := map[string]string{"a": "n1", "x.io/b": "n1"}
	if got := n.Segments("n1"); !reflect.DeepEqual(got, want) {
		t.Errorf("Segments(n1) = %v, want %v", got, want)
	}
}

// A cloud whose volumes are bound to zones can report the region too: it follows from the zone, must agree with it, and is not a
// place alone.
func TestARegionBesideAZone(t *testing.T) {
	n, err := driver.NewNames("yandex", profile.ScopeZone, "yandex.csi.flant.com", nil)
	must(t, err)
	const zone, region = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
	want := map[string]string{zone: "ru-central1-d", region: "ru-central1"}
	if got := n.Segments("ru-central1-d"); !reflect.DeepEqual(got, want) {
		t.Errorf("Segments = %v, want %v", got, want)
	}
	for name, tc := range map[string]struct {
		segments map[string]string
		want     string
	}{
		"both":                     {want, "ru-central1-d"},
		"the zone alone":           {map[string]string{zone: "ru-central1-d"}, "ru-central1-d"},
		"the region alone":         {map[string]string{region: "ru-central1"}, ""},
		"a zone of another region": {map[string]string{zone: "ru-central1-d", region: "kz1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ours := n.Zone(tc.segments); got != tc.want || ours != (tc.want != "") {
				t.Errorf("Zone(%v) = %q, %v, want %q", tc.segments, got, ours, tc.want)
			}
		})
	}
	_, err = driver.NewNames("yandex", profile.ScopeZone, "", []string{"a.b/region=region"})
	if !errors.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), "no key says which") {
		t.Errorf("NewNames with a region alone = %v", err)
	}
}

func FuzzNewNames(f *testing.F) {
	f.Add("", "a.b/c=node")
	f.Add("local.csi.cloudblock.io", "=node")
	f.Add("a..b", "a/b/c=node")
	f.Fuzz(func(t *testing.T, name, flag string) {
		n, err := driver.NewNames("local", profile.ScopeNode, name, []string{flag})
		if err != nil {
			if !errors.Is(err, fault.InvalidArgument) {
				t.Fatalf("NewNames(%q, %q): error %v has no kind", name, flag, err)
			}
			return
		}
		if len(n.Driver) > 63 || strings.ContainsAny(n.Driver, "/ \n") {
			t.Errorf("NewNames(%q) took it for a driver name", name)
		}
		if zone, ours := n.Zone(n.Segments("z")); zone != "z" || !ours {
			t.Errorf("Zone(Segments(z)) = %q, %v with %+v", zone, ours, n)
		}
	})
}
