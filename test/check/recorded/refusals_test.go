package recorded_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// No refusal of a route of volumes was recorded. A refusal that volumes have too is brought about with them.

// situation brings about a refusal that was recorded of another route.
type situation struct {
	// reason is in the recorded answer.
	reason string
	bring  func(p *player) expect.Answer
}

var situations = []situation{
	{"Not found", func(p *player) expect.Answer { return p.send("GET", "/v4beta/volumes/7", nil, nil) }},
	{"Cannot filter on foo", func(p *player) expect.Answer {
		filter := `{"foo":"bar"}`
		return p.send("GET", "/v4beta/volumes?page=1", &filter, nil)
	}},
	{"Linode busy.", func(p *player) expect.Answer {
		p.account.AddLinode(emulator.Linode{ID: 8, Status: "booting"})
		p.addVolume(volume{ID: 7, Label: "vol", Region: emulator.DefaultRegion, Size: 10})
		return p.send("POST", "/v4beta/volumes/7/attach", nil, []byte(`{"linode_id": 8}`))
	}},
	{"region is not valid", func(p *player) expect.Answer {
		return p.send("POST", "/v4beta/volumes", nil, []byte(`{"label": "vol", "region": "moon"}`))
	}},
	{"Too many requests", func(p *player) expect.Answer {
		p.account.SetLimits(rest.Limit{Requests: 1, Window: emulator.RealLimits()[0].Window})
		p.send("GET", "/v4beta/volumes", nil, nil)
		return p.send("GET", "/v4beta/volumes", nil, nil)
	}},
	{"Invalid Token", func(p *player) expect.Answer { return p.sendAs("another", "GET", "/v4beta/volumes", nil, nil) }},
}

// notServed are the routes of the other refusals, which the emulator does not serve.
var notServed = []struct{ route, why string }{
	{"/networking/", "addresses"},
	{"/linode/instances/N/ips", "addresses of Linodes"},
	{"/linode/instances", "Linodes are made on the owner's side"},
	{"/lke/", "clusters of the cloud's Kubernetes"},
	{"/monitor/", "metrics"},
	{"/nodebalancers/", "load balancers"},
	{"/object-storage/", "buckets"},
	{"/locks", "locks are set on the owner's side"},
	{"/vpcs", "networks"},
}

// refuse brings a refusal about, and returns the differences.
func (s situation) refuse(t *testing.T, e recorded.Exchange) []difference {
	t.Helper()
	p := newPlayer(t, nil, direct)
	if scopes := e.Header.Get("X-Oauth-Scopes"); scopes != "*" && scopes != "unknown" {
		p.account.SetRules(func(r *emulator.Rules) { r.Scopes = strings.Fields(scopes) })
	}
	return slices.DeleteFunc(compare(e, s.bring(p), p.recordedID), func(d difference) bool {
		return d.Where == "X-Accepted-Oauth-Scopes" // of another route
	})
}

// The emulator refuses volumes as the real API refused other things.
func TestLinodeRefusesAsRecorded(t *testing.T) {
	equal, all := 0, exchanges(t, refusals)
	for _, s := range situations {
		at := slices.IndexFunc(all, func(e recorded.Exchange) bool { return reasonOf(t, e) == s.reason })
		if at < 0 {
			t.Errorf("no refusal %q was recorded", s.reason)
			continue
		}
		found := s.refuse(t, all[at])
		for _, d := range found {
			t.Errorf("%q: %s", s.reason, d)
		}
		if all = slices.Delete(slices.Clone(all), at, at+1); len(found) == 0 {
			equal++
		}
	}
	artefacts := len(all)
	for _, out := range notServed {
		rest := slices.DeleteFunc(slices.Clone(all), func(e recorded.Exchange) bool {
			_, path, _ := strings.Cut(strings.TrimPrefix(e.Path, "/"), "/")
			return strings.HasPrefix("/"+path, out.route)
		})
		if len(rest) == len(all) {
			t.Errorf("no refusal of %s (%s) is left", out.route, out.why)
		}
		all = rest
	}
	for _, e := range all {
		t.Errorf("%s %s: %s is neither brought about nor listed as a route that is not served", e.Method, e.Path, reasonOf(t, e))
	}
	t.Logf("%s: %d exchanges, %d equal, %d artefacts", refusals, len(situations)+artefacts, equal, artefacts)
}

// reasonOf returns the words of a refusal.
func reasonOf(t *testing.T, e recorded.Exchange) string {
	t.Helper()
	var root struct{ Errors []struct{ Reason string } }
	if err := json.Unmarshal(e.Answer, &root); err != nil || len(root.Errors) == 0 {
		t.Fatalf("%s %s: %s is no refusal: %v", e.Method, e.Path, e.Answer, err)
	}
	return root.Errors[0].Reason
}
