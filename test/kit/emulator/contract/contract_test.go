package contract_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
)

// description is a small API of one list, one thing and its creation.
const description = `{
  "openapi": "3.0.0", "info": {"title": "t", "version": "1"},
  "paths": {
    "/things": {
      "get": {
        "parameters": [{"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1}}],
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": {
          "type": "object", "required": ["things"], "properties": {"things": {"type": "array", "items": {"type": "string"}}}}}}}}
      },
      "post": {
        "requestBody": {"required": true, "content": {"application/json": {"schema": {
          "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}}},
        "responses": {"201": {"description": ""}, "default": {"description": "", "content": {"application/json": {"schema": {
          "type": "object", "required": ["id"]}}}}}
      }
    },
    "/things/{id}": {
      "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}],
      "get": {
        "parameters": [{"name": "X-Known", "in": "header", "required": true, "schema": {"type": "string"}},
          {"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1}}],
        "responses": {"200": {"description": ""}}
      }
    }
  }
}`

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "api.json"), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(dir, "report")
	t.Setenv(contract.Folder, dir)
	t.Setenv(contract.Report, report)
	for _, row := range []struct {
		name, method, url, route string
		request                  string
		status                   int
		answer                   string
		want                     contract.Totals
		detail                   string
	}{
		{"a list as described", "GET", "/things?page=2", "/things", "", 200, `{"things": ["a"]}`, contract.Totals{Exchanges: 1}, ""},
		{"an answer without a required field", "GET", "/things", "/things", "", 200, `{}`, contract.Totals{Exchanges: 1, Mismatches: 1}, `"things" is missing`},
		{"an answer that is no JSON", "GET", "/things", "/things", "", 200, `<html>`, contract.Totals{Exchanges: 1, Mismatches: 1}, "decode"},
		{"a status that is not described", "GET", "/things", "/things", "", 202, `{}`, contract.Totals{Exchanges: 1, Mismatches: 1}, "status"},
		{"a parameter that is not described", "GET", "/things?pge=2", "/things", "", 200, `{"things": []}`, contract.Totals{Exchanges: 1, Mismatches: 1}, `"pge"`},
		{"a parameter that breaks its rule", "GET", "/things?page=0", "/things", "", 200, `{"things": []}`, contract.Totals{Exchanges: 1, Mismatches: 1}, "page"},
		{"a known difference", "GET", "/things?known=1", "/things", "", 200, `{"things": []}`, contract.Totals{Exchanges: 1}, ""},
		{"a parameter of the whole path", "GET", "/things/7", "/things/{id}", "", 200, "", contract.Totals{Exchanges: 1}, ""},
		{"a known difference hides no other", "GET", "/things/7?page=0", "/things/{id}", "", 200, "", contract.Totals{Exchanges: 1, Mismatches: 1}, "page"},
		{"a body as described", "POST", "/things", "/things", `{"name": "a"}`, 201, "", contract.Totals{Exchanges: 1}, ""},
		{"a wrong body that is refused", "POST", "/things", "/things", `{}`, 422, `{"id": "no"}`, contract.Totals{Exchanges: 1, Refused: 1}, ""},
		{"a refusal that is not as described", "POST", "/things", "/things", `{}`, 422, `{}`, contract.Totals{Exchanges: 1, Mismatches: 1, Refused: 1}, `"id" is missing`},
		{"a wrong body that is accepted", "POST", "/things", "/things", `{}`, 201, "", contract.Totals{Exchanges: 1, Mismatches: 1}, `"name" is missing`},
		{"an error that is not as described", "POST", "/things", "/things", `{"name": "a"}`, 500, `{}`, contract.Totals{Exchanges: 1, Mismatches: 1}, `"id" is missing`},
		{"a route that is not described", "GET", "/others", "/others", "", 200, `whatever`, contract.Totals{Undescribed: 1}, ""},
		{"a route that borrows a description", "GET", "/more", "/more", "", 200, `{}`, contract.Totals{Undescribed: 1, Mismatches: 1}, `"things" is missing`},
	} {
		t.Run(row.name, func(t *testing.T) {
			checker, _, err := contract.Open(contract.Config{
				File:       "api.json",
				Exceptions: []contract.Exception{{Method: "GET", Contains: `"known"`, Why: "this test"}, {Contains: "X-Known", Why: "this test"}},
				Borrowed:   map[string]string{"GET /more": "GET /things"},
			})
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(t.Context(), row.method, "http://api.example"+row.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.SetPathValue("id", strings.TrimPrefix(request.URL.Path, "/things/"))
			checker.Check(contract.Exchange{
				Request: request, Route: row.route, RequestBody: []byte(row.request), Status: row.status,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(row.answer),
			})
			got := checker.Totals()
			details := strings.Join(got.Details, "\n")
			got.Details = nil
			if got.String() != row.want.String() || got.Refused != row.want.Refused || got.Undescribed != row.want.Undescribed {
				t.Errorf("totals = %+v, want %+v", got, row.want)
			}
			if !strings.Contains(details, row.detail) || (details == "") != (row.detail == "") {
				t.Errorf("details = %q, want %q", details, row.detail)
			}
			if err := checker.Close(row.name); err != nil {
				t.Error(err)
			}
		})
	}
	if text, err := os.ReadFile(report); err != nil || strings.Count(string(text), "exchanges=1 mismatches=") != 14 {
		t.Errorf("report = %s, %v, want a line for each checker", text, err)
	}
}

func TestNothingIsCheckedWithoutAFolder(t *testing.T) {
	t.Setenv(contract.Folder, "")
	checker, why, err := contract.Open(contract.Config{File: "api.json"})
	if checker != nil || why == "" || err != nil {
		t.Errorf("Open() = %v, %q, %v, want nothing and the reason", checker, why, err)
	}
	checker.Check(contract.Exchange{})
	if checker.Totals().Exchanges != 0 {
		t.Error("a nil checker counts")
	}
}

func TestAFolderWithoutTheDescriptionIsAnError(t *testing.T) {
	t.Setenv(contract.Folder, t.TempDir())
	if _, _, err := contract.Open(contract.Config{File: "api.json"}); err == nil {
		t.Error("Open() = nil, want an error: a typing mistake must not switch the check off")
	}
}
