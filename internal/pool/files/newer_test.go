package files

import (
	"os"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// rewrite replaces a part of a file of the pool.
func rewrite(t *testing.T, file, old, with string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not contain %s: %s", file, old, data)
	}
	must(t, os.WriteFile(file, []byte(strings.Replace(string(data), old, with, 1)), 0o600))
}

// C14: a record of a newer format is not reported as damaged, and not removed.
func TestRecordsOfANewerVersionAreLeftToIt(t *testing.T) {
	for name, more := range map[string]string{"a higher number": ``, "a field of another type": `,"size":{"blocks":8}`} {
		t.Run(name, func(t *testing.T) {
			p := openPool(t, t.TempDir())
			r := mustCreate(t, p, "a", small)
			rewrite(t, p.file(pool.VolumeRef(r.ID), recordExt), `"format":1`, `"format":2`+more)
			entries, err := p.List(t.Context())
			if err != nil || len(entries) != 1 || entries[0].Kind != pool.Newer || entries[0].ID != r.ID {
				t.Fatalf("List = %+v, %v", entries, err)
			}
			_, grow := p.Grow(t.Context(), r.ID, 2*small)
			for what, err := range map[string]error{
				"Grow": grow, "Reserve": p.Reserve(t.Context(), r.ID), "Delete": p.Delete(t.Context(), r.ID), "Remove": p.Remove(t.Context(), r.ID),
			} {
				wantKind(t, what, err, fault.Precondition)
				if err != nil && (!strings.Contains(err.Error(), "newer version") || strings.Contains(err.Error(), "--delete")) {
					t.Errorf("%s = %v, want it to name the newer version and not to advise a removal", what, err)
				}
			}
			_, err = p.Create(t.Context(), pool.NewVolume{Name: "a", Size: small})
			wantKind(t, "Create of the same name", err, fault.Conflict)
			if left := files(t, p); len(left) != 2 {
				t.Errorf("the pool holds %q", left)
			}
		})
	}
}
