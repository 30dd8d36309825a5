package linode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
)

// testimony is what a request came to.
type testimony struct {
	err    error          // of the transport
	answer *remote.Answer // unless it is a success
	// told: the answer says of a volume whether its device is there.
	told bool
	// left is when the request went out, by the clock on the wall, which goes on while this machine is stopped.
	left time.Time
	// date is when the answer was made, by the cloud's clock; zero where it does not say, or is out of a cache.
	date time.Time
}

type testimonyKey struct{}

// witness writes down what each request came to.
type witness struct{ base http.RoundTripper }

// mostRead bounds what is read of an answer that is not a list.
const mostRead = 64 << 10

// RoundTrip sends the request.
func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.base.RoundTrip(req)
	t, asked := req.Context().Value(testimonyKey{}).(*testimony)
	if !asked {
		return resp, err
	}
	if t.err = err; err != nil {
		return nil, err
	}
	begin, err := io.ReadAll(io.LimitReader(resp.Body, mostRead))
	if err != nil {
		t.err = err
		return nil, errors.Join(err, resp.Body.Close())
	}
	if resp.StatusCode/100 != 2 {
		t.answer = answerFrom(resp.StatusCode, begin)
	}
	if resp.Header.Get("Age") == "" {
		t.date, _ = http.ParseTime(resp.Header.Get("Date"))
	}
	t.told = bytes.Contains(begin, []byte(`"io_ready"`))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), resp.Body), resp.Body}
	return resp, nil
}

// departures stands below the budget and writes down when each request went out.
type departures struct{ base http.RoundTripper }

// RoundTrip sends the request.
func (d *departures) RoundTrip(req *http.Request) (*http.Response, error) {
	if t, asked := req.Context().Value(testimonyKey{}).(*testimony); asked {
		t.left = time.Now().Round(0)
	}
	return d.base.RoundTrip(req)
}

// answerFrom reads the cloud's errors, or what a gateway says in their place.
func answerFrom(status int, body []byte) *remote.Answer {
	var told struct {
		Errors []struct{ Reason, Field string }
	}
	if json.Unmarshal(body, &told) != nil {
		return remote.NewAnswer(status, http.StatusText(status)+" (not in the API's form)", "")
	}
	var words, fields []string
	for _, e := range told.Errors {
		text := e.Reason
		if e.Field != "" {
			fields = append(fields, e.Field)
			text = e.Field + ": " + text
		}
		words = append(words, text)
	}
	a := remote.NewAnswer(status, strings.Join(words, "; "), "")
	a.Fields = fields
	return a
}

// ask makes one request through the SDK and returns what it came to.
func (c *Cloud) ask(ctx context.Context, send func(ctx context.Context) error) (*testimony, error) {
	t := &testimony{left: time.Now().Round(0)}
	err := send(context.WithValue(ctx, testimonyKey{}, t))
	switch {
	case t.answer != nil:
		return t, t.answer
	case t.err != nil:
		return t, t.err
	case err != nil:
		return t, fmt.Errorf("the cloud's answer cannot be read: %w", err)
	}
	return t, nil
}
