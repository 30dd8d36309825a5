package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var fieldSelector = regexp.MustCompile(`kubectl [^\n]*?\b(?:get|wait|delete)\b[^\n]*?--field-selector[= ]\S+`)

// selectable are the fields that the API server selects by, other than the name and the namespace, which every kind has.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/#list-of-supported-fields
var selectable = map[string][]string{
	"pod": {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
		"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
	},
	"event": {"involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "reason", "type", "source"},
	"node":  {"spec.unschedulable"},
}

// TestFieldSelectorsExist: a selector that the API server does not know is an error, and not an empty list.
func TestFieldSelectorsExist(t *testing.T) {
	found := 0
	for _, doc := range documents(t) {
		for _, command := range fieldSelector.FindAllString(read(t, doc), -1) {
			found++
			kind, selector := "", ""
			for word := range strings.FieldsSeq(command) {
				if name := strings.TrimSuffix(strings.TrimSuffix(word, "s"), "/"); selectable[name] != nil && kind == "" {
					kind = name
				}
				if _, value, is := strings.Cut(word, "--field-selector="); is {
					selector = value
				}
			}
			for condition := range strings.SplitSeq(selector, ",") {
				field, _, _ := strings.Cut(strings.ReplaceAll(condition, "!=", "="), "=")
				if field != "metadata.name" && field != "metadata.namespace" && !slices.Contains(selectable[kind], field) {
					t.Errorf("%s: no selector %s in: %s", rel(doc), field, command)
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("found only %d commands with a selector", found)
	}
}
