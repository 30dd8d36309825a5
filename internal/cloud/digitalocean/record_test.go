package digitalocean

import (
	"maps"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
)

var hash = cloud.FullHash("pvc-1")

func TestARecordIsOneLine(t *testing.T) {
	const begin = "Created by cloudblock-csi; name-hash="
	c := &Cloud{cluster: "prod"}
	long := strings.Repeat("n", 150)
	for name, tc := range map[string]struct {
		req  cloud.CreateVolumeRequest
		want string
	}{
		"no more than needed": {cloud.CreateVolumeRequest{Name: "pvc-1"}, begin + hash + "; cluster=prod"},
		"a copy": {
			cloud.CreateVolumeRequest{Name: "pvc-1", Source: cloud.Source{Volume: "6dc26765-09fc-4e79-87aa-cad956b14f68"}},
			begin + hash + "; cluster=prod; source-volume=6dc26765-09fc-4e79-87aa-cad956b14f68",
		},
		"Kubernetes' names, and no tag of a user": {
			cloud.CreateVolumeRequest{Name: "pvc-1", Tags: []cloud.Tag{{Key: "cloudblock-pv", Value: "pvc-1"}, {Key: "cloudblock-pvc", Value: "a; b=c"}, {Key: "team", Value: "a"}}},
			begin + hash + "; cluster=prod; pvc=a__b_c; pv=pvc-1",
		},
		"names that do not fit are left out": {
			cloud.CreateVolumeRequest{Name: "pvc-1", Tags: []cloud.Tag{{Key: "cloudblock-pvc", Value: long}, {Key: "cloudblock-pvc-namespace", Value: long}, {Key: "cloudblock-pv", Value: "pvc-1"}}},
			begin + hash + "; cluster=prod; pvc-namespace=" + long + "; pv=pvc-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.newRecord(tc.req)
			got := r.line()
			if got != tc.want || len(got) > maxDescription {
				t.Errorf("line = %q, want %q", got, tc.want)
			}
			if read, ok := parseRecord(got); !ok || read.line() != got || read[tags.Hash] != hash {
				t.Errorf("parseRecord(%q) = %v, %v", got, read, ok)
			}
		})
	}
}

// C12: a description that a person wrote makes no volume this cluster's.
func TestOnlyALineOfTheDriverIsARecord(t *testing.T) {
	good := record{tags.Hash: hash, tags.Cluster: "prod", tags.Own + "pvc": "data"}.line()
	for name, text := range map[string]string{
		"empty":                        "",
		"no record":                    description,
		"the vendor's":                 "Created by DigitalOcean CSI driver",
		"no hash":                      description + "; cluster=prod",
		"a hash that is none":          description + "; name-hash=abc; cluster=prod",
		"text before it":               "x" + good,
		"text behind it":               good + " (mine)",
		"a blank at the end":           good + " ",
		"a line break":                 good + "\n",
		"an unknown key":               good + "; size=1",
		"a key twice":                  good + "; cluster=other",
		"an empty value":               strings.Replace(good, "=data", "=", 1),
		"a value without a key":        strings.Replace(good, "pvc=", "", 1),
		"another order":                description + "; cluster=prod; name-hash=" + hash + "; pvc=data",
		"other separators":             strings.ReplaceAll(good, "; ", ";"),
		"capitals":                     strings.ToUpper(good),
		"a cluster with a blank in it": strings.Replace(good, "prod", "pr od", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if r, ok := parseRecord(text); ok {
				t.Errorf("parseRecord(%q) = %v", text, r)
			}
		})
	}
	if r, ok := parseRecord(good); !ok || !maps.Equal(r, record{tags.Hash: hash, tags.Cluster: "prod", tags.Own + "pvc": "data"}) {
		t.Errorf("parseRecord(%q) = %v, %v", good, r, ok)
	}
}

// Whatever a record is made of, its line is read back as it was, and nothing else is read as a record.
func FuzzRecord(f *testing.F) {
	f.Add("pvc-1", "prod", "data.db-0", description)
	f.Add("", "", "a; cluster=b", description+"; name-hash="+hash)
	f.Add("том", "p", strings.Repeat("x", 300), description+"; name-hash="+hash+"; pvc=data; pvc=data")
	f.Fuzz(func(t *testing.T, name, cluster, claim, text string) {
		c := &Cloud{cluster: cluster}
		line := c.newRecord(cloud.CreateVolumeRequest{Name: name, Tags: []cloud.Tag{{Key: nameKeys[1], Value: claim}}}).line()
		r, ok := parseRecord(line)
		if CheckTags([]cloud.Tag{{Key: tags.Cluster, Value: cluster}}) == nil && (!ok || r[tags.Hash] != cloud.FullHash(name) || r[tags.Cluster] != cluster) {
			t.Errorf("parseRecord(%q) = %v, %v", line, r, ok)
		}
		if r, ok := parseRecord(text); ok && r.line() != text {
			t.Errorf("parseRecord(%q) = %v, which is %q", text, r, r.line())
		}
	})
}
