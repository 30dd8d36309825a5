package digitalocean

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
)

// Each route that the description knows demands exactly the description's scopes. The aliases api:read and api:write,
// which are listed with them, are no scopes of a custom token.
func TestRoutesDemandTheScopesOfTheDescription(t *testing.T) {
	checker, why, err := contract.Open(description)
	if err != nil {
		t.Fatal(err)
	}
	if checker == nil {
		t.Skip(why)
	}
	c := Start(t, Options{InMemory: true})
	for operation, scopes := range checker.Scopes() {
		method, route, _ := strings.Cut(operation, " ")
		if !c.knows(method, route) {
			continue
		}
		scopes = slices.DeleteFunc(scopes, func(scope string) bool { return strings.HasPrefix(scope, "api:") })
		if status := c.ask(t, method, route, scopes); status == http.StatusForbidden {
			t.Errorf("%s with %q: it is refused", operation, scopes)
		}
		for _, missing := range scopes {
			others := []string{"other:read"}
			for _, scope := range scopes {
				if scope != missing {
					others = append(others, scope)
				}
			}
			if status := c.ask(t, method, route, others); status != http.StatusForbidden {
				t.Errorf("%s without %s answers %d, want 403", operation, missing, status)
			}
		}
	}
}

// knows reports whether the account serves a route.
func (c *Cloud) knows(method, route string) bool {
	c.answer(method, route)
	sent := c.Exchanges()
	return sent[len(sent)-1].Route == route
}

// ask sends a request with these scopes.
func (c *Cloud) ask(t *testing.T, method, route string, scopes []string) int {
	t.Helper()
	c.SetRules(func(r *Rules) { r.Scopes = strings.Join(scopes, " ") })
	return c.answer(method, route).Code
}

// answer sends a request about nothing that exists.
func (c *Cloud) answer(method, route string) *httptest.ResponseRecorder {
	const nowhere = "00000000-0000-4000-8000-000000000000"
	path := strings.NewReplacer("{volume_id}", nowhere, "{snapshot_id}", nowhere, "{action_id}", "1", "{droplet_id}", "1", "{tag_id}", "t").Replace(route)
	return c.send(method, path)
}

func (c *Cloud) send(method, path string) *httptest.ResponseRecorder {
	body := ""
	if method == http.MethodPost {
		body = "{}"
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.Token)
	w := httptest.NewRecorder()
	c.Server.ServeHTTP(w, r)
	return w
}

// Tags are shown to those who may read them.
func TestTagsNeedAScopeToBeSeen(t *testing.T) {
	c := Start(t, Options{InMemory: true})
	id, err := c.AddVolume(Volume{Name: "a", SizeGiB: 1, Tags: []string{"team:a"}})
	if err != nil {
		t.Fatal(err)
	}
	for scopes, want := range map[string]string{"block_storage:read": `"tags":null`, "block_storage:read tag:read": `"tags":[`} {
		c.SetRules(func(r *Rules) { r.Scopes = scopes })
		if w := c.send(http.MethodGet, "/v2/volumes/"+id); !strings.Contains(w.Body.String(), want) {
			t.Errorf("with %q the volume is %s, want %s in it", scopes, w.Body, want)
		}
	}
}
