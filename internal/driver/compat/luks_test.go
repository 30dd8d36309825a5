package compat

import "testing"

// TestLUKSIsTheVendors: only the vendor's own attribute and value request LUKS.
func TestLUKSIsTheVendors(t *testing.T) {
	const key = "csi.example.com/encryption"
	v := &Vendor{luksKey: key, luks: map[string]string{key: "luks", "csi.example.com/cipher": "aes-xts-plain64"}}
	tests := map[string]struct {
		attributes map[string]string
		want       bool
	}{
		"its attribute":              {map[string]string{key: "luks"}, true},
		"what its node program gets": {v.LUKSAttributes(), true},
		"its attribute, other value": {map[string]string{key: "true"}, false},
		"another vendor's attribute": {map[string]string{"linodebs.csi.linode.com/luks-encrypted": "true"}, false},
		"no attribute":               {nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := v.LUKS(tc.attributes); got != tc.want {
				t.Errorf("LUKS(%v) = %v, want %v", tc.attributes, got, tc.want)
			}
		})
	}
	none := &Vendor{}
	if none.LUKS(nil) || none.LUKS(map[string]string{"": ""}) {
		t.Error("a vendor without LUKS encrypts a volume")
	}
}
