// Package machine asks the machine it runs on who it is: each cloud answers that at an address which
// only the machine itself reaches, without credentials. The sources are small on purpose, over
// net/http and without any SDK, because the node program links them.
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

// Info is what a machine is to its cloud.
type Info struct {
	// ID is what the cloud's API calls the machine.
	ID string
	// Zone is its place, in the scope of that cloud's volumes.
	Zone string
	// MaxDisks is how many disks it can have, its own and volumes together; 0 where the cloud does not say.
	MaxDisks int64
}

// Source asks one cloud's service at the base URL, "" meaning the usual one. It asks again until it has
// an answer or ctx ends: right after a boot the service may not be there yet.
type Source func(ctx context.Context, base string) (Info, error)

// Usual is the base URL of each cloud's service.
const Usual = "http://169.254.169.254"

const (
	// answerTimeout bounds one question. The service is one hop away; where it is not, as outside of the
	// cloud, nobody answers at all.
	answerTimeout = 2 * time.Second
	// pause is between two questions.
	pause = time.Second
	// longestAnswer bounds what is read of an answer.
	longestAnswer = 1 << 10
)

// CheckBase refuses a base URL that cannot be asked.
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

// errFinal marks an answer that will be the same at the next question.
var errFinal = errors.New("no other answer can be expected")

// untilAnswered asks until there is an answer, or a final failure, or ctx ends.
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

// client goes to the link-local address itself: a proxy would answer for another machine, and a
// redirect would lead away from this one.
var client = &http.Client{
	Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// question is one request to a service.
type question struct {
	method, address string
	header          map[string]string
	// longest bounds what is read of the answer; 0: longestAnswer.
	longest int64
}

// errAbsent is a service that does not know what it was asked for.
var errAbsent = errors.New("there is no such thing here")

// text gets one value.
func text(ctx context.Context, address string) (string, error) {
	body, err := put(ctx, question{method: http.MethodGet, address: address})
	return strings.TrimSpace(string(body)), err
}

// put puts a question.
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

// Limit is how many volumes a machine can have.
type Limit struct {
	// Max is the number that a flag gives; 0: the other fields count.
	Max int64
	// MaxDisks is how many disks the machine can have. Reserved of them are left to others, and Foreign counts its disks that are not volumes.
	MaxDisks, Reserved int64
	Foreign            func() (int64, error)
}

// Volumes returns how many volumes the machine can have now, in addition to its other disks. It is never 0, which would mean that there is no
// limit (failure A6): without a free place the cloud refuses the first attach, and the pod is scheduled elsewhere.
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
