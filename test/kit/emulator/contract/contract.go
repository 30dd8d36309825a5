// Package contract checks what goes over an emulated API against the official OpenAPI description of
// that API, so that neither the emulator nor a client drifts away from the real thing. The descriptions
// are not part of this project: the environment variable OPENAPI_DIR names the folder where they are,
// and without it nothing is checked.
package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// The environment variables of this package.
const (
	// Folder is where the descriptions are. A relative path counts from the working directory or from
	// the project's root.
	Folder = "OPENAPI_DIR"
	// Report names a file to which each checker appends a line with its totals, for the sum over many
	// test programs.
	Report = "OPENAPI_REPORT"
)

// Exception is a known difference between a description and the real API.
type Exception struct {
	// Method and Route of the exchange; empty means any.
	Method, Route string
	// Contains is a part of the mismatch's text.
	Contains string
	// Why says how it is known that the description is wrong.
	Why string
}

// Config says which description and what is known about it.
type Config struct {
	// File is the name of the description in the folder.
	File string
	// Exceptions are differences that do not count.
	Exceptions []Exception
	// Borrowed are routes of the real API that the description lacks, with the route whose answers
	// theirs must look like: "GET /v2/actions" to "GET /v2/volumes/{volume_id}/actions".
	Borrowed map[string]string
}

// Totals count exchanges.
type Totals struct {
	// Exchanges are the requests that the description knows, checked together with their answers.
	Exchanges int `json:"exchanges"`
	// Mismatches are the exchanges of which a part breaks the description.
	Mismatches int `json:"mismatches"`
	// Refused are exchanges whose request breaks the description and was rightly answered 4xx.
	Refused int `json:"refused"`
	// Undescribed are the exchanges of routes that the description does not know.
	Undescribed int `json:"undescribed"`
	// Details are the first mismatches.
	Details []string `json:"details,omitempty"`
}

// String is the line that the suites print.
func (t Totals) String() string {
	return fmt.Sprintf("exchanges=%d mismatches=%d", t.Exchanges, t.Mismatches)
}

const mostDetails = 50

func (t *Totals) add(other Totals) {
	t.Exchanges += other.Exchanges
	t.Mismatches += other.Mismatches
	t.Refused += other.Refused
	t.Undescribed += other.Undescribed
	t.Details = append(t.Details, other.Details[:min(len(other.Details), mostDetails-len(t.Details))]...)
}

// Checker checks the exchanges of one emulated account. A nil Checker checks nothing.
type Checker struct {
	cfg Config
	doc *openapi3.T

	mu     sync.Mutex
	totals Totals
}

// Open returns a checker, or nil with the reason when there is no description to check with.
func Open(cfg Config) (*Checker, string, error) {
	dir := os.Getenv(Folder)
	if dir == "" {
		return nil, fmt.Sprintf("exchanges are not checked: %s does not name the folder of %s", Folder, cfg.File), nil
	}
	doc, err := load(filepath.Join(find(dir), cfg.File))
	if err != nil {
		return nil, "", fmt.Errorf("the description that %s names: %w", Folder, err)
	}
	return &Checker{cfg: cfg, doc: doc}, "", nil
}

// find resolves a relative folder from the working directory or from the root of the module that it is
// in: tests run in their package's folder.
func find(dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	for base := "."; ; base = filepath.Join(base, "..") {
		if _, err := os.Stat(filepath.Join(base, "go.mod")); err == nil {
			if _, err := os.Stat(filepath.Join(base, dir)); err == nil {
				return filepath.Join(base, dir)
			}
		}
		if abs, err := filepath.Abs(base); err != nil || abs == "/" {
			return dir
		}
	}
}

// loaded keeps each description once per process: reading one takes a second under the race detector.
var loaded struct {
	sync.Mutex
	docs map[string]*openapi3.T
}

func load(path string) (*openapi3.T, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if doc := loaded.docs[path]; doc != nil {
		return doc, nil
	}
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if loaded.docs == nil {
		loaded.docs = map[string]*openapi3.T{}
	}
	loaded.docs[path] = doc
	return doc, nil
}

// Exchange is a request and its answer.
type Exchange struct {
	Request     *http.Request // with its path values set
	Route       string
	RequestBody []byte
	Status      int
	Header      http.Header
	Body        []byte
}

// Check counts an exchange and what is wrong with it.
func (c *Checker) Check(e Exchange) {
	if c == nil {
		return
	}
	var totals Totals
	problems, described := c.problems(e)
	if !described {
		totals.Undescribed = 1
	} else {
		totals.Exchanges = 1
	}
	var counted []string
	for _, p := range problems {
		switch {
		case c.excepted(e, p.text):
		case p.ofRequest && e.Status >= 400 && e.Status < 500:
			totals.Refused = 1
		default:
			counted = append(counted, p.text)
		}
	}
	if len(counted) > 0 {
		totals.Mismatches = 1
		totals.Details = []string{fmt.Sprintf("%s %s (%d): %s", e.Request.Method, e.Request.URL, e.Status, strings.Join(counted, "; "))}
	}
	c.mu.Lock()
	c.totals.add(totals)
	c.mu.Unlock()
}

func (c *Checker) excepted(e Exchange, text string) bool {
	for _, known := range c.cfg.Exceptions {
		if (known.Method == "" || known.Method == e.Request.Method) && (known.Route == "" || known.Route == e.Route) &&
			strings.Contains(text, known.Contains) {
			return true
		}
	}
	return false
}

type mismatch struct {
	ofRequest bool
	text      string
}

// problems returns what is wrong with an exchange and whether the description knows its route.
func (c *Checker) problems(e Exchange) (found []mismatch, described bool) {
	route := c.route(e.Request.Method, e.Route)
	described = route != nil
	if !described {
		method, path, _ := strings.Cut(c.cfg.Borrowed[e.Request.Method+" "+e.Route], " ")
		if route = c.route(method, path); route == nil {
			return nil, false
		}
	}
	request := e.Request.Clone(context.WithoutCancel(e.Request.Context()))
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(e.RequestBody)), int64(len(e.RequestBody))
	input := &openapi3filter.RequestValidationInput{
		Request: request, Route: route, PathParams: map[string]string{},
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true,
			RejectWhenRequestBodyNotSpecified: true, IncludeResponseStatus: true, MultiError: true,
		},
	}
	for _, parameter := range slices.Concat(route.PathItem.Parameters, route.Operation.Parameters) {
		if name := parameter.Value.Name; parameter.Value.In == openapi3.ParameterInPath {
			input.PathParams[name] = e.Request.PathValue(name)
		}
	}
	if described {
		found = append(found, unknownQueries(route.Operation, request)...)
		if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil {
			for _, each := range apart(err) {
				found = append(found, mismatch{true, "request: " + shorten(each)})
			}
		}
	}
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: e.Status, Header: e.Header, Options: input.Options,
	}
	if err := openapi3filter.ValidateResponse(request.Context(), output.SetBodyBytes(e.Body)); err != nil {
		found = append(found, mismatch{false, "answer: " + shorten(err)})
	}
	return found, described
}

func (c *Checker) route(method, path string) *routers.Route {
	item := c.doc.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		return nil
	}
	return &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)}
}

// apart takes what is wrong with a request apart, so that an exception for one part hides no other.
func apart(err error) []error {
	var several openapi3.MultiError
	if errors.As(err, &several) {
		return several
	}
	return []error{err}
}

// unknownQueries finds parameters that the description does not have; openapi3filter lets them pass.
func unknownQueries(operation *openapi3.Operation, r *http.Request) (found []mismatch) {
	for name := range r.URL.Query() {
		if operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			found = append(found, mismatch{true, fmt.Sprintf("request: unknown query parameter %q", name)})
		}
	}
	return found
}

// shorten leaves the sentence of an error and drops the schema and the value that follow it.
func shorten(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\nSchema:")
	return strings.Join(strings.Fields(text), " ")
}

// Totals returns the counters of this checker.
func (c *Checker) Totals() Totals {
	if c == nil {
		return Totals{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.totals
}

// Close appends the totals to the file that the environment names, if it names one.
func (c *Checker) Close(name string) error {
	path := os.Getenv(Report)
	if c == nil || path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", c.Totals(), name)
	return errors.Join(err, f.Close())
}

// Scopes returns what the description demands of a token, by operation such as "GET /v2/volumes".
func (c *Checker) Scopes() map[string][]string {
	all := map[string][]string{}
	for route, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Security == nil {
				continue
			}
			for _, requirement := range *operation.Security {
				for _, scopes := range requirement {
					all[method+" "+route] = append(all[method+" "+route], scopes...)
				}
			}
		}
	}
	return all
}
