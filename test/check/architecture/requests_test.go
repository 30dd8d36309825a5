package architecture_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
		files, err := filepath.Glob(filepath.Join("../../..", "internal", "cloud", name, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", name, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, request := range byHand.FindAllString(string(text), -1) {
				t.Errorf("%s: %q is a request that no call of the SDK makes", file, request)
			}
			found += len(byName.FindAll(text, -1))
			calls += len(typed.FindAll(text, -1))
		}
		if found != want {
			t.Errorf("%s makes %d generic requests, want %d", name, found, want)
		}
		if calls < 5 { // or the pattern finds none
			t.Errorf("%s makes %d calls of its SDK", name, calls)
		}
	}
}
