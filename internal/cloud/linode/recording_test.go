package linode_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// notRecorded is what the backend asks for and no recording has, by the route and the part of the request.
var notRecorded = map[string]struct {
	why string
	// emulated: the emulator answers; otherwise the recording of the request without that part does.
	emulated bool
}{
	"POST /volumes/{volume}/attach, persist_across_boots": {why: "the API's description has it; the SDK's tests leave it out"},
	"GET /volumes, page_size":                             {why: "the API's description has it; the SDK's tests ask for pages of 100"},
	"GET /volumes, X-Filter label":                        {why: "the API's description has it; recorded are labels of images and kernels", emulated: true},
	"GET /regions":                                        {why: "the API's description has it", emulated: true},
	"GET /account/events":                                 {why: "the API's description has it", emulated: true},
	toClone:                                               {why: "the SDK's TestIAM_GetIOReadyForClonedVolume has it, of an attached volume: answered as a create"},
}

// step is a recorded exchange and the recorded id of the volume that it is about.
type step struct {
	recorded.Exchange

	id int
}

// subject is a volume that the backend has made.
type subject struct {
	id, size, linode int
	label, region    string
	// life are the changes that it had; a copy is made as a new volume is.
	life string
	// asked counts the requests by life and route.
	asked map[string]int
}

// recording is an API that knows nothing but recorded exchanges: what it answers to a request depends on the route and on the changes
// that the volume had. It replaces ids, labels, sizes, regions and Linodes in the recorded bodies by those of the requests, and nothing
// else. Recorded is the version v4beta.
type recording struct {
	fail     func(format string, args ...any)
	emulator http.RoundTripper
	steps    map[string][]step   // by life and route
	fields   map[string][]string // of bodies in any recording, by route

	mu       sync.Mutex
	volumes  map[int]*subject
	newest   *subject
	requests map[string]int // by route
	parts    map[string]bool
}

var (
	volumeIn = regexp.MustCompile(`^/volumes/(\d+)`)
	numbers  = map[string]*regexp.Regexp{"/volumes/{volume}": volumeIn, "/linode/instances/{linode}": regexp.MustCompile(`^/linode/instances/\d+`)}
)

// routeIn returns the route of a request, and the id of its volume or 0.
func routeIn(method, path string) (route string, id int) {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/v4beta"), "/v4")
	if match := volumeIn.FindStringSubmatch(path); match != nil {
		id, _ = strconv.Atoi(match[1])
	}
	for pattern, number := range numbers {
		path = number.ReplaceAllLiteralString(path, pattern)
	}
	return method + " " + path, id
}

// recordedChange are the routes that change what can be asked of a volume, with their word in its life. An update is none: it changes
// the label, which is replaced anyway.
var recordedChange = map[string]string{
	"POST /volumes/{volume}/attach": " attach", "POST /volumes/{volume}/detach": " detach", "POST /volumes/{volume}/resize": " resize",
	"DELETE /volumes/{volume}": " delete",
}

const (
	made     = "made"
	toCreate = "POST /volumes"
	toClone  = "POST /volumes/{volume}/clone"
)

// newRecording returns an API that has these recordings; of two that know the same, the first counts.
func newRecording(fail func(string, ...any), emulator http.RoundTripper, names ...string) (*recording, error) {
	r := &recording{
		fail: fail, emulator: emulator, steps: map[string][]step{}, fields: map[string][]string{},
		volumes: map[int]*subject{}, requests: map[string]int{}, parts: map[string]bool{},
	}
	every, err := recorded.Files("linode")
	if err != nil {
		return nil, err
	}
	for _, name := range append(slices.Clone(names), every...) {
		all, err := recorded.Exchanges("linode", name)
		if err != nil {
			return nil, err
		}
		if r.learn(all); slices.Contains(names, name) {
			r.load(all)
		}
	}
	return r, nil
}

// learn adds the fields of recorded bodies.
func (r *recording) learn(all []recorded.Exchange) {
	for _, e := range all {
		route, _ := routeIn(e.Method, e.Path)
		var body map[string]any
		_ = json.Unmarshal(e.Body, &body) // null has no fields
		r.fields[route] = append(r.fields[route], slices.Collect(maps.Keys(body))...)
	}
}

// load adds the exchanges of one recording.
func (r *recording) load(all []recorded.Exchange) {
	lives, last, found := map[int]string{}, 0, map[string][]step{}
	for _, e := range all {
		route, id := routeIn(e.Method, e.Path)
		var answer struct{ ID int }
		_ = json.Unmarshal(e.Answer, &answer) // a list has none
		about := id
		switch {
		case route == toCreate || route == toClone:
			about = answer.ID
		case id == 0:
			about = last
		}
		key := keyOf(route, lives[max(id, 0)], lives[last])
		found[key] = append(found[key], step{e, about})
		switch route {
		case toCreate:
			lives[answer.ID], last = made, answer.ID
		case toClone:
			lives[answer.ID] = made
		default:
			lives[id] += recordedChange[route]
		}
	}
	for key, steps := range found {
		if r.steps[key] == nil {
			r.steps[key] = steps
		}
	}
	r.steps[keyOf(toClone, made+" attach", "")] = r.steps[toCreate] // see notRecorded
}

// keyOf is a route with the life of its volume, or for a list with that of the newest volume.
func keyOf(route, own, newest string) string {
	switch {
	case route == toCreate:
		return route
	case strings.Contains(route, "{volume}"):
		return route + " of " + own
	}
	return route + " with " + cmp.Or(newest, "no volume")
}

// RoundTrip answers a request as recorded.
func (r *recording) RoundTrip(q *http.Request) (*http.Response, error) {
	var body map[string]any
	var text []byte
	if q.Body != nil {
		var err error
		if text, err = io.ReadAll(q.Body); err != nil {
			return nil, err
		}
		_ = json.Unmarshal(text, &body) // an empty one has no fields
		q.Body = io.NopCloser(bytes.NewReader(text))
	}
	if trace := httptrace.ContextClientTrace(q.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	route, id := routeIn(q.Method, q.URL.Path)
	r.requests[route]++
	if r.emulated(route, q, body) {
		return r.emulator.RoundTrip(q)
	}
	own, newest := &subject{}, &subject{}
	if v := r.volumes[id]; v != nil {
		own = v
	}
	if r.newest != nil {
		newest = r.newest
	}
	key := keyOf(route, own.life, newest.life)
	steps := r.steps[key]
	if len(steps) == 0 {
		r.fail("no recording has %s", key)
		return reply(q, http.StatusBadRequest, nil, `{"errors":[{"reason":"not recorded"}]}`), nil
	}
	if id == 0 {
		own = newest
	}
	if own.asked == nil {
		own.asked = map[string]int{}
	}
	now := steps[min(own.asked[key], len(steps)-1)]
	own.asked[key]++
	own = r.change(route, own, body)
	return reply(q, now.Status, now.Header, shownAs(now, own)), nil
}

// emulated reports whether the emulator answers, and fails where a part of the request is in no recording and not listed.
func (r *recording) emulated(route string, q *http.Request, body map[string]any) bool {
	if listed, is := notRecorded[route]; is {
		r.parts[route] = true
		return listed.emulated
	}
	var parts []string
	for name := range q.URL.Query() {
		if name != "page" {
			parts = append(parts, name)
		}
	}
	var filter map[string]any
	_ = json.Unmarshal([]byte(q.Header.Get("X-Filter")), &filter) // an empty one has no fields
	for name := range filter {
		parts = append(parts, "X-Filter "+name)
	}
	for name := range body {
		if !slices.Contains(r.fields[route], name) {
			parts = append(parts, name)
		}
	}
	emulated := false
	for _, part := range parts {
		listed, is := notRecorded[route+", "+part]
		if !is {
			r.fail("no recording has %s, %s", route, part)
		}
		r.parts[route+", "+part] = true
		emulated = emulated || listed.emulated
	}
	return emulated
}

// change notes what a request changes, and returns the volume that its answer shows.
func (r *recording) change(route string, v *subject, body map[string]any) *subject {
	const usual = 20
	number := func(field string, otherwise int) int {
		if n, is := body[field].(float64); is {
			return int(n)
		}
		return otherwise
	}
	text := func(field, otherwise string) string {
		if s, is := body[field].(string); is {
			return s
		}
		return otherwise
	}
	switch route {
	case toCreate, toClone:
		const firstID = 700_001
		size, region := number("size", usual), text("region", v.region)
		if route == toClone {
			size = v.size
		}
		v = &subject{id: firstID + len(r.volumes), size: size, label: text("label", ""), region: region, life: made, asked: map[string]int{}}
		if r.volumes[v.id] = v; route == toCreate {
			r.newest = v
		}
		return v
	}
	v.life += recordedChange[route]
	v.size, v.label, v.linode = number("size", v.size), text("label", v.label), number("linode_id", v.linode)
	return v
}

// shownAs returns the recorded answer with the values of a volume in the place of the recorded one's.
func shownAs(now step, v *subject) string {
	var root map[string]any
	if json.Unmarshal(now.Answer, &root) != nil {
		return string(now.Answer)
	}
	list, _ := root["data"].([]any)
	for _, element := range append(slices.Clone(list), root) {
		shown, _ := element.(map[string]any)
		if shown["filesystem_path"] == nil || shown["id"] != float64(now.id) {
			continue
		}
		shown["id"], shown["label"], shown["size"], shown["region"] = v.id, v.label, v.size, v.region
		shown["filesystem_path"] = "/dev/disk/by-id/scsi-0Linode_Volume_" + v.label
		if shown["linode_id"] != nil {
			shown["linode_id"] = v.linode
		}
	}
	text, err := json.Marshal(root)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}

func reply(q *http.Request, status int, header http.Header, body string) *http.Response {
	answer := cloudtest.Answer(q, status, "application/json", body)
	if header != nil {
		answer.Header = header.Clone()
	}
	return answer
}
