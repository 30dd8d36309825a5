package recorded_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// difference is one between a recorded answer and another one to the same request.
type difference struct {
	// Where is the part of the answer: "status", a header, or a field behind the object that has it, as "volume.size".
	Where string
	// What is wrong with it.
	What string
}

// The usual differences of fields.
const (
	missing    = "is missing"
	additional = "is not in the recording"
)

func (d difference) String() string { return d.Where + " " + d.What }

// headers are compared as they are.
var headers = []string{"Content-Type", "X-Accepted-Oauth-Scopes", "X-Oauth-Scopes"}

// limitHeader has a number of the account, so that only its presence is compared.
const limitHeader = "X-Ratelimit-Limit"

// times are fields with values that the recorder replaced.
var times = []string{"created", "updated"}

// compare returns the differences between a recorded answer and that of a server whose volumes have other ids; recordedID maps these
// to the recorded ones.
func compare(want recorded.Exchange, got expect.Answer, recordedID func(int) int) []difference {
	var all []difference
	note := func(where, format string, args ...any) {
		all = append(all, difference{where, fmt.Sprintf(format, args...)})
	}
	if got.Status != want.Status {
		note("status", "is %d, want %d", got.Status, want.Status)
	}
	for _, name := range headers {
		if is, was := got.Header.Get(name), want.Header.Get(name); is != was {
			note(name, "is %q, want %q", is, was)
		}
	}
	if is, was := got.Header.Get(limitHeader) != "", want.Header.Get(limitHeader) != ""; is != was {
		note(limitHeader, "is there: %t, want %t", is, was)
	}
	var was, is any
	if err := json.Unmarshal(want.Answer, &was); err != nil {
		note("recording", "is no JSON: %v", err)
	}
	if err := json.Unmarshal([]byte(got.Body), &is); err != nil {
		note("body", "is no JSON: %v", err)
	}
	c := comparison{note: note, recordedID: recordedID}
	c.values("answer", was, is)
	return all
}

// comparison compares two JSON values.
type comparison struct {
	note       func(where, format string, args ...any)
	recordedID func(int) int
}

func (c comparison) values(where string, was, is any) {
	if recorded.TypeOf(was) != recorded.TypeOf(is) {
		c.note(where, "has the type %s, want %s", recorded.TypeOf(is), recorded.TypeOf(was))
		return
	}
	switch was := was.(type) {
	case map[string]any:
		c.objects(was, is.(map[string]any))
	case []any:
		c.lists(where, was, is.([]any))
	default:
		if !reflect.DeepEqual(was, is) {
			c.note(where, "is %v, want %v", is, was)
		}
	}
}

func (c comparison) objects(was, is map[string]any) {
	name := objectOf(was)
	exact := slices.Contains([]string{"volume", "page", "error"}, name)
	for _, field := range slices.Sorted(maps.Keys(was)) {
		where := name + "." + field
		value, found := is[field]
		switch {
		case !found:
			c.note(where, missing)
		case field == "id" && name == "volume":
			id, _ := value.(float64)
			c.values(where, was[field], float64(c.recordedID(int(id))))
		case slices.Contains(times, field), !exact && recorded.TypeOf(value) != "object" && recorded.TypeOf(value) != "array":
			c.values(where, recorded.TypeOf(was[field]), recorded.TypeOf(value))
		default:
			c.values(where, was[field], value)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(is)) {
		if _, found := was[field]; !found {
			c.note(name+"."+field, additional)
		}
	}
}

// lists compares the elements of two lists, volumes in the order of their recorded ids. Elements of other kinds depend on the account,
// so that the first stands for all; where the account has none there is nothing to compare.
func (c comparison) lists(where string, was, is []any) {
	if !exactList(where, was) {
		was, is = was[:min(len(was), len(is), 1)], is[:min(len(was), len(is), 1)]
	}
	if len(was) != len(is) {
		c.note(where, "has %d elements, want %d", len(is), len(was))
		return
	}
	byID := func(a, b any) int { return cmp.Compare(c.idOf(a), c.idOf(b)) }
	is = slices.SortedStableFunc(slices.Values(is), byID)
	for i := range was {
		if text, isText := was[i].(string); isText && where != "volume.tags" {
			c.values(where, recorded.TypeOf(text), recorded.TypeOf(is[i]))
			continue
		}
		c.values(where, was[i], is[i])
	}
}

// exactList reports whether each element of a list counts.
func exactList(where string, elements []any) bool {
	if where != "page.data" || len(elements) == 0 {
		return where == "page.data" || where == "volume.tags" || where == "answer.errors"
	}
	first, _ := elements[0].(map[string]any)
	return objectOf(first) == "volume"
}

// idOf returns the recorded id of a volume, and 0 of anything else.
func (c comparison) idOf(element any) int {
	object, is := element.(map[string]any)
	if !is || objectOf(object) != "volume" {
		return 0
	}
	id, _ := object["id"].(float64)
	return c.recordedID(int(id))
}

// kinds name objects by a field that only they have.
var kinds = []struct{ field, name string }{
	{"filesystem_path", "volume"}, {"pages", "page"}, {"reason", "error"}, {"hypervisor", "instance"}, {"filesystem", "disk"},
	{"percent_complete", "event"}, {"resolvers", "region"},
}

// objectOf names an object.
func objectOf(fields map[string]any) string {
	for _, kind := range kinds {
		if _, is := fields[kind.field]; is {
			return kind.name
		}
	}
	return "answer"
}
