package linode

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// values are what a filter can look at: the field's name, and its value or values.
type values map[string][]string

// The fields that the real API lets clients filter on.
var (
	volumeFields = []string{"label", "tags"}
	linodeFields = []string{"id", "label", "region", "tags", "type"}
)

func volumeValues(v volume) values { return values{"label": {v.Label}, "tags": v.Tags} }

func linodeValues(l Linode) values {
	return values{"id": {strconv.Itoa(l.ID)}, "label": {l.Label}, "region": {l.Region}, "tags": l.Tags, "type": {l.Type}}
}

// keeper says whether a filter keeps an item.
type keeper func(values) bool

// order says by which field a list is sorted, and in which direction; without a field it is not.
type order struct {
	by   string
	desc bool
}

// sorted returns the items of a list in their order; show returns what a filter sees of one.
func sorted[T any](o order, all []T, show func(T) values) []T {
	if o.by == "" {
		return all
	}
	slices.SortStableFunc(all, func(a, b T) int {
		way := rank(strings.Join(show(a)[o.by], ","), strings.Join(show(b)[o.by], ","))
		if o.desc {
			return -way
		}
		return way
	})
	return all
}

// rank compares two values: as numbers if both are, else as texts.
func rank(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// filter reads the X-Filter header. field is what cannot be filtered on, if there is such.
func filter(r *request, fields []string) (keep keeper, by order, field string) {
	text := r.Header.Get("X-Filter")
	if text == "" {
		return func(values) bool { return true }, order{}, ""
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, order{}, text
	}
	if keep, field = all(object, fields); field != "" {
		return nil, order{}, field
	}
	var direction string
	_ = json.Unmarshal(object["+order_by"], &by.by) // what is no text orders nothing
	_ = json.Unmarshal(object["+order"], &direction)
	if by.desc = direction == "desc"; by.by != "" && !slices.Contains(fields, by.by) {
		return nil, order{}, by.by
	}
	return keep, by, ""
}

// all reads an object whose members must all hold.
func all(object map[string]json.RawMessage, fields []string) (keep keeper, field string) {
	var parts []keeper
	for name, value := range object {
		switch {
		case name == "+order" || name == "+order_by":
			continue
		case name == "+and" || name == "+or":
			part, wrong := several(value, fields, name == "+or")
			if wrong != "" {
				return nil, wrong
			}
			parts = append(parts, part)
		case slices.Contains(fields, name):
			part, known := compare(name, value)
			if !known {
				return nil, name
			}
			parts = append(parts, part)
		default:
			return nil, name
		}
	}
	return func(v values) bool {
		return !slices.ContainsFunc(parts, func(part keeper) bool { return !part(v) })
	}, ""
}

// several reads a list of objects of which one or all must hold.
func several(value json.RawMessage, fields []string, one bool) (keep keeper, field string) {
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
		if one {
			return slices.ContainsFunc(parts, func(part keeper) bool { return part(v) })
		}
		return !slices.ContainsFunc(parts, func(part keeper) bool { return !part(v) })
	}, ""
}

// compare reads what a field must be: a value, or an operator with one.
func compare(name string, value json.RawMessage) (keep keeper, known bool) {
	var operators map[string]json.RawMessage
	if json.Unmarshal(value, &operators) != nil {
		want := plain(value)
		return func(v values) bool { return slices.Contains(v[name], want) }, true
	}
	// Two operators of one field are the two ends of a range.
	var parts []func(have string) bool
	for operator, operand := range operators {
		part, known := comparison(operator, plain(operand))
		if !known {
			return nil, false
		}
		parts = append(parts, part)
	}
	_, excludes := operators["+neq"]
	return func(v values) bool {
		fits := func(have string) bool {
			return !slices.ContainsFunc(parts, func(part func(string) bool) bool { return !part(have) })
		}
		if excludes { // none of several values may be the one
			return !slices.ContainsFunc(v[name], func(have string) bool { return !fits(have) })
		}
		return slices.ContainsFunc(v[name], fits)
	}, len(parts) > 0
}

// comparison is what an operator demands of a value.
func comparison(operator, want string) (part func(have string) bool, known bool) {
	switch operator {
	case "+contains":
		return func(have string) bool { return strings.Contains(have, want) }, true
	case "+neq":
		return func(have string) bool { return have != want }, true
	case "+gt":
		return func(have string) bool { return rank(have, want) > 0 }, true
	case "+gte":
		return func(have string) bool { return rank(have, want) >= 0 }, true
	case "+lt":
		return func(have string) bool { return rank(have, want) < 0 }, true
	case "+lte":
		return func(have string) bool { return rank(have, want) <= 0 }, true
	}
	return nil, false
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
	if text := c.rules.Texts[why.name]; text != "" {
		why.reason = text
	}
	why.name, why.reason = "", why.reason+" "+field
	return c.refuse(why)
}
