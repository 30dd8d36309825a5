// Package digitalocean_test compares the emulated account with answers of real ones that others recorded.
package digitalocean_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

var must = expect.NoError

// own are the fields, by the end of their path, whose values belong to an account or to 2016. Their JSON types are compared.
var own = map[string]string{
	"id": "is made by the account", "resource_id": "is made by the account",
	"created_at": "is a time of 2016", "started_at": "is a time of 2016",
	"region.name":     "the emulator names a region by its slug",
	"region.sizes":    "are the sizes of droplets of 2016",
	"region.features": "are those of 2016, without `storage`",
	"account.email":   "is private", "account.uuid": "is private", "team.uuid": "is private", "team.name": "is private",
	"message": "ended with a full stop in 2016, and not in 2022: see TestUnknownTokenIsRefusedByTheGateway",
}

// newer are the fields, by the end of their path, that the API description has and that the recordings are too old for.
var newer = map[string]string{
	"filesystem_type":  "formatted volumes",
	"filesystem_label": "formatted volumes",
	"tags":             "tags of volumes and snapshots",
}

// TestAnswersAreAsRecorded: each recorded field is in the emulator's answer to the same request, with its type and, but for own, its value.
func TestAnswersAreAsRecorded(t *testing.T) {
	answers := life(t)
	names, err := recorded.Files("digitalocean")
	if err != nil || !slices.Equal(names, slices.Sorted(maps.Keys(answers))) {
		t.Errorf("the recordings are %q, %v, and the answers %q", names, err, slices.Sorted(maps.Keys(answers)))
	}
	for _, name := range names {
		for _, difference := range differences(body(t, name), answers[name], "") {
			t.Errorf("%s: %s", name, difference)
		}
	}
}

// TestEachDifferenceIsReportedByName takes each recorded field out of the emulator's answers, and gives it another type.
func TestEachDifferenceIsReportedByName(t *testing.T) {
	fields := 0
	for name, answer := range life(t) {
		want := body(t, name)
		eachField(want, answer, "", func(object map[string]any, key, path string) {
			fields++
			value := object[key]
			other := any("another")
			if recorded.TypeOf(value) == "string" {
				other = 7.5
			}
			for what, change := range map[string]func(){
				path + " is missing":                          func() { delete(object, key) },
				path + " is " + recorded.TypeOf(other) + ", ": func() { object[key] = other },
			} {
				change()
				if all := differences(want, answer, ""); len(all) != 1 || !strings.HasPrefix(all[0], what) {
					t.Errorf("%s: the differences are %q, want one that begins with %q", name, all, what)
				}
				object[key] = value
			}
			object["unheard_of"] = true
			if all := differences(want, answer, ""); len(all) != 1 || !strings.Contains(all[0], "unheard_of is in no recording") {
				t.Errorf("%s: the differences are %q, want one about unheard_of", name, all)
			}
			delete(object, "unheard_of")
		})
	}
	if fields < 100 {
		t.Errorf("only %d fields were taken out", fields)
	}
}

// life does on an emulated account what the recordings show of a real one, and returns the answers by the names of the recordings.
func life(t *testing.T) map[string]any {
	t.Helper()
	a := account{t, emulator.Start(t, emulator.Options{
		Droplets: 1, Region: "nyc1", Regions: map[string][]string{"nyc1": {"private_networking", "backups", "ipv6", "metadata", "storage"}},
	})}
	droplet := a.cloud.Droplets()[0]
	answers := map[string]any{}
	answers["list_volumes_empty"] = a.call(http.MethodGet, "/v2/volumes", "")
	created := a.call(http.MethodPost, "/v2/volumes", `{"name": "example", "description": "Block store for examples", "region": "nyc1", "size_gigabytes": 4}`)
	answers["create_volume"] = created
	answers["list_volumes"] = a.call(http.MethodGet, "/v2/volumes", "")
	for _, kind := range []string{"attach", "detach"} {
		ask := fmt.Sprintf(`{"type": %q, "droplet_id": %d, "region": "nyc1"}`, kind, droplet)
		answers[kind+"_volume"] = a.call(http.MethodPost, "/v2/volumes/"+id(t, created, "volume")+"/actions", ask)
	}
	// The snapshots were made of another volume, of 1 GiB.
	other := id(t, a.call(http.MethodPost, "/v2/volumes", `{"name": "other", "region": "nyc1", "size_gigabytes": 1}`), "volume")
	snapshots := "/v2/volumes/" + other + "/snapshots"
	answers["create_volume_snapshot"] = a.call(http.MethodPost, snapshots, `{"name": "test-snapshot"}`)
	for _, name := range []string{"test-snapshot-2", "test-snapshot-3"} {
		a.call(http.MethodPost, snapshots, fmt.Sprintf(`{"name": %q}`, name))
	}
	answers["list_volume_snapshots"] = a.call(http.MethodGet, snapshots, "")
	_, _, answers["error"] = a.exchange(http.MethodGet, "/v2/volumes", "", "another token")
	return answers
}

// account is an emulated account that is called over HTTP.
type account struct {
	t     *testing.T
	cloud *emulator.Cloud
}

// call returns the body of an answer that must not be a refusal.
func (a account) call(method, path, ask string) any {
	a.t.Helper()
	status, _, answer := a.exchange(method, path, ask, emulator.DefaultToken)
	if status >= http.StatusMultipleChoices {
		a.t.Fatalf("%s %s = %d %v", method, path, status, answer)
	}
	return answer
}

func (a account) exchange(method, path, ask, token string) (status int, header http.Header, answer any) {
	a.t.Helper()
	got := expect.Fetch(a.t, method, a.cloud.URL+path, ask, "Authorization", "Bearer "+token, "Content-Type", "application/json")
	must(a.t, json.Unmarshal([]byte(got.Body), &answer))
	return got.Status, got.Header, answer
}

// id returns the id of the object in an answer.
func id(t *testing.T, answer any, object string) string {
	t.Helper()
	fields, _ := answer.(map[string]any)[object].(map[string]any)
	text, is := fields["id"].(string)
	if !is {
		t.Fatalf("the %s has no id: %v", object, answer)
	}
	return text
}

// body returns a recorded body.
func body(t *testing.T, name string) (answer any) {
	t.Helper()
	text, err := recorded.Body("digitalocean", name)
	must(t, err)
	must(t, json.Unmarshal(text, &answer))
	return answer
}
