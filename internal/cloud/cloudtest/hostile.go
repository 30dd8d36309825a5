package cloudtest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Objects are ids of the cloud's form.
type Objects struct {
	Volume   cloud.VolumeID
	Snapshot cloud.SnapshotID
	Node     cloud.NodeID
	Zone     string
}

const (
	// FuzzedHost is the host of the API for the backend under FuzzHTTPAnswers.
	FuzzedHost = "api.example"
	// FuzzedToken is the backend's token.
	FuzzedToken = "canary-token-6d"
)

// FuzzHTTPAnswers checks a backend of an HTTP API with arbitrary answers, of the API or of a proxy: each call ends with a kind, no
// error contains a token, and no request is sent to another host. The word TOKEN in an answer is replaced with the token.
//
// good is the body of an answer that fits as many requests as possible. backend returns the cloud under test, which sends its
// requests to https:// and FuzzedHost, with FuzzedToken, through that transport.
func FuzzHTTPAnswers(f *testing.F, o Objects, good string, backend func(t *testing.T, through http.RoundTripper) cloud.Cloud) {
	const json = "application/json"
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
			t.Skip("no server can send this: its status is not of three digits, or a header has characters that HTTP forbids")
		}
		body = strings.ReplaceAll(body, "TOKEN", FuzzedToken)
		synctest.Test(t, func(t *testing.T) {
			c := backend(t, RoundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != FuzzedHost {
					t.Errorf("a request with the token %q goes to %s", r.Header.Get("Authorization"), r.URL)
				}
				answer := Answer(r, status, kind, body)
				answer.Header.Set("Location", location)
				return answer, nil
			}))
			SurviveAnswers(t.Context(), t, c, o, FuzzedToken)
		})
	})
}

// SurviveAnswers makes each call of a backend whose API returns arbitrary answers. Each must end within its time. An error must
// have a kind or wrap the context's error, and must not contain the token.
func SurviveAnswers(ctx context.Context, t *testing.T, c cloud.Cloud, o Objects, token string) {
	t.Helper()
	create := cloud.CreateVolumeRequest{Name: "new", Size: 20 * cloud.GiB, Zones: []string{o.Zone}}
	calls := Calls(c, create, o)
	for name, source := range map[string]cloud.Source{"clone": {Volume: o.Volume}, "restore": {Snapshot: o.Snapshot}} {
		req := create
		req.Name, req.Source = name, source
		calls["CreateVolume of a "+name] = func(ctx context.Context) error { _, err := c.CreateVolume(ctx, req); return err }
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		err := call(ctx)
		cancel()
		switch {
		case err == nil:
		case fault.Of(err) == fault.None && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("%s = %v, which has no kind", name, err)
		case strings.Contains(err.Error(), token):
			t.Errorf("%s = %v, which has the token", name, err)
		}
	}
}

// Calls returns each call of a backend by its name: with these objects, or with the name and twice the size of this request.
func Calls(c cloud.Cloud, create cloud.CreateVolumeRequest, o Objects) map[string]func(ctx context.Context) error {
	snapshot := cloud.CreateSnapshotRequest{Name: create.Name, Volume: o.Volume}
	tags := []cloud.Tag{{Key: "a", Value: "b"}}
	return map[string]func(ctx context.Context) error{
		"Capacity":       func(ctx context.Context) error { _, err := c.Capacity(ctx, "", nil); return err },
		"Check":          c.Check,
		"CreateVolume":   func(ctx context.Context) error { _, err := c.CreateVolume(ctx, create); return err },
		"FindVolume":     func(ctx context.Context) error { _, err := c.FindVolume(ctx, create.Name); return err },
		"GetVolume":      func(ctx context.Context) error { _, err := c.GetVolume(ctx, o.Volume); return err },
		"DeleteVolume":   func(ctx context.Context) error { return c.DeleteVolume(ctx, o.Volume) },
		"ListVolumes":    func(ctx context.Context) error { _, err := c.ListVolumes(ctx, cloud.Page{}); return err },
		"ExpandVolume":   func(ctx context.Context) error { _, err := c.ExpandVolume(ctx, o.Volume, 2*create.Size); return err },
		"ModifyVolume":   func(ctx context.Context) error { return c.ModifyVolume(ctx, o.Volume, tags) },
		"Attach":         func(ctx context.Context) error { _, err := c.Attach(ctx, o.Volume, o.Node); return err },
		"Detach":         func(ctx context.Context) error { return c.Detach(ctx, o.Volume, o.Node) },
		"CreateSnapshot": func(ctx context.Context) error { _, err := c.CreateSnapshot(ctx, snapshot); return err },
		"FindSnapshot":   func(ctx context.Context) error { _, err := c.FindSnapshot(ctx, create.Name); return err },
		"GetSnapshot":    func(ctx context.Context) error { _, err := c.GetSnapshot(ctx, o.Snapshot); return err },
		"DeleteSnapshot": func(ctx context.Context) error { return c.DeleteSnapshot(ctx, o.Snapshot) },
		"ListSnapshots":  func(ctx context.Context) error { _, err := c.ListSnapshots(ctx, "", cloud.Page{}); return err },
	}
}
