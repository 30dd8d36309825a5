package linode

import (
	"encoding/json"
	"slices"
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
	return values{"id": {pathText(l.ID)}, "label": {l.Label}, "region": {l.Region}, "tags": l.Tags, "type": {l.Type}}
}

func pathText(id int) string { text, _ := json.Marshal(id); return string(text) }

// keeper says whether a filter keeps an item.
type keeper func(values) bool

// orderer sorts n items: at returns their values, and move takes the order, as the old places.
type orderer func(n int, at func(int) values, move func([]int))

// filter reads the X-Filter header. field is what cannot be filtered on, if there is such.
func filter(r *request, fields []string) (keep keeper, order orderer, field string) {
	unsorted := func(int, func(int) values, func([]int)) {}
	text := r.Header.Get("X-Filter")
	if text == "" {
		return func(values) bool { return true }, unsorted, ""
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, nil, text
	}
	if keep, field = all(object, fields); field != "" {
		return nil, nil, field
	}
	var by, direction string
	_ = json.Unmarshal(object["+order_by"], &by) // what is no text orders nothing
	_ = json.Unmarshal(object["+order"], &direction)
	if by == "" {
		return keep, unsorted, ""
	}
	if !slices.Contains(fields, by) {
		return nil, nil, by
	}
	return keep, func(n int, at func(int) values, move func([]int)) {
		places := make([]int, n)
		for i := range places {
			places[i] = i
		}
		slices.SortStableFunc(places, func(a, b int) int {
			order := strings.Compare(strings.Join(at(a)[by], ","), strings.Join(at(b)[by], ","))
			if direction == "desc" {
				return -order
			}
			return order
		})
		move(places)
	}, ""
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
	if operand, is := operators["+contains"]; is && len(operators) == 1 {
		want := plain(operand)
		return func(v values) bool {
			return slices.ContainsFunc(v[name], func(have string) bool { return strings.Contains(have, want) })
		}, true
	}
	if operand, is := operators["+neq"]; is && len(operators) == 1 {
		want := plain(operand)
		return func(v values) bool { return !slices.Contains(v[name], want) }, true
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
