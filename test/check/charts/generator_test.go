package charts_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// setsInAll is how many random value sets are rendered.
const setsInAll = 200

// randomSet is a cluster and values that the chart has to render.
type randomSet struct {
	in        cluster
	values    values
	documents []string
}

// refusals are how the chart refuses values that its schema has.
var refusals = []string{
	"don't meet the specifications of the schema", "local.sourceNode needs", "has no other driver to take over from", "has no snapshots",
	"defaultStorageClass: no class of the chart is named", "volumeAttributesClasses needs Kubernetes 1.34",
	"ports.controllerLivenessprobe is required", "serviceAccount.name are the same",
}

// randomSets are the same each time. `versions` are those that a set may be for, `apis` those that the cluster may have.
func randomSets(t *testing.T, versions []string, apis ...string) []randomSet {
	t.Helper()
	g := generator{t: t, random: rand.New(rand.NewPCG(15, 32)), definitions: at(schema(t), "$defs").(map[string]any)}
	root := schema(t)
	all := clouds(t)
	var sets []randomSet
	tried := 0
	for ; len(sets) < setsInAll; tried++ {
		if tried > 50*setsInAll {
			t.Fatalf("the schema takes only %d of %d random value sets", len(sets), tried)
		}
		set := g.object(root)
		cloud := all[len(sets)%len(all)]
		set["cloud"] = cloud
		if vendor := at(cloudFile(t, cloud), "vendor", "driver"); vendor != nil && set["vendor"] != nil && set["vendor"] != "" {
			set["vendor"] = vendor
		}
		in := cluster{namespace: "1e3", version: versions[g.random.IntN(len(versions))], apis: apis}
		documents, err := in.documents(set)
		switch {
		case err == nil:
			sets = append(sets, randomSet{in, set, documents})
		case !slices.ContainsFunc(refusals, func(text string) bool { return strings.Contains(err.Error(), text) }):
			t.Fatalf("%v\nof the values %v", err, set)
		}
	}
	t.Logf("tried %d sets", tried)
	return sets
}

// generator makes values that fit a schema, from `examples` where a schema has some.
type generator struct {
	t           *testing.T
	random      *rand.Rand
	definitions map[string]any
}

// object gives each property a value, or, more often, leaves it to the chart.
func (g generator) object(schema map[string]any) map[string]any {
	made := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) || g.random.IntN(3) == 0 {
			if property, ok := properties[name].(map[string]any); ok {
				made[name] = g.value(property)
			}
		}
	}
	return made
}

func (g generator) value(schema map[string]any) any {
	if reference, ok := schema["$ref"].(string); ok {
		return g.value(g.definitions[strings.TrimPrefix(reference, "#/$defs/")].(map[string]any))
	}
	if examples, ok := schema["examples"].([]any); ok {
		return g.pick(examples)
	}
	if choices, ok := schema["enum"].([]any); ok {
		return g.pick(choices)
	}
	if choices, ok := schema["oneOf"].([]any); ok {
		return g.value(g.pick(choices).(map[string]any))
	}
	if value, ok := schema["const"]; ok {
		return value
	}
	switch schema["type"] {
	case "object":
		return g.object(schema)
	case "array":
		return g.list(schema["items"].(map[string]any))
	case "boolean":
		return g.random.IntN(2) == 0
	case "integer":
		low, _ := schema["minimum"].(float64)
		high, _ := schema["maximum"].(float64)
		return int(low) + g.random.IntN(int(high-low)+1)
	}
	g.t.Fatalf("the schema %v has no examples", schema)
	return nil
}

// list has up to two items with different names.
func (g generator) list(items map[string]any) []any {
	made := []any{}
	for range g.random.IntN(3) {
		item := g.value(items)
		named, _ := item.(map[string]any)
		if slices.ContainsFunc(made, func(other any) bool {
			o, _ := other.(map[string]any)
			return fmt.Sprint(other) == fmt.Sprint(item) || o != nil && o["name"] == named["name"]
		}) {
			continue
		}
		made = append(made, item)
	}
	return made
}

func (g generator) pick(from []any) any { return from[g.random.IntN(len(from))] }
