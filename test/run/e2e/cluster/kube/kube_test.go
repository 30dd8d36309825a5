package kube

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "12": 12, "1Ki": 1 << 10, "512Mi": 512 << 20, "2Gi": 2 << 30, "1Ti": 1 << 40,
		"1k": 1e3, "3M": 3e6, "2G": 2e9, "1T": 1e12,
	} {
		if got, err := Bytes(text); err != nil || got != want {
			t.Errorf("Bytes(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "Mi", "1.5Gi", "1Xi"} {
		if got, err := Bytes(text); err == nil {
			t.Errorf("Bytes(%q) = %d, want an error", text, got)
		}
	}
}

func TestClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		pod, claim, path string
		raw              bool
	}{
		"a folder": {`{"spec":{"containers":[{"volumeMounts":[{"name":"token","mountPath":"/t"},{"name":"v","mountPath":"/data"}]}],
			"volumes":[{"name":"token"},{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, "c", "/data", false},
		"a device": {`{"spec":{"containers":[{"volumeDevices":[{"name":"v","devicePath":"/dev/x"}]}],
			"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, "c", "/dev/x", true},
		"none": {`{"spec":{"containers":[{}]}}`, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var p Pod
			if err := json.Unmarshal([]byte(c.pod), &p); err != nil {
				t.Fatal(err)
			}
			if claim, path, raw := p.Claimed(); claim != c.claim || path != c.path || raw != c.raw {
				t.Errorf("Claimed = %q, %q, %v, want %q, %q, %v", claim, path, raw, c.claim, c.path, c.raw)
			}
		})
	}
}

func TestUnlist(t *testing.T) {
	const list = `{"kind":"List","items":[{"kind":"PersistentVolumeClaim"},{"kind":"Pod","metadata":{"name":"p"}}]}`
	found, err := unlist(json.RawMessage(list), "Pod")
	if err != nil || len(found) != 1 || !strings.Contains(string(found[0]), `"p"`) {
		t.Errorf("unlist = %s, %v, want the pod", found, err)
	}
}

func TestOldest(t *testing.T) {
	now := time.Now()
	pod := func(name string, age time.Duration, ends bool) Pod {
		p := Pod{Metadata: Meta{Name: name, CreationTimestamp: now.Add(-age)}}
		if ends {
			p.Metadata.DeletionTimestamp = &now
		}
		return p
	}
	pods := []Pod{pod("young", time.Second, false), pod("ending", time.Hour, true), pod("old", time.Minute, false)}
	if p, found := Oldest(pods); !found || p.Metadata.Name != "old" {
		t.Errorf("Oldest = %q, %v, want old", p.Metadata.Name, found)
	}
	if p, found := Oldest(pods[1:2]); found {
		t.Errorf("Oldest of pods that all end = %q", p.Metadata.Name)
	}
}

// In simulated time, or a slow machine would end the wait before the first look.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Client{Log: t.Logf}
		err := c.Until(t.Context(), "the moon", time.Millisecond, func(context.Context) (bool, string, error) {
			return false, "half full", nil
		})
		if err == nil || !strings.Contains(err.Error(), "half full") {
			t.Errorf("Until = %v, want an error with what was seen last", err)
		}
		looks := 0
		err = c.Until(t.Context(), "the moon", time.Minute, func(context.Context) (bool, string, error) {
			looks++
			if looks == 1 {
				return true, "", errors.New("clouds") // a look that did not work is no look
			}
			return true, "", nil
		})
		if err != nil || looks != 2 {
			t.Errorf("Until = %v after %d looks, want success at the second", err, looks)
		}
	})
}

func TestEach(t *testing.T) {
	for name, c := range map[string]struct {
		printed string
		want    []string
		good    bool
	}{
		"two objects":                {"{\"name\":\"a\"}\n{\"name\":\n\"b\"}\n", []string{"a", "b"}, true},
		"the last one is half there": {`{"name":"a"}{"name":"b`, []string{"a"}, true},
		"something else":             {`{"name":"a"} no such resource`, []string{"a"}, false},
		"nothing":                    {"", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := each(strings.NewReader(c.printed), func(m Meta) { got = append(got, m.Name) })
			if (err == nil) != c.good || !slices.Equal(got, c.want) {
				t.Errorf("each = %v, %v; want %v, good is %v", got, err, c.want, c.good)
			}
		})
	}
}
