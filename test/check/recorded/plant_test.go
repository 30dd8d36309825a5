package recorded_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// The recordings that the plants are found with: they have every field, a list and each change.
var planted = []string{"TestIAM_GetIOReadyForResizedVolume", "TestIAM_GetIOReadyForUpdatedVolume"}

// changed serves an account whose answers are changed on their way.
func changed(change func(header http.Header, body map[string]any)) func(*testing.T, *emulator.Cloud) string {
	return func(t *testing.T, account *emulator.Cloud) string {
		t.Helper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kept := httptest.NewRecorder()
			account.Handler().ServeHTTP(kept, r)
			var body map[string]any
			if err := json.Unmarshal(kept.Body.Bytes(), &body); err != nil {
				t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			}
			maps.Copy(w.Header(), kept.Header())
			change(w.Header(), body)
			text, err := json.Marshal(body)
			if err != nil {
				t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			}
			w.WriteHeader(kept.Code)
			_, _ = w.Write(text)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
}

// ofVolumes changes each volume of an answer.
func ofVolumes(change func(volume map[string]any)) func(http.Header, map[string]any) {
	return func(_ http.Header, body map[string]any) {
		list, _ := body["data"].([]any)
		for _, element := range append(slices.Clone(list), body) {
			if object, is := element.(map[string]any); is && objectOf(object) == "volume" {
				change(object)
			}
		}
	}
}

// reported returns the first exchange of the planted recordings at which the comparison reports the difference, or "".
func reported(t *testing.T, change func(http.Header, map[string]any), want difference) string {
	t.Helper()
	for _, name := range planted {
		all := exchanges(t, name)
		for i, found := range replay(t, name, all, changed(change)) {
			if slices.Contains(found, want) {
				return all[i].Method + " " + all[i].Path
			}
		}
	}
	return ""
}

// The comparison names each field that the emulator forgets.
func TestAFieldThatIsMissingIsReported(t *testing.T) {
	for _, field := range strings.Fields(today) {
		if field == "id" || field == "filesystem_path" {
			continue // without one of these an answer has no volume
		}
		drop := ofVolumes(func(volume map[string]any) { delete(volume, field) })
		if at := reported(t, drop, difference{"volume." + field, missing}); at == "" {
			t.Errorf("volumes without %s are taken for those of the real API", field)
		}
	}
}

// The comparison reports values, types and headers that are not those of the real API.
func TestADifferenceIsReported(t *testing.T) {
	for name, plant := range map[string]struct {
		change func(http.Header, map[string]any)
		want   difference
	}{
		"no volume has an id":  {ofVolumes(func(v map[string]any) { delete(v, "id") }), difference{"volume.id", missing}},
		"no volume has a path": {ofVolumes(func(v map[string]any) { delete(v, "filesystem_path") }), difference{"volume.filesystem_path", missing}},
		"a size is a text":     {ofVolumes(func(v map[string]any) { v["size"] = "15" }), difference{"volume.size", "has the type string, want number"}},
		"tags are null":        {ofVolumes(func(v map[string]any) { v["tags"] = nil }), difference{"volume.tags", "has the type null, want array"}},
		"a new volume is active": {
			ofVolumes(func(v map[string]any) { v["status"] = "active" }), difference{"volume.status", "is active, want creating"},
		},
		"a device is always there":      {ofVolumes(func(v map[string]any) { v["io_ready"] = true }), difference{"volume.io_ready", "is true, want false"}},
		"nothing is encrypted":          {ofVolumes(func(v map[string]any) { v["encryption"] = "disabled" }), difference{"volume.encryption", "is disabled, want enabled"}},
		"an attachment never shows":     {ofVolumes(func(v map[string]any) { v["linode_id"] = nil }), difference{"volume.linode_id", "has the type null, want number"}},
		"a field that is not the API's": {ofVolumes(func(v map[string]any) { v["zone"] = "a" }), difference{"volume.zone", additional}},
		"a page has no number":          {func(_ http.Header, body map[string]any) { delete(body, "page") }, difference{"page.page", missing}},
		"scopes are apart by a blank": {
			func(h http.Header, _ map[string]any) {
				h.Set("X-Accepted-Oauth-Scopes", strings.ReplaceAll(h.Get("X-Accepted-Oauth-Scopes"), ",", " "))
			},
			difference{"X-Accepted-Oauth-Scopes", `is "volumes:read_write linodes:read_write", want "volumes:read_write,linodes:read_write"`},
		},
		"no limit is stated": {func(h http.Header, _ map[string]any) { h.Del(limitHeader) }, difference{limitHeader, "is there: false, want true"}},
	} {
		if at := reported(t, plant.change, plant.want); at == "" {
			t.Errorf("%s: no exchange reports %q", name, plant.want)
		}
	}
}
