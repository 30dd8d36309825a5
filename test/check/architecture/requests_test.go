package architecture_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// generic are the requests that no typed call of a cloud's SDK makes: how often its generic request is used. Each is explained in
// the backend's wire.go. A cloud over gRPC has no entry.
var generic = map[string]int{"digitalocean": 3, "linode": 1}

// TestRequestsAreCallsOfTheSDK: a backend over HTTP writes no request by hand.
func TestRequestsAreCallsOfTheSDK(t *testing.T) {
	byHand := regexp.MustCompile(`api\.Request\{|http\.NewRequest`)
	byName := regexp.MustCompile(`\.generic\(|sdk\.R\(`)
	typed := regexp.MustCompile(`sdk\.(?:[A-Z]\w+\.)?[A-Z]\w+`)
	for name, sdk := range sdks {
		if slices.Contains(sdk, grpc) {
			continue // its stubs make every request
		}
		want, stated := generic[name]
		if !stated {
			t.Errorf("generic in requests_test.go has no entry for %s: add how many requests it makes that no typed call of its SDK makes, 0 if there is none", name)
			continue
		}
		found, calls := 0, 0
		for file, text := range backend(t, name, false) {
			for _, request := range byHand.FindAllString(text, -1) {
				t.Errorf("%s: %q is a request that no call of the SDK makes", file, request)
			}
			found += len(byName.FindAllString(text, -1))
			calls += len(typed.FindAllString(text, -1))
		}
		if found != want {
			t.Errorf("%s makes %d generic requests, want %d", name, found, want)
		}
		if calls < 5 { // or the pattern finds none
			t.Errorf("%s makes %d calls of its SDK", name, calls)
		}
	}
}

// TestEachCloudRunsTheWholeSuite: each cloud behind an API is checked by the whole suite of internal/cloud/cloudtest.
func TestEachCloudRunsTheWholeSuite(t *testing.T) {
	for name := range sdks {
		tests := strings.Join(slices.Collect(maps.Values(backend(t, name, true))), "")
		for _, call := range []string{"cloudtest.Run(t, ", ".InStack(", ".Kill(t)", ".Race(t)", ".Waited(t)", ".Faults(t)"} {
			if !strings.Contains(tests, call) {
				t.Errorf("no test of internal/cloud/%s has %s", name, call)
			}
		}
	}
}

// backend returns the source of a cloud's backend by file: that of its tests, or all else.
func backend(t *testing.T, name string, tests bool) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../..", "internal", "cloud", name, "*.go"))
	expect.NoError(t, err)
	source := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") == tests {
			text, err := os.ReadFile(file)
			expect.NoError(t, err)
			source[file] = string(text)
		}
	}
	if len(source) == 0 {
		t.Fatalf("%s has only the files %q", name, files)
	}
	return source
}
