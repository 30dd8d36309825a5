package device

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// designator makes one designator of page 0x83.
func designator(codeSet, association, kind byte, id string) []byte {
	return append([]byte{codeSet, association<<4 | kind, 0, byte(len(id))}, id...)
}

// page makes a page 0x83 of designators.
func page(designators ...[]byte) []byte {
	body := bytes.Join(designators, nil)
	return append([]byte{0, 0x83, byte(len(body) >> 8), byte(len(body))}, body...)
}

func TestVPDNames(t *testing.T) {
	naa := designator(1, 0, 3, "\x60\x01\x40\x50\x00\x00\x00\x01")
	tests := map[string]struct {
		page                []byte
		vendorSpecific, t10 []string
		bad                 bool
	}{
		"a cloud's volume names itself in a vendor-specific designator": {
			page: page(designator(2, 0, 0, "pvc-1")), vendorSpecific: []string{"pvc-1"}},
		"binary designators are passed over": {
			page: page(naa, designator(2, 0, 0, "pvc-1")), vendorSpecific: []string{"pvc-1"}},
		"the name of the port is not the disk's": {page: page(designator(2, 1, 0, "port"))},
		"a T10 name comes without its vendor":    {page: page(designator(2, 0, 1, "QEMU    disk-7")), t10: []string{"disk-7"}},
		"padding is no part of a name":           {page: page(designator(2, 0, 0, "pvc-1   \x00")), vendorSpecific: []string{"pvc-1"}},
		"bytes behind the page's end are not it": {page: append(page(), designator(2, 0, 0, "x")...)},
		"a name of 64 bytes is whole": {
			page: page(designator(2, 0, 0, string(bytes.Repeat([]byte("a"), 64)))), vendorSpecific: []string{string(bytes.Repeat([]byte("a"), 64))}},
		"an empty file is no page":                        {bad: true},
		"another page is refused":                         {page: []byte{0, 0x80, 0, 0}, bad: true},
		"a page shorter than it says is refused":          {page: page(designator(2, 0, 0, "pvc-1"))[:10], bad: true},
		"a designator longer than the page is refused":    {page: page([]byte{2, 0, 0, 200, 'a'}), bad: true},
		"half a designator's header is refused":           {page: page([]byte{2, 0}), bad: true},
		"a good designator before a cut one helps nobody": {page: page(designator(2, 0, 0, "pvc-1"), []byte{2}), bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			vendorSpecific, t10, err := vpdNames(tc.page)
			if !slices.Equal(vendorSpecific, tc.vendorSpecific) || !slices.Equal(t10, tc.t10) || errors.Is(err, errBadVPD) != tc.bad {
				t.Errorf("vpdNames = %q, %q, %v, want %q, %q, bad: %v", vendorSpecific, t10, err, tc.vendorSpecific, tc.t10, tc.bad)
			}
		})
	}
}

func FuzzVPDNames(f *testing.F) {
	f.Add(page(designator(2, 0, 0, "pvc-1"), designator(2, 0, 1, "QEMU    disk-7")))
	f.Add([]byte{0, 0x83, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		vendorSpecific, t10, err := vpdNames(b)
		if err != nil && len(vendorSpecific)+len(t10) > 0 {
			t.Errorf("vpdNames(%x) = %q, %q and %v: a damaged page named somebody", b, vendorSpecific, t10, err)
		}
		for _, name := range append(vendorSpecific, t10...) {
			if !bytes.Contains(b, []byte(name)) || name == "" {
				t.Errorf("vpdNames(%x) invented %q", b, name)
			}
		}
	})
}
