package digitalocean_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// documented reads the table of scopes in docs/backends: what each is needed for, by scope, and its routes.
func documented(t *testing.T) (need map[string]string, routes map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/backends/digitalocean.md")
	must(t, err)
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+:[a-z]+)` \\|([^|]*)\\|.*\\| ([a-z ]+) \\|$")
	route := regexp.MustCompile("`([A-Z]+ /v2/[^`]+)`")
	need, routes = map[string]string{}, map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(string(text), -1) {
		need[cells[1]] = cells[3]
		for _, r := range route.FindAllStringSubmatch(cells[2], -1) {
			if routes[r[1]] != "" {
				routes[r[1]] += " and "
			}
			routes[r[1]] += cells[1]
		}
	}
	return need, routes
}

// needed are the scopes without which something does not work.
func needed(t *testing.T) []string {
	need, _ := documented(t)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(need)), func(scope string) bool { return need[scope] != "yes" })
}

func scoped(scopes ...string) func(*emulator.Rules) {
	return func(r *emulator.Rules) { r.Scopes = strings.Join(scopes, " ") }
}

func TestTheScopesAreDocumented(t *testing.T) {
	if _, routes := documented(t); !maps.Equal(routes, digitalocean.Scopes) {
		t.Errorf("docs/backends/digitalocean.md has\n%v\nthe code has\n%v", routes, digitalocean.Scopes)
	}
	need, _ := documented(t)
	for scopes, optional := range map[string]bool{emulator.NeededScopes: false, emulator.OptionalScopes: true} {
		want := slices.DeleteFunc(slices.Sorted(maps.Keys(need)), func(scope string) bool { return (need[scope] == "optional") != optional })
		if got := slices.Sorted(slices.Values(strings.Fields(scopes))); !slices.Equal(got, want) {
			t.Errorf("the emulator has %q, docs/backends/digitalocean.md %q", got, want)
		}
	}
}

// P10: every call works with the documented scopes, and something fails where one is taken away.
func TestEveryCallWorksWithTheDocumentedScopesAndNotWithLess(t *testing.T) {
	all := needed(t)
	for _, missing := range append([]string{""}, all...) {
		t.Run("without "+missing, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := open(t, account, func(cfg *digitalocean.Config) { cfg.OrphanAge = time.Nanosecond })
			account.SetRules(scoped(slices.DeleteFunc(slices.Clone(all), func(scope string) bool { return scope == missing })...))
			err := everyCall(t.Context(), c)
			switch {
			case missing == "" && err != nil:
				t.Error(err)
			case missing != "" && (err == nil || !strings.Contains(err.Error(), missing)):
				t.Errorf("got %v, want an error that names the scope", err)
			}
			for _, e := range account.Exchanges() {
				if e.Status == http.StatusForbidden && missing == "" && e.Method == http.MethodGet {
					t.Errorf("a read was refused: %+v", e)
				}
			}
		})
	}
}

// everyCall makes every call of the contract, in ways that need every request.
func everyCall(ctx context.Context, bare *digitalocean.Cloud) error {
	c := stack(bare)
	steps := &steps{}
	var vol cloud.Volume
	for range 2 { // the second finds the first's
		steps.do("CreateVolume", func() (err error) { vol, err = c.CreateVolume(ctx, request("a")); return err })
	}
	steps.do("CreateVolume in the first region that can", func() error {
		req := request("b")
		req.Zones = []string{"nyc2", emulator.DefaultRegion}
		_, err := c.CreateVolume(ctx, req)
		return err
	})
	steps.do("GetVolume", func() error { _, err := c.GetVolume(ctx, vol.ID); return err })
	steps.do("ListVolumes", func() error { _, err := c.ListVolumes(ctx, cloud.Page{}); return err })
	steps.do("ExpandVolume", func() error { _, err := c.ExpandVolume(ctx, vol.ID, 2*cloud.GiB); return err })
	steps.do("Attach", func() error { _, err := c.Attach(ctx, vol.ID, node1); return err })
	steps.do("Attach again", func() error { _, err := c.Attach(ctx, vol.ID, node1); return err })
	steps.do("Detach", func() error { return c.Detach(ctx, vol.ID, "") })
	steps.do("Attach to nothing", func() error {
		if _, err := c.Attach(ctx, vol.ID, "999"); fault.Of(err) != fault.NotFound {
			return fmt.Errorf("got %w, want NotFound", err)
		}
		return nil
	})
	steps.snapshots(ctx, c, vol)
	steps.do("DeleteVolume", func() error { return c.DeleteVolume(ctx, vol.ID) })
	steps.do("Sweep", func() error { return bare.Sweep(ctx) })
	return steps.failed
}

// steps are done until one fails.
type steps struct{ failed error }

func (s *steps) do(name string, step func() error) {
	if s.failed == nil {
		if err := step(); err != nil {
			s.failed = fmt.Errorf("%s: %w", name, err)
		}
	}
}

func (s *steps) snapshots(ctx context.Context, c cloud.Cloud, vol cloud.Volume) {
	var snap cloud.Snapshot
	for range 2 {
		s.do("CreateSnapshot", func() (err error) {
			snap, err = c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
			return err
		})
	}
	s.do("GetSnapshot", func() error { _, err := c.GetSnapshot(ctx, snap.ID); return err })
	s.do("ListSnapshots", func() error { _, err := c.ListSnapshots(ctx, "", cloud.Page{}); return err })
	s.do("ListSnapshots of a volume", func() error { _, err := c.ListSnapshots(ctx, vol.ID, cloud.Page{}); return err })
	for name, source := range map[string]cloud.Source{"restored": {Snapshot: snap.ID}, "cloned": {Volume: vol.ID}} {
		s.do("CreateVolume "+name, func() error {
			req := request(name)
			req.Size, req.Source = 2*cloud.GiB, source
			made, err := c.CreateVolume(ctx, req)
			if err == nil && made.Source != source {
				err = errors.New("it does not name its source")
			}
			return err
		})
	}
	s.do("DeleteSnapshot", func() error { return c.DeleteSnapshot(ctx, snap.ID) })
}

// P10: what a read can prove is named before the first pod waits for it.
func TestCheckNamesEachScopeThatIsMissing(t *testing.T) {
	all := needed(t)
	account := start(t, emulator.Options{})
	c := open(t, account)
	account.SetRules(scoped(all...))
	account.ResetStats()
	for n, want := range []int{7, 8, 9} {
		must(t, c.Check(t.Context()))
		if sent := len(account.Exchanges()); sent != want {
			t.Errorf("%d checks send %d requests, want one for each scope and then one each", n+1, sent)
		}
	}
	var readable []string
	for _, missing := range all {
		if !strings.HasSuffix(missing, ":read") {
			continue
		}
		readable = append(readable, missing)
		account.SetRules(scoped(slices.DeleteFunc(slices.Clone(all), func(scope string) bool { return scope == missing })...))
		want(t, open(t, account).Check(t.Context()), fault.Denied, "the token lacks the scopes "+missing+":")
	}
	c = open(t, account)
	account.SetRules(scoped("other:read"))
	err := c.Check(t.Context())
	want(t, err, fault.Denied, readable...)
	if fault.ReasonOf(err) != fault.AccessDenied {
		t.Errorf("%v has the reason %q", err, string(fault.ReasonOf(err)))
	}
}

// A proxy's 403 blames no scope of the token.
func TestCheckBlamesNoScopeForAProxy(t *testing.T) {
	c := open(t, start(t, emulator.Options{}), answering("GET", http.StatusForbidden, "text/html", "<html>forbidden"))
	err := c.Check(t.Context())
	want(t, err, fault.Unavailable, "not the cloud's", "forbidden")
	if strings.Contains(err.Error(), "scope") {
		t.Errorf("%v names a scope", err)
	}
}

// P10: tags are optional unless a request has them; then the refusal names the missing scope.
func TestTagsThatTheTokenMayNotWrite(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	account.SetRules(scoped(needed(t)...))
	vol := volume(t, c, "a")
	if inCloud, _ := account.Volume(string(vol.ID)); len(inCloud.Tags) > 0 || !slices.Contains(vol.Tags, cloud.Tag{Key: "cloudblock-cluster", Value: "one"}) {
		t.Errorf("the volume has the tags %q in the cloud, and is answered as %+v", inCloud.Tags, vol)
	}
	again, err := c.CreateVolume(t.Context(), request("a"))
	if err != nil || again.ID != vol.ID {
		t.Errorf("CreateVolume again = %+v, %v, want %s", again, err, vol.ID)
	}
	req := request("b")
	req.Tags = []cloud.Tag{{Key: "team", Value: "a"}}
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Denied, "tag:create", "team:a")
	_, err = c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID, Tags: req.Tags})
	want(t, err, fault.Denied, "tag:create", "team:a")
	if n := len(account.Volumes()); n != 1 {
		t.Errorf("%d volumes, want 1", n)
	}
}

// A token that the cloud does not know, as between two that replace each other, is no reason to leave out the cluster's tag.
func TestATokenThatIsNotKnownCostsNoTag(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	of := volume(t, c, "a").ID
	account.Arm(emulator.Fault{Method: "POST", Times: 2, Effect: faults.Effect{Status: http.StatusUnauthorized}})
	for name, create := range map[string]func() error{
		"volume": func() error { _, err := c.CreateVolume(t.Context(), request("b")); return err },
		"snapshot": func() error {
			_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "s", Volume: of})
			return err
		},
	} {
		err := create()
		want(t, err, fault.Denied, "Unable to authenticate you")
		if err != nil && strings.Contains(err.Error(), "scope") {
			t.Errorf("%s: %v names a scope", name, err)
		}
	}
	if volumes, snapshots := account.Volumes(), account.Snapshots(); len(volumes) != 1 || len(snapshots) > 0 {
		t.Errorf("there are %+v and %+v, want one volume", volumes, snapshots)
	}
}

// A volume is modified with the optional scopes, and one that is missing is named.
func TestModifyingNeedsItsScopes(t *testing.T) {
	need, _ := documented(t)
	all := slices.Sorted(maps.Keys(need))
	tag := func(value string) []cloud.Tag { return []cloud.Tag{{Key: "team", Value: value}} }
	for _, missing := range []string{"", "tag:create", "tag:delete", "block_storage:update"} {
		t.Run("without "+missing, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account))
			req := request("a")
			req.Tags = tag("a")
			vol := create(t, c, req)
			account.SetRules(scoped(slices.DeleteFunc(slices.Clone(all), func(scope string) bool { return scope == missing })...))
			err := c.ModifyVolume(t.Context(), vol.ID, tag("b"))
			if missing != "" {
				want(t, err, fault.Denied, missing)
				return
			}
			must(t, err)
			account.ResetStats()
			must(t, c.ModifyVolume(t.Context(), vol.ID, tag("b")))
			if sent := account.Exchanges(); len(sent) != 1 || sent[0].Method != http.MethodGet {
				t.Errorf("what is there already cost %+v, want one read", sent)
			}
			if inCloud, _ := account.Volume(string(vol.ID)); !slices.Equal(inCloud.Tags, []string{"cloudblock-cluster:one", "team:b"}) {
				t.Errorf("the volume has the tags %q", inCloud.Tags)
			}
		})
	}
}
