package linode

import (
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Persist says whether attachments survive a boot of their Linode. One that does needs a slot in the Linode's
// configuration profile, and the API's description says both that there are 8 of them and that there are as many as the
// Linode has GiB of memory, up to 64.
type Persist string

const (
	// PersistAuto asks for an attachment that survives, and for one that does not where the cloud refuses.
	PersistAuto Persist = "auto"
	// PersistAlways asks for nothing else.
	PersistAlways Persist = "true"
	// PersistNever asks for attachments that end with the next boot.
	PersistNever Persist = "false"
)

// CheckPersist refuses what is none of these. Nothing is fine.
func CheckPersist(p Persist) error {
	if !slices.Contains([]Persist{"", PersistAuto, PersistAlways, PersistNever}, p) {
		return fmt.Errorf("%q: neither auto, true nor false: %w", p, fault.InvalidArgument)
	}
	return nil
}

// persistence chooses how volumes are attached. It remembers which Linodes refuse attachments that persist, which
// saves a request for each further volume and decides nothing else.
type persistence struct {
	mode    Persist
	refused block.Cache[int, time.Time]
}

// retryPersist is for how long a Linode that refused is not asked again. Its configuration may get room.
const retryPersist = time.Hour

// tries reports whether a request asks for an attachment that persists. refused is how many earlier requests of the
// same call were refused: the first may have met another change of the volume.
func (p *persistence) tries(linode, refused int) bool {
	if p.mode != PersistAuto {
		return p.mode == PersistAlways
	}
	at, _ := p.refused.Get(linode)
	return refused < 2 && time.Since(at) > retryPersist
}

// refuses notes that the Linode took a volume only when it was not asked to keep it.
func (p *persistence) refuses(linode int) { p.refused.Put(linode, time.Now()) }
