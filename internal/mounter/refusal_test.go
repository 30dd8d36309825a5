package mounter

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Each refusal of the gate has its reason, and is a fault.Precondition with the words of one.
func TestRefusalsHaveTheirReasons(t *testing.T) {
	ext4 := FormatRequest{Volume: "v", Filesystem: Ext4}
	mine := marker{volume: "v", filesystem: Ext4, size: gib}
	resume := func(k marker, blkid identity, probed findings) error {
		return resumable(ext4, gib, inspection{marker: &k, blkid: blkid}, probed)
	}
	changed := func(change func(k *marker)) marker {
		k := mine
		change(&k)
		return k
	}
	zfs := findings{signatures: []signature{{what: "ZFS"}}, nonZero: 4096}
	for name, tc := range map[string]struct {
		err  error
		want Refusal
	}{
		"another filesystem":          {inspection{blkid: identity{filesystem: "xfs"}}.unexpected(ext4), RefusedFound},
		"partitions":                  {inspection{blkid: identity{partitions: "gpt"}}.unexpected(ext4), RefusedFound},
		"only one superblock":         {inspection{blkid: identity{filesystem: "ext4"}}.unexpected(ext4), RefusedDamaged},
		"a signature":                 {blank(ext4, zfs), RefusedFound},
		"data":                        {blank(ext4, findings{nonZero: 4096}), RefusedNotBlank},
		"zeros that were written":     {blank(FormatRequest{History: Written}, findings{nonZero: -1}), RefusedNotBlank},
		"a format of another volume":  {resume(changed(func(k *marker) { k.volume = "w" }), identity{}, findings{}), RefusedUnfinished},
		"a format as xfs":             {resume(changed(func(k *marker) { k.filesystem = XFS }), identity{}, findings{}), RefusedUnfinished},
		"a format of a larger device": {resume(changed(func(k *marker) { k.size = 2 * gib }), identity{}, findings{}), RefusedUnfinished},
		"a format and swap":           {resume(mine, identity{filesystem: "swap"}, findings{}), RefusedFound},
		"read-only":                   {gate(t.Context(), exclusive{}, gib, FormatRequest{Forbidden: true}, inspection{}), RefusedForbidden},
		"a copy":                      {gate(t.Context(), exclusive{}, gib, FormatRequest{HasContent: true}, inspection{}), RefusedForbidden},
		"in use":                      {fmt.Errorf("/dev/x: %w: %w", fault.Busy, errInUse), RefusedInUse},
		"a program that is missing":   {fmt.Errorf("mkfs: %w", fault.Precondition), RefusedOther},
		"a disk that does not answer": {fmt.Errorf("read: %w", fault.Unavailable), ""},
		"nothing":                     {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusalOf(tc.err); got != tc.want {
				t.Errorf("refusalOf(%v) = %q, want %q", tc.err, got, tc.want)
			}
			var refusal Refusal
			if errors.As(tc.err, &refusal) && fault.Of(tc.err) != fault.Precondition {
				t.Errorf("%v is of the kind %q", tc.err, fault.Of(tc.err))
			}
			if tc.want != "" && !slices.Contains(Refusals(), tc.want) {
				t.Errorf("Refusals lacks %q", tc.want)
			}
		})
	}
}
