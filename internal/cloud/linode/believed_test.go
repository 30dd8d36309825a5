package linode_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
)

// answering replaces the answers to requests of a method; "": of all.
func answering(method string, status int, kind, body string) func(*linode.Config) {
	return func(cfg *linode.Config) {
		base := cfg.Transport
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if method != "" && r.Method != method {
				return base.RoundTrip(r)
			}
			return &http.Response{
				StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {kind}},
				Body: io.NopCloser(strings.NewReader(body)), Request: r,
			}, nil
		})
	}
}

// A login page, or nothing, is no proof that something was deleted, that a list is empty, or of anything else.
func TestOnlyAnAnswerThatSaysSoIsBelieved(t *testing.T) {
	const html, json = "text/html; charset=utf-8", "application/json"
	calls := map[string]struct {
		method string
		call   func(context.Context, cloud.Cloud, cloud.VolumeID) error
		kind   fault.Kind
	}{
		"delete": {"DELETE", func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error { return c.DeleteVolume(ctx, id) }, fault.Uncertain},
		"attach": {"POST", func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.Attach(ctx, id, node1)
			return err
		}, fault.Uncertain},
		"create": {"POST", func(ctx context.Context, c cloud.Cloud, _ cloud.VolumeID) error {
			_, err := c.CreateVolume(ctx, request("b"))
			return err
		}, fault.Uncertain},
		"list": {"GET", func(ctx context.Context, c cloud.Cloud, _ cloud.VolumeID) error {
			_, err := c.ListVolumes(ctx, cloud.Page{})
			return err
		}, fault.Unavailable},
		"find": {"GET", func(ctx context.Context, c cloud.Cloud, _ cloud.VolumeID) error {
			_, err := c.FindVolume(ctx, "a")
			return err
		}, fault.Unavailable},
		"read": {"GET", func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.GetVolume(ctx, id)
			return err
		}, fault.Unavailable},
		"detach": {"GET", func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error { return c.Detach(ctx, id, node1) }, fault.Unavailable},
	}
	answers := map[string]struct {
		status     int
		kind, body string
	}{
		"HTML": {200, html, "<html>please log in</html>"}, "nothing": {200, json, ""}, "no object": {200, json, "[]"}, "null": {200, json, "null"},
		"an object as HTML": {200, html, `{}`}, "a null list": {200, json, `{"data":null,"page":1,"pages":1}`},
		"another page":  {200, json, `{"data":[],"page":2,"pages":2}`},
		"a proxy's 404": {404, html, "default backend - 404"}, "a 404 of another API": {404, json, `{"error":"not found"}`}, "a proxy's 400": {400, html, "<html>"},
	}
	for what, call := range calls {
		for name, a := range answers {
			t.Run(what+"/"+name, func(t *testing.T) {
				account := start(t, emulator.Options{})
				id := volume(t, open(t, account), "a").ID
				want(t, call.call(t.Context(), open(t, account, answering(call.method, a.status, a.kind, a.body)), id), call.kind)
			})
		}
	}
}

// A proxy that repeats the request in its answer puts no token into an error.
func TestTheTokenIsNotRepeated(t *testing.T) {
	account := start(t, emulator.Options{})
	for name, body := range map[string]string{
		"the header":  "you sent Authorization: Bearer " + account.Token,
		"the reason":  `{"errors":[{"reason":"` + account.Token + `"}]}`,
		"the field":   `{"errors":[{"reason":"no","field":"` + account.Token + `"}]}`,
		"as any JSON": `{"token":"` + account.Token + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, account, answering("", 403, "application/json", body))
			for _, err := range []error{c.Check(t.Context()), c.DeleteVolume(t.Context(), "45")} {
				if err == nil || strings.Contains(err.Error(), account.Token) {
					t.Errorf("got %v, want an error without the token", err)
				}
			}
		})
	}
}

// Where the list of those that wait cannot be had, each asks for its own.
func TestVolumesAreFollowedWithoutTheirList(t *testing.T) {
	for name, status := range map[string]int{"it fails": 500, "it is refused": 400} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(4 * time.Second))})
				c := open(t, account, asItIs)
				ids := []cloud.VolumeID{volume(t, c, "ab").ID, volume(t, c, "cd").ID}
				account.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{Status: status}})
				began := time.Now()
				cloudtest.AtOnce(t, 2, func(n int) error {
					_, err := c.Attach(t.Context(), ids[n], []cloud.NodeID{node1, node2}[n])
					return err
				})
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("two attaches of 4 s took %s", took)
				}
			})
		})
	}
}

// A lock, or a key that is being rotated, is named, and the request is not sent time and again.
func TestWhatForbidsAChangeIsNamed(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	account.SetLocks(number(t, vol.ID), "cannot_delete")
	account.ResetStats()
	want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Precondition, "cannot_delete")
	account.SetLocks(number(t, vol.ID))
	account.SetStatus(number(t, vol.ID), "key_rotating")
	want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Precondition, "key_rotating")
	_, err := c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
	want(t, err, fault.Precondition, "key_rotating")
	_, err = c.CreateVolume(t.Context(), copyOf("copy", vol.ID))
	want(t, err, fault.Unavailable, "key_rotating")
	if n := account.Stats().Writes; n != 4 {
		t.Errorf("%d writes for 4 calls", n)
	}
	account.SetStatus(number(t, vol.ID), "active")
	must(t, c.DeleteVolume(t.Context(), vol.ID))
}

// A quota of the account is named in the cloud's words, and nothing is left of what it refused but a copy that only
// has to grow.
func TestAQuotaIsNamed(t *testing.T) {
	const words = "Account limit reached"
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "a")
	account.SetRules(func(r *emulator.Rules) { r.VolumeLimit = 1 })
	want(t, second(c.CreateVolume(t.Context(), request("b"))), fault.Exhausted, words)
	want(t, second(c.CreateVolume(t.Context(), copyOf("copy", vol.ID))), fault.Exhausted, words)
	account.SetRules(func(r *emulator.Rules) { r.VolumeLimit, r.CapacityLimit = 0, 2*int(vol.Size/cloud.GiB) })
	want(t, second(c.ExpandVolume(t.Context(), vol.ID, 3*vol.Size)), fault.Exhausted, words)
	if n := len(account.Volumes()); n != 1 {
		t.Errorf("there are %d volumes, want 1", n)
	}
	larger := copyOf("copy", vol.ID)
	larger.Size = vol.Size + cloud.GiB
	want(t, second(c.CreateVolume(t.Context(), larger)), fault.Uncertain, words, "goes on from there")
}

// A refusal that nothing explains is passed on in the cloud's words, and not taken for one about the attachment.
func TestAnUnexplainedRefusalOfAGrowthIsPassedOn(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	_, err := c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	refusal := account.Arm(emulator.Fault{Method: "POST", Route: resizeRoute, Effect: faults.Effect{Status: 400, Message: "not offered today"}})
	_, err = c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
	want(t, err, fault.Precondition, "not offered today")
	if n := refusal.Hits(); n != 1 {
		t.Errorf("it was sent %d times, want once", n)
	}
}
