// Package machine asks the cloud's metadata service about the machine that it runs on. Each cloud has such a service at an address
// that only the machine itself reaches, without credentials. The sources are small on purpose, over net/http and without an SDK,
// because the node program links them.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Info describes a machine of a cloud.
type Info struct {
	// ID is the machine's id in the cloud's API.
	ID string
	// Zone is its place, in the scope of that cloud's volumes.
	Zone string
	// MaxDisks is the maximum number of its disks, including volumes; 0 if the cloud does not report it.
	MaxDisks int64
}

// Source asks one cloud's metadata service at the base URL; "" means Usual. It repeats the request until it has an answer or ctx
// ends: right after a boot the service may not be reachable yet.
type Source func(ctx context.Context, base string) (Info, error)

// Usual is the base URL of each cloud's metadata service.
const Usual = "http://169.254.169.254"

const (
	// answerTimeout is the timeout of one request. The service is one hop away; outside of the cloud nothing answers.
	answerTimeout = 2 * time.Second
	// pause is the time between two requests.
	pause = time.Second
	// longestAnswer is the maximum length of an answer.
	longestAnswer = 1 << 10
)

// CheckBase refuses an invalid base URL.
func CheckBase(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return fmt.Errorf("not a URL: %w", fault.InvalidArgument)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("not of the form http://host[:port][/path]: %w", fault.InvalidArgument)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("only scheme, host, port and path are wanted: %w", fault.InvalidArgument)
	}
	return nil
}

// errFinal marks an error that a repeat cannot change.
var errFinal = errors.New("no other answer can be expected")

// untilAnswered repeats a request until there is an answer or a final error, or ctx ends.
func untilAnswered[T any](ctx context.Context, ask func(ctx context.Context) (T, error)) (T, error) {
	var answer T
	again := func(err error) bool { return !errors.Is(err, errFinal) }
	err := wait.Every(pause, 0).Retry(ctx, again, func() (err error) {
		answer, err = ask(ctx)
		return err
	})
	if err != nil && again(err) {
		err = fmt.Errorf("%w: %w (asked until: %w)", fault.Unavailable, err, cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	return answer, err
}

// client connects to the link-local address directly: a proxy would answer for another machine, and a redirect would lead to one.
var client = &http.Client{
	Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// question is a request to a metadata service.
type question struct {
	method, address string
	header          map[string]string
	// longest is the maximum length of the answer; 0 means longestAnswer.
	longest int64
}

// errAbsent is the error for a path that the service does not have.
var errAbsent = errors.New("there is no such thing here")

// text returns one value of the service.
func text(ctx context.Context, address string) (string, error) {
	body, err := put(ctx, question{method: http.MethodGet, address: address})
	return strings.TrimSpace(string(body)), err
}

// put sends a request and returns the body of the answer.
func put(ctx context.Context, q question) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.method, q.address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the metadata service at %s: %w: %w: %w", q.address, fault.InvalidArgument, errFinal, err)
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the metadata service: %w", err) // the error names the address
	}
	defer func() { _ = res.Body.Close() }()
	longest := q.longest
	if longest == 0 {
		longest = longestAnswer
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, longest+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the metadata service at %s: %w", q.address, err)
	case res.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("ask the metadata service at %s: it answers %s: %w", q.address, res.Status, errAbsent)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask the metadata service at %s: it answers %s", q.address, res.Status)
	case int64(len(body)) > longest:
		return nil, fmt.Errorf("ask the metadata service at %s: the answer is too long to be one: %w: %w", q.address, fault.Unavailable, errFinal)
	}
	return body, nil
}

// Limit is the attach limit of a machine.
type Limit struct {
	// Max is the value of a flag; 0: the other fields determine the limit.
	Max int64
	// MaxDisks is the maximum number of disks of the machine. Reserved of them are for other uses, and Foreign counts its disks
	// that are not volumes.
	MaxDisks, Reserved int64
	Foreign            func() (int64, error)
}

// Volumes returns how many volumes the machine can have now, in addition to its other disks. It never returns 0, which would mean
// no limit (failure A6): without a free slot the cloud refuses the first attach, and the pod is scheduled to another node.
func (l Limit) Volumes() (int64, error) {
	if l.Max != 0 {
		return l.Max, nil
	}
	others, err := l.Foreign()
	if err != nil {
		return 0, err
	}
	return max(1, l.MaxDisks-others-l.Reserved), nil
}
