// Package recorded has exchanges with real APIs that others recorded; testdata/recorded/README.md names the sources.
package recorded

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
)

//go:embed testdata/recorded
var files embed.FS

// Exchange is a request to an API and its answer.
type Exchange struct {
	Method string `json:"method"`
	// Path has the query, too.
	Path   string          `json:"path"`
	Filter *string         `json:"filter"` // the X-Filter of Linode; nil: none
	Body   json.RawMessage `json:"body"`   // null: none
	Status int             `json:"status"`
	// Header are some of the answer's headers.
	Header http.Header     `json:"headers"`
	Answer json.RawMessage `json:"answer"`
	// Part is what a run did when it made the request, such as Life; "": the recording has one story.
	Part string `json:"part,omitempty"`
	// Seen is how often such a refusal was recorded; 0: the file is no collection of refusals.
	Seen int `json:"seen,omitempty"`
}

// Files returns the names, without the ending, of what was recorded of a cloud ("linode").
func Files(cloud string) ([]string, error) {
	entries, err := files.ReadDir(path.Join("testdata/recorded", cloud))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), ".json"); is {
			names = append(names, name)
		}
	}
	return names, nil
}

// Body returns the content of a file of a cloud, by its name without the ending.
func Body(cloud, name string) ([]byte, error) {
	return files.ReadFile(path.Join("testdata/recorded", cloud, name+".json"))
}

// Exchanges returns the exchanges of a file, in the order in which they were made.
func Exchanges(cloud, name string) ([]Exchange, error) {
	body, err := Body(cloud, name)
	if err != nil {
		return nil, err
	}
	var all []Exchange
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("recording %s of %s: %w", name, cloud, err)
	}
	return all, nil
}

// TypeOf returns the JSON type of a value.
func TypeOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}
