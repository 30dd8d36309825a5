package mounter

import (
	"errors"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Refusal is a fault.Precondition that says in one word why a device is not formatted and not used as it is.
type Refusal string

// The refusals. Metrics have them as labels, so they do not change from release to release.
const (
	// RefusedFound: it has another filesystem, partitions or a known signature.
	RefusedFound Refusal = "other_content"
	// RefusedDamaged: what is found on it contradicts itself.
	RefusedDamaged Refusal = "damaged"
	// RefusedNotBlank: nothing known is on it, and it is not blank or was written to.
	RefusedNotBlank Refusal = "not_blank"
	// RefusedForbidden: it has no filesystem, and this use never formats: read-only, a copy, or an attribute.
	RefusedForbidden Refusal = "format_forbidden"
	// RefusedUnfinished: it has an unfinished format that is not the volume's.
	RefusedUnfinished Refusal = "unfinished_format"
	// RefusedSize: it is smaller than the volume.
	RefusedSize Refusal = "too_small"
	// RefusedInUse: it is mounted or open elsewhere. Its kind is fault.Busy.
	RefusedInUse Refusal = "in_use"
	// RefusedOther: any other state of the device or of the program that reads or formats it.
	RefusedOther Refusal = "other"
)

// Refusals returns all of them.
func Refusals() []Refusal {
	return []Refusal{
		RefusedFound, RefusedDamaged, RefusedNotBlank, RefusedForbidden, RefusedUnfinished, RefusedSize, RefusedInUse, RefusedOther,
	}
}

// Error returns the words of the kind.
func (r Refusal) Error() string { return fault.Precondition.Error() }

// Unwrap returns the kind.
func (r Refusal) Unwrap() error { return fault.Precondition }

// refusalOf returns the refusal that an error of EnsureFormatted is; empty: it is none, and a repeat may succeed.
func refusalOf(err error) Refusal {
	var r Refusal
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, errInUse):
		return RefusedInUse
	case fault.Of(err) == fault.Precondition:
		return RefusedOther
	}
	return ""
}
