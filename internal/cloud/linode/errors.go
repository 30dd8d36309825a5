package linode

import (
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Almost every refusal of this API is a 400; only its text, and sometimes the field, distinguishes them. The driver matches these texts;
// the facts with their sources are in docs/contributing/clouds.md.
const (
	// textBusy: 400, the Linode is busy with another change.
	textBusy = "linode busy"
	// textLimit and textQuota are in messages about the limits of the account.
	textLimit, textQuota = "limit", "quota"
)

// kindOf maps answers to kinds.
func kindOf(a *api.Answer) fault.Kind {
	switch kind := a.Kind(); {
	case kind != fault.InvalidArgument:
		return kind
	case a.Says(textBusy):
		return fault.Busy
	case slices.Contains(a.Fields, "size"):
		return fault.OutOfRange
	case len(a.Fields) == 0 && (a.Says(textLimit) || a.Says(textQuota)):
		return fault.Exhausted
	default:
		return kind
	}
}

// brokenError is the error for a volume that the cloud cannot use any more.
type brokenError struct {
	id    int
	label string
}

// Error returns a message with a remedy.
func (e *brokenError) Error() string {
	return fmt.Sprintf("volume %d (%s) is in the state %q, which only the cloud's support can change: open a ticket; where no PersistentVolume "+
		"names it nothing has ever used it, and the claim goes on when it is deleted", e.id, e.label, statusBroken)
}

// errBroken is fault.Unavailable for a broken volume.
func errBroken(v *volume) error {
	return fault.VolumeDamaged.Explain(fmt.Errorf("%w: %w", fault.Unavailable, &brokenError{v.ID, v.Label}))
}

// errRotating is the error for a change that waits for the rotation of the encryption key.
var errRotating = fmt.Errorf("the cloud is changing its encryption key (status %q), and allows this when that has ended: %w", statusRotating, fault.Precondition)
