package files

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

const hex32 = "0123456789abcdef0123456789abcdef"

func goodRecord() pool.Record {
	return pool.Record{
		ID: hex32, Name: "pvc-Ä", Size: 32 * pool.SizeStep, GrowTo: 48 * pool.SizeStep, State: pool.Ready,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Source: "snapshots/" + hex32,
		Tags: []pool.Pair{{Name: "cloudblock-pvc", Value: "data"}, {Name: "cloudblock-pvc", Value: "twice"}},
	}
}

func TestDamagedRecordsAreRefused(t *testing.T) {
	data, err := encode(goodRecord())
	must(t, err)
	replace := func(old, with string) []byte {
		out := bytes.Replace(data, []byte(old), []byte(with), 1)
		if bytes.Equal(out, data) {
			t.Fatalf("%q is not in the record", old)
		}
		return out
	}
	tests := map[string][]byte{
		"empty":                       nil,
		"zeros, as after a power cut": make([]byte, len(data)),
		"cut off":                     data[:len(data)/2],
		"something behind the end":    append(bytes.Clone(data), '{'),
		"another format":              replace(`"format":1`, `"format":2`),
		"no format":                   replace(`"format":1,`, ``),
		"another volume's id":         replace(hex32, strings.Repeat("f", 32)),
		"a hostile id":                replace(hex32, "../../etc/passwd"),
		"an unknown field":            replace(`"name"`, `"nom"`),
		"no name":                     replace("pvc-Ä", ""),
		"a name of 10 kB":             replace("pvc-Ä", strings.Repeat("x", 10<<10)),
		"a negative size":             replace(`"size":33554432`, `"size":-33554432`),
		"a size between the steps":    replace(`"size":33554432`, `"size":33554433`),
		"a size beyond all files":     replace(`"size":33554432`, `"size":9223372036853727232`),
		"a size as a word":            replace(`"size":33554432`, `"size":"33554432"`),
		"a growth to less":            replace(`"growTo":50331648`, `"growTo":16777216`),
		"an unknown state":            replace(`"ready"`, `"sleeping"`),
		"growing while being removed": replace(`"ready"`, `"deleting"`),
		"a source of no kind":         replace(`"snapshots/`, `"images/`),
		"a source without an id":      replace(`"snapshots/`, `"snapshots/../`),
		"the record of a snapshot":    replace(`"state"`, `"volume":"`+hex32+`","state"`),
		"an odd block size":           replace(`"state"`, `"blockSize":513,"state"`),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if r, err := decodeRecord(pool.VolumeRef(hex32), in); err == nil {
				t.Errorf("decodeRecord(%s) = %+v, want an error", in, r)
			}
		})
	}
}

func FuzzDecodeRecord(f *testing.F) {
	data, err := encode(goodRecord())
	must(f, err)
	f.Add(data)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := decodeRecord(pool.VolumeRef(hex32), in)
		if err != nil {
			return
		}
		if !sizeOK(r.Size) || reservedBy(r) < r.Size || r.ID != hex32 || r.Name == "" {
			t.Errorf("decodeRecord let %+v pass", r)
		}
		out, err := encode(r)
		must(t, err)
		if again, err := decodeRecord(pool.VolumeRef(hex32), out); err != nil || again.Name != r.Name || again.Size != r.Size || again.State != r.State {
			t.Errorf("decodeRecord(encode(%+v)) = %+v, %v", r, again, err)
		}
	})
}
