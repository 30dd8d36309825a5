package architecture_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Each cloud behind an API is checked by the whole suite of internal/cloud/cloudtest.
func TestEachCloudRunsTheWholeSuite(t *testing.T) {
	for name := range sdks {
		files, err := filepath.Glob(filepath.Join("../../..", "internal", "cloud", name, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var tests []byte
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, text...)
		}
		for _, call := range []string{"cloudtest.Run(t, ", ".InStack(", ".Kill(t)", ".Race(t)", ".Waited(t)", ".Faults(t)"} {
			if !bytes.Contains(tests, []byte(call)) {
				t.Errorf("no test of internal/cloud/%s has %s", name, call)
			}
		}
	}
}
