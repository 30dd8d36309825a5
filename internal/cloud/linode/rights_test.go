package linode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// rights are those that docs/backends/linode.md documents, of tokens and of users.
type rights struct{ scopes, permissions []string }

var rightRow = regexp.MustCompile("(?m)^\\| `([a-z_]+(?::[a-z_]+)?)` \\| .*`(?:GET|POST|PUT|DELETE) |^\\| `(volumes:[a-z_]+)` \\| all below")

func documented(t *testing.T) (r rights) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/backends/linode.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range rightRow.FindAllStringSubmatch(section, -1) {
		if name := row[1] + row[2]; strings.Contains(name, ":") {
			r.scopes = append(r.scopes, name)
		} else {
			r.permissions = append(r.permissions, name)
		}
	}
	// The other suites run with these.
	has := emulator.Restricted()
	sorted := func(parts ...[]string) string {
		return fmt.Sprint(slices.Sorted(slices.Values(slices.Concat(parts...))))
	}
	if sorted(r.scopes, r.permissions) != sorted(has.Scopes, has.Permissions) {
		t.Fatalf("the page documents %+v, the emulator has %+v", r, has)
	}
	return r
}

// rules make an account that allows this much.
func (r rights) rules() emulator.Rules {
	return emulator.Rules{Scopes: r.scopes, Permissions: r.permissions, NoScopeHeaders: true}
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}

// Every call works with exactly the rights that are documented, and without each of them one does not.
func TestTheDocumentedRightsAreThoseThatAreNeeded(t *testing.T) {
	needed := documented(t)
	tests := map[string]emulator.Rules{"all of them": needed.rules()}
	for _, scope := range needed.scopes {
		tests["without the scope "+scope] = rights{scopes: without(needed.scopes, scope), permissions: needed.permissions}.rules()
		if reads := strings.Replace(scope, "write", "only", 1); reads != scope {
			tests["only to read with the scope "+scope] = rights{scopes: append(without(needed.scopes, scope), reads), permissions: needed.permissions}.rules()
		}
	}
	for _, permission := range needed.permissions {
		tests["without the permission "+permission] = rights{scopes: needed.scopes, permissions: without(needed.permissions, permission)}.rules()
	}
	for name, rules := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Rules: rules})
				err := everyCall(t.Context(), account, stack(open(t, account)))
				if name == "all of them" {
					must(t, err)
				} else if !errors.Is(err, fault.Denied) {
					t.Errorf("every call = %v, want one that is denied", err)
				}
			})
		})
	}
}

// everyCall makes every call of the backend, on a Linode with room for one volume, and returns the first error.
func everyCall(ctx context.Context, account *emulator.Cloud, c cloud.Cloud) error {
	full := account.AddLinode(emulator.Linode{MemoryMB: 1 << 10, Disks: 7})
	node := cloud.NodeID(fmt.Sprint(full))
	if err := c.Check(ctx); err != nil {
		return err
	}
	source, err := c.CreateVolume(ctx, request("source"))
	if err != nil {
		return err
	}
	again, err := c.CreateVolume(ctx, request("source")) // FindVolume
	if err != nil || again.ID != source.ID {
		return fmt.Errorf("the source again is %+v: %w", again, err)
	}
	larger := copyOf("copy", source.ID)
	larger.Size = source.Size + 10*cloud.GiB
	copied, err := c.CreateVolume(ctx, larger)
	if err != nil {
		return err
	}
	_, attached := c.Attach(ctx, source.ID, node)
	if attached == nil {
		_, attached = c.Attach(ctx, source.ID, node) // it may be on its way off, which the events show
	}
	_, refused := c.Attach(ctx, copied.ID, node)
	if attached == nil && fault.Of(refused) != fault.Exhausted {
		return fmt.Errorf("an attach to a full Linode: %w", refused)
	}
	_, expanded := c.ExpandVolume(ctx, source.ID, source.Size+10*cloud.GiB)
	_, listed := c.ListVolumes(ctx, cloud.Page{})
	_, got := c.GetVolume(ctx, source.ID)
	return errors.Join(attached, expanded, listed, got, c.Detach(ctx, source.ID, node), c.DeleteVolume(ctx, source.ID), c.DeleteVolume(ctx, copied.ID))
}

// The check names each scope that the token lacks, by a header of the answer that it reads anyway. An answer without
// the header proves nothing.
func TestTheCheckNamesTheScopesThatAreMissing(t *testing.T) {
	tests := map[string]struct {
		scopes []string
		silent bool
		lacks  []string
	}{
		"a token that may do everything": {nil, false, nil},
		"what is needed":                 {[]string{"linodes:read_write", "volumes:read_write", "events:read_only"}, false, nil},
		"more than is needed":            {[]string{"linodes:read_write", "volumes:read_write", "events:read_write"}, false, nil},
		"reading Linodes only":           {[]string{"linodes:read_only", "volumes:read_write", "events:read_only"}, false, []string{"linodes:read_write"}},
		"no volumes":                     {[]string{"linodes:read_write", "events:read_only"}, false, []string{"volumes:read_write"}},
		"no events":                      {[]string{"linodes:read_write", "volumes:read_write"}, false, []string{"events:read_only"}},
		"nothing of either":              {[]string{"events:read_only"}, false, []string{"volumes:read_write", "linodes:read_write"}},
		"an answer that does not say":    {[]string{"linodes:read_only", "volumes:read_write"}, true, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{Rules: emulator.Rules{Scopes: tc.scopes, NoScopeHeaders: tc.silent}})
			err := stack(open(t, account)).Check(t.Context())
			if tc.lacks == nil {
				must(t, err)
			} else {
				want(t, err, fault.Denied, "lacks the scope "+strings.Join(tc.lacks, " and "))
			}
			if n := len(account.Exchanges()); n != 1 {
				t.Errorf("the check took %d requests, want 1", n)
			}
		})
	}
}

// The API states the scopes of a token that it does not know as "unknown".
func TestTheCheckSaysThatATokenIsUnknown(t *testing.T) {
	account := start(t, emulator.Options{})
	err := open(t, account, func(cfg *linode.Config) { cfg.Token = func() (string, error) { return "another", nil } }).Check(t.Context())
	want(t, err, fault.Denied, "Invalid Token")
	if strings.Contains(err.Error(), "scope") {
		t.Errorf("Check() = %v, want nothing of scopes", err)
	}
}
