package charts_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the table of values in the chart's README.md")

// TestReadme: the table of the README has each value of values.yaml with its default and its comment, and no other.
func TestReadme(t *testing.T) {
	file := filepath.Join(chartDir, "README.md")
	text := read(t, file)
	const mark = "in test/check/charts. -->\n"
	before, _, found := strings.Cut(text, mark)
	if !found {
		t.Fatalf("README.md has no line with %q", mark)
	}
	var document yaml.Node
	must(t, yaml.Unmarshal([]byte(read(t, filepath.Join(chartDir, "values.yaml"))), &document))
	table := strings.Join(rows(t, "", document.Content[0]), "\n")
	want := before + mark + "\n| value | default | |\n|---|---|---|\n" + table + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	} else if text != want {
		t.Error("the table in README.md is not that of values.yaml: run `go test -run TestReadme -update`, and look at the difference")
	}
}

// rows are the lines of the table for what is below a path.
func rows(t *testing.T, path string, node *yaml.Node) []string {
	t.Helper()
	var found []string
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		if value.Kind == yaml.MappingNode && slices.ContainsFunc(value.Content, func(n *yaml.Node) bool { return n.HeadComment != "" }) {
			found = append(found, rows(t, name, value)...)
			continue
		}
		comment := comment(key)
		if comment == "" {
			t.Errorf("values.yaml: %s has no comment", name)
		}
		var usual any
		must(t, value.Decode(&usual))
		shown, err := json.Marshal(usual)
		must(t, err)
		found = append(found, fmt.Sprintf("| `%s` | `%s` | %s |", name, shown, comment))
	}
	return found
}

// comment joins the lines above a key. What an empty line separates is not about the key.
func comment(key *yaml.Node) string {
	paragraphs := strings.Split(key.HeadComment, "\n\n")
	lines := strings.Split(paragraphs[len(paragraphs)-1], "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "|", "\\|")
}

// TestEveryValueHasADefault: what the schema takes is in values.yaml, where operators look for it. That values.yaml has
// no more, the schema checks in each rendering.
func TestEveryValueHasADefault(t *testing.T) {
	var defaults map[string]any
	must(t, yaml.Unmarshal([]byte(read(t, filepath.Join(chartDir, "values.yaml"))), &defaults))
	root := schema(t)
	var walk func(path string, schema, defaults map[string]any)
	walk = func(path string, schema, defaults map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			value, given := defaults[name]
			if !given && name != "global" {
				t.Errorf("values.yaml has no %s%s", path, name)
			}
			property, _ := property.(map[string]any)
			if reference, ok := property["$ref"].(string); ok {
				property, _ = at(root, "$defs", strings.TrimPrefix(reference, "#/$defs/")).(map[string]any)
			}
			// Objects with examples are Kubernetes' own, and may leave fields out.
			if below, ok := value.(map[string]any); ok && property["examples"] == nil {
				walk(path+name+".", property, below)
			}
		}
	}
	walk("", root, defaults)
}
