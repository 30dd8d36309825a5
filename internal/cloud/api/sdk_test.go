package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// sdk is the HTTP client of an SDK over a cloud that answers each request with a body. sent counts the requests.
func sdk(body string, sent *int) *http.Client {
	answer := answers(http.StatusOK, "application/json", body)
	c := client(cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		*sent++
		return answer(r)
	}))
	return &http.Client{Transport: api.Transport(c.Do)}
}

func ask(ctx context.Context, c *http.Client) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://sdk.example/it", nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// What an SDK does besides the one request that it is called for is no success, and is not sent.
func TestACallOfAnSDKIsOneRequest(t *testing.T) {
	for name, write := range map[string]bool{"a read": false, "a write": true} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			c, call := sdk(`{"a":1}`, &sent), api.Call{Doing: "do it", Has: []string{"a"}}
			kind := fault.Unavailable
			if write {
				call.Write, kind = ops.NewWrite(t.Context(), budget.Write), fault.Uncertain
			}
			_, err := api.Through(t.Context(), call, func(ctx context.Context) (string, error) {
				text, err := ask(ctx, c)
				if err == nil {
					_, _ = ask(ctx, c) // a retry, or another page
				}
				return text, err
			})
			if fault.Of(err) != kind || sent != 1 {
				t.Errorf("two requests in one call: %v after %d, want %q after one", err, sent, kind)
			}
		})
	}
}

func TestWhatAnSDKMakesOfAnAnswerIsItsOwn(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unread := errors.New("cannot unmarshal")
	for name, tc := range map[string]struct {
		ctx  context.Context
		body string
		call api.Call
		do   func(context.Context, *http.Client) (string, error)
		kind fault.Kind
		text string
		sent int
	}{
		"as it should be":              {t.Context(), `{"a":1}`, api.Call{Has: []string{"a"}, Is: map[string]string{"a": "1"}}, ask, fault.None, `{"a":1}`, 1},
		"a key is missing":             {t.Context(), `{"b":1}`, api.Call{Has: []string{"a"}}, ask, fault.Unavailable, "", 1},
		"a key is there twice":         {t.Context(), `{"a":1,"A":2}`, api.Call{Has: []string{"a"}}, ask, fault.Unavailable, "", 1},
		"a key is null":                {t.Context(), `{"a":null}`, api.Call{Has: []string{"a"}}, ask, fault.Unavailable, "", 1},
		"a key has another value":      {t.Context(), `{"a":2}`, api.Call{Is: map[string]string{"a": "1"}}, ask, fault.Unavailable, "", 1},
		"an id is 0":                   {t.Context(), `{"a":{"id":0}}`, api.Call{Has: []string{"a.id"}}, ask, fault.Unavailable, "", 1},
		"an object has another id":     {t.Context(), `{"a":{"id":2}}`, api.Call{Is: map[string]string{"a.id": "1"}}, ask, fault.Unavailable, "", 1},
		"an object has two ids":        {t.Context(), `{"a":{"id":1,"ID":2}}`, api.Call{Is: map[string]string{"a.id": "1"}}, ask, fault.Unavailable, "", 1},
		"an object has its id":         {t.Context(), `{"a":{"id":"x"}}`, api.Call{Is: map[string]string{"a.id": `"x"`}}, ask, fault.None, `{"a":{"id":"x"}}`, 1},
		"an empty object is wanted":    {t.Context(), `{"a":2}`, api.Call{Empty: true}, ask, fault.Unavailable, "", 1},
		"an empty object":              {t.Context(), `{}`, api.Call{Empty: true}, ask, fault.None, `{}`, 1},
		"null for an empty object":     {t.Context(), `null`, api.Call{Empty: true}, ask, fault.Unavailable, "", 1},
		"the SDK cannot read it":       {t.Context(), `{"a":1}`, api.Call{}, func(ctx context.Context, c *http.Client) (string, error) { _, _ = ask(ctx, c); return "", unread }, fault.Unavailable, "", 1},
		"the SDK takes it for success": {t.Context(), `[`, api.Call{}, func(ctx context.Context, c *http.Client) (string, error) { _, _ = ask(ctx, c); return "fine", nil }, fault.Unavailable, "", 1},
		"the SDK sends nothing":        {t.Context(), `{}`, api.Call{}, func(context.Context, *http.Client) (string, error) { return "fine", nil }, fault.Unavailable, "", 0},
		"the call has ended":           {ended, `{}`, api.Call{}, ask, fault.Unavailable, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			c := sdk(tc.body, &sent)
			text, err := api.Through(tc.ctx, tc.call, func(ctx context.Context) (string, error) { return tc.do(ctx, c) })
			if fault.Of(err) != tc.kind || text != tc.text || sent != tc.sent {
				t.Errorf("it is %q, %v after %d requests, want %q, the kind %q and %d", text, err, sent, tc.text, tc.kind, tc.sent)
			}
		})
	}
}

// A request that an SDK makes by itself, as for a cache in the background, is not sent.
func TestARequestOutsideOfACallIsNotSent(t *testing.T) {
	sent := 0
	if _, err := ask(t.Context(), sdk("{}", &sent)); err == nil || sent != 0 {
		t.Errorf("it is %v after %d requests, want an error and none", err, sent)
	}
}

// The answers that SDKs are decoding count among those that are read at once.
func TestAnAnswerHasAPlaceUntilTheSDKHasDecodedIt(t *testing.T) {
	sent := 0
	c := sdk(`{}`, &sent)
	reading, release, ends := make(chan struct{}), make(chan struct{}), make(chan error)
	const places = 16
	for range places {
		go func() {
			_, err := api.Through(t.Context(), api.Call{}, func(ctx context.Context) (string, error) {
				text, err := ask(ctx, c)
				reading <- struct{}{}
				<-release
				return text, err
			})
			ends <- err
		}()
		<-reading
	}
	for range 20 { // the choice among a place and an end is left to chance
		ctx, cancel := context.WithCancel(t.Context())
		late := client(cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			cancel()
			return answers(http.StatusOK, "application/json", "{}")(r)
		}))
		if err := late.Do(ctx, api.Request{Method: "GET", Path: "/it"}, &struct{}{}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a call without a place = %v, want that it waits until its own end", err)
		}
	}
	close(release)
	for range places {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	if _, err := api.Through(t.Context(), api.Call{}, func(ctx context.Context) (string, error) { return ask(ctx, c) }); err != nil {
		t.Errorf("a call after these = %v", err)
	}
}
