package digitalocean_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// differences says, field by field, how an answer is not as it was recorded.
func differences(was, answer any, path string) (all []string) {
	if recorded.TypeOf(was) != recorded.TypeOf(answer) {
		return []string{fmt.Sprintf("%s is %s, and recorded as %s", path, recorded.TypeOf(answer), recorded.TypeOf(was))}
	}
	switch want := was.(type) {
	case map[string]any:
		return fieldDifferences(want, answer.(map[string]any), path)
	case []any:
		got := answer.([]any)
		if !among(own, path) && len(got) != len(want) {
			return []string{fmt.Sprintf("%s has %d elements, and recorded are %d", path, len(got), len(want))}
		}
		for i := range min(len(got), len(want)) {
			all = append(all, differences(want[i], got[i], path)...)
		}
	default:
		if !among(own, path) && was != answer {
			all = append(all, fmt.Sprintf("%s is %v, and recorded as %v", path, answer, was))
		}
	}
	return all
}

func fieldDifferences(was, answer map[string]any, path string) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(was)) {
		value, there := answer[key]
		if !there {
			all = append(all, below(path, key)+" is missing")
			continue
		}
		all = append(all, differences(was[key], value, below(path, key))...)
	}
	for _, key := range slices.Sorted(maps.Keys(answer)) {
		if _, there := was[key]; !there && !among(newer, below(path, key)) {
			all = append(all, below(path, key)+" is in no recording")
		}
	}
	return all
}

// eachField calls visit with each recorded field of an answer, and the object that has it.
func eachField(was, answer any, path string, visit func(object map[string]any, key, path string)) {
	switch want := was.(type) {
	case map[string]any:
		object := answer.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			visit(object, key, below(path, key))
			eachField(want[key], object[key], below(path, key), visit)
		}
	case []any:
		got := answer.([]any)
		for i := range min(len(got), len(want)) {
			eachField(want[i], got[i], path, visit)
		}
	}
}

func below(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// among reports whether a path ends with a name of the list.
func among(list map[string]string, path string) bool {
	for name := range list {
		if path == name || strings.HasSuffix(path, "."+name) {
			return true
		}
	}
	return false
}
