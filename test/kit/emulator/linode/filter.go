package linode

import (
	"encoding/json"
	"slices"
	"strings"
)

// values are what a filter can look at: the field's name, and its value or values.
type values map[string][]string

// keeper says whether a filter keeps an item.
type keeper func(values) bool

// order is what "+order_by" and "+order" may ask for.
const order = "created desc"

// filter reads the X-Filter header: what the drivers ask for, of the API's grammar. field is what cannot be filtered on, if there is
// such.
func filter(r *request, fields ...string) (keep keeper, field string) {
	text := r.Header.Get("X-Filter")
	if text == "" {
		return func(values) bool { return true }, ""
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, text
	}
	by, direction := plain(object["+order_by"]), plain(object["+order"])
	if asked := by + " " + direction; by != "" && asked != order {
		return nil, asked
	}
	delete(object, "+order_by")
	delete(object, "+order")
	return all(object, fields)
}

// all reads an object whose members must all hold.
func all(object map[string]json.RawMessage, fields []string) (keep keeper, field string) {
	var parts []keeper
	for name, value := range object {
		part, known := compare(name, value), slices.Contains(fields, name)
		if name == "+or" {
			var wrong string
			if part, wrong = one(value, fields); wrong != "" {
				return nil, wrong
			}
			known = true
		}
		if !known || part == nil {
			return nil, name
		}
		parts = append(parts, part)
	}
	return func(v values) bool {
		return !slices.ContainsFunc(parts, func(part keeper) bool { return !part(v) })
	}, ""
}

// one reads a list of objects of which one must hold.
func one(value json.RawMessage, fields []string) (keep keeper, field string) {
	var objects []map[string]json.RawMessage
	if err := json.Unmarshal(value, &objects); err != nil {
		return nil, string(value)
	}
	var parts []keeper
	for _, object := range objects {
		part, wrong := all(object, fields)
		if wrong != "" {
			return nil, wrong
		}
		parts = append(parts, part)
	}
	return func(v values) bool {
		return slices.ContainsFunc(parts, func(part keeper) bool { return part(v) })
	}, ""
}

// compare reads what a field must be or contain; nil: it is asked for in another way.
func compare(name string, value json.RawMessage) keeper {
	var operators map[string]json.RawMessage
	if json.Unmarshal(value, &operators) != nil {
		want := plain(value)
		return func(v values) bool { return slices.Contains(v[name], want) }
	}
	contains, is := operators["+contains"]
	if !is || len(operators) > 1 {
		return nil
	}
	want := plain(contains)
	return func(v values) bool {
		return slices.ContainsFunc(v[name], func(have string) bool { return strings.Contains(have, want) })
	}
}

// plain returns a JSON text or number as a text.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func (c *Cloud) refuseFilter(field string) answer {
	why := badFilter
	why.reason += " " + field
	return c.refuse(why)
}
