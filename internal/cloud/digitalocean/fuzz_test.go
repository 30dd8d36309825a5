package digitalocean_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
)

const secretToken = "canary-token-6d"

var objects = cloudtest.Objects{
	Volume: "506f78a4-e098-11e5-ad9f-000f53306ae1", Snapshot: "506f78a4-e098-11e5-ad9f-000f53306ae2", Node: node1, Zone: emulator.DefaultRegion,
}

// Whatever the API answers, or whoever answers for it: each call ends with a kind, no token is in an error, and none goes
// anywhere but to the API. The word TOKEN in an answer becomes the token.
func FuzzAnswers(f *testing.F) {
	const json = "application/json"
	good := `{"volumes":[{"id":"506f78a4-e098-11e5-ad9f-000f53306ae1","name":"new","size_gigabytes":20,"region":{"slug":"fra1"},"droplet_ids":[1]}],"volume":{"id":"506f78a4-e098-11e5-ad9f-000f53306ae1","name":"new"},"snapshots":[],"actions":[{"id":1,"status":"completed"}],"action":{"id":1,"status":"errored"},"links":{},"meta":{"total":1}}`
	for _, status := range []int{200, 201, 202, 204, 301, 307, 400, 401, 403, 404, 409, 422, 429, 500, 503} {
		for _, body := range []string{good, "", "{}", "[]", "null", "TOKEN", `{"message":"TOKEN"}`, `{"errors":[{"reason":"TOKEN"}]}`} {
			f.Add(status, json, "https://elsewhere.example/", body)
		}
	}
	f.Add(200, "text/html", "", "<html>")
	for _, cut := range []int{1, len(good) / 3, len(good) / 2, len(good) - 1} {
		f.Add(200, json, "", good[:cut])
	}
	for from, to := range map[string]string{"\"new\"": "1", "20": "\"20\"", ":[{": ":{\"a\":{", "1": "-1", "active": "TOKEN", "null": "{}"} {
		f.Add(200, json, "", strings.ReplaceAll(good, from, to))
	}
	f.Fuzz(func(t *testing.T, status int, kind, location, body string) {
		if status < 100 || status > 999 || strings.ContainsFunc(kind+location, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Skip("is no answer of HTTP")
		}
		synctest.Test(t, func(t *testing.T) {
			c := open(t, start(t, emulator.Options{}), func(cfg *digitalocean.Config) {
				cfg.Endpoint, cfg.Token = "https://api.example", func() (string, error) { return secretToken, nil }
				cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Host != "api.example" {
						t.Errorf("a request with the token %q goes to %s", r.Header.Get("Authorization"), r.URL)
					}
					return &http.Response{
						StatusCode: status, Header: http.Header{"Content-Type": {kind}, "Location": {location}},
						Body: io.NopCloser(strings.NewReader(strings.ReplaceAll(body, "TOKEN", secretToken))), Request: r,
					}, nil
				})
			})
			cloudtest.SurviveAnswers(t.Context(), t, c, objects, secretToken)
		})
	})
}
