package cloudtest

import (
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testNames(t *testing.T) {
	h.check(t, "any name that CSI allows makes a volume of its own", func(e *env) {
		ids := map[cloud.VolumeID]string{}
		for _, name := range oddNames() {
			vol := e.volume(name)
			if other, taken := ids[vol.ID]; taken {
				e.Errorf("%q and %q are both volume %s", other, name, vol.ID)
			}
			ids[vol.ID] = name
		}
		for id, name := range ids {
			found, err := e.c.FindVolume(e.Context(), name)
			if err != nil || found.ID != id {
				e.Errorf("FindVolume(%q) = %s, %v, want %s", name, found.ID, err, id)
			}
		}
	})
	h.check(t, "fault.InvalidArgument for a request without a name", func(e *env) {
		_, err := e.c.CreateVolume(e.Context(), e.request(""))
		e.want(err, `CreateVolume("")`, fault.InvalidArgument)
		e.left()
	})
}

// oddNames are names that CSI allows.
func oddNames() []string {
	long := strings.Repeat("n", 127)
	return []string{
		"pvc-6c4a4ee5-47e4-4e9f-8c1c-0d0a4f4f5a01", "PVC-6C4A4EE5-47E4-4E9F-8C1C-0D0A4F4F5A01",
		"a b", "a-b", "a_b", "../a", "a?b=c#d&e", "том", "1", long + "a", long + "b", long,
	}
}

// forbiddenNames requires that the account refuses the names that the cloud forbids, because otherwise no backend has to map a
// name.
func (w *world) forbiddenNames() {
	allowed, forbidden := examples(w.Names)
	for _, name := range allowed {
		if _, err := w.account.Add(name); err != nil {
			w.Errorf("the account refuses the name %q, which Crashes.Names allows: %v", name, err)
		}
	}
	for _, name := range forbidden {
		if _, err := w.account.Add(name); err == nil {
			w.Errorf("the account has made a volume with the name %q: it has to refuse what Crashes.Names forbids", name)
		}
	}
	for _, name := range append(oddNames(), forbidden...) {
		vol, err := w.Stack(w.c).CreateVolume(w.Context(), w.Request(name))
		if err != nil || !allows(w.Names, vol.Name) {
			w.Errorf("CreateVolume(%q) = %q, %v, want a name that the cloud allows", name, vol.Name, err)
		}
	}
}

// examples returns names at the limits of a rule.
func examples(r cloud.NameRule) (allowed, forbidden []string) {
	allowed = []string{strings.Repeat("n", r.MaxLen), strings.Repeat("m", max(r.MinLen, 1)), "one-2"}
	forbidden = []string{strings.Repeat("n", r.MaxLen+1), "a b", "a/b", "a.b", "\u00fcber"}
	for name, allows := range map[string]bool{
		"Upper": r.Upper, "under_score": r.Underscore, "1st": !r.StartLetter, "-dash": !r.StartLetter, "dash-": !r.EndAlnum, "two--dashes": !r.NoDoubles,
	} {
		if !allows {
			forbidden = append(forbidden, name)
		}
	}
	return allowed, forbidden
}

// allows reports whether a rule allows a name. Map leaves allowed names unchanged unless they look hashed.
func allows(r cloud.NameRule, name string) bool {
	if last := len(name) - 1; last >= 0 && strings.ContainsRune("0123456789abcdefghijklmnopqrstuv", rune(name[last])) {
		name = name[:last] + "w"
	}
	return r.Map("", name) == name
}
