package linode_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// asked sends a request and returns the status and what the answer holds.
func asked(t *testing.T, c *emulator.Cloud, method, path, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.Token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var shown map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&shown); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, shown
}

func TestWhatARealAccountHas(t *testing.T) {
	c := emulator.Start(t, emulator.Options{
		InMemory: true, Foreign: 3, Rules: emulator.Rules{UpdatedStands: true},
	})
	if n := len(c.Volumes()); n != 3 {
		t.Errorf("there are %d volumes of others, want 3", n)
	}
	_, made := asked(t, c, "POST", "/v4/volumes", `{"label":"mine","region":"us-ord"}`)
	if made["encryption"] != "enabled" {
		t.Errorf("made %v, want it encrypted", made)
	}
	id := c.Volumes()[3].ID
	before, _ := c.Volume(id)
	c.SetLocks(id, "cannot_delete")
	if after, _ := c.Volume(id); !after.Updated.Equal(before.Updated) {
		t.Errorf("updated moved from %s to %s", before.Updated, after.Updated)
	}
	path := "/volumes/" + jsonOf(id)
	if _, plain := asked(t, c, "GET", "/v4"+path, ""); plain["locks"] != nil {
		t.Errorf("v4 shows locks: %v", plain)
	}
	if _, beta := asked(t, c, "GET", "/v4beta"+path, ""); jsonOf(beta["locks"]) != `["cannot_delete"]` {
		t.Errorf("v4beta shows %v", beta["locks"])
	}
	for _, state := range []func(){func() {}, func() { c.SetLocks(id); c.SetStatus(id, "key_rotating") }} {
		state()
		if status, _ := asked(t, c, "DELETE", "/v4"+path, ""); status != http.StatusBadRequest {
			t.Errorf("a delete is answered %d, want a refusal", status)
		}
	}
	c.SetRules(func(r *emulator.Rules) { r.TagsRefused = true })
	if status, _ := asked(t, c, "POST", "/v4/volumes", `{"label":"tagged","region":"us-ord","tags":["team"]}`); status != http.StatusForbidden {
		t.Errorf("tags of a restricted user are answered %d", status)
	}
	l := c.AddLinode(emulator.Linode{MemoryMB: 64 << 10, Disks: -1})
	for n := range 64 {
		v, err := c.AddVolume(emulator.Volume{Label: "slot-" + jsonOf(n)})
		if err != nil {
			t.Fatal(err)
		}
		if status, why := asked(t, c, "POST", "/v4/volumes/"+jsonOf(v)+"/attach", `{"linode_id":`+jsonOf(l)+`}`); status != http.StatusOK {
			t.Fatalf("attachment %d that persists is answered %d %v", n+1, status, why)
		}
	}
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
