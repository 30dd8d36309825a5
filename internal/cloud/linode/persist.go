package linode

import (
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Persist is whether attachments survive a boot of their Linode. Such an attachment needs a slot in the Linode's configuration profile. The
// API's description contradicts itself about their number: 8, or one for each GiB of memory up to 64.
type Persist string

const (
	// PersistAuto requests an attachment that survives, and, if the cloud refuses that, one that does not.
	PersistAuto Persist = "auto"
	// PersistAlways requests only attachments that survive.
	PersistAlways Persist = "true"
	// PersistNever requests attachments that end with the next boot.
	PersistNever Persist = "false"
)

// CheckPersist refuses any other value; "" is allowed.
func CheckPersist(p Persist) error {
	if !slices.Contains([]Persist{"", PersistAuto, PersistAlways, PersistNever}, p) {
		return fmt.Errorf("%q: neither auto, true nor false: %w", p, fault.InvalidArgument)
	}
	return nil
}

// persistence chooses how volumes are attached. It caches which Linodes refuse attachments that survive, which only saves a request for
// each further volume.
type persistence struct {
	mode    Persist
	refused block.Cache[int, time.Time]
}

// retryPersist is how long the refusal of a Linode is cached. Its profile may have a free slot later.
const retryPersist = time.Hour

// tries reports whether to request an attachment that survives. refused is how many earlier requests of the call were refused: the first
// may have been refused because of another change of the volume.
func (p *persistence) tries(linode, refused int) bool {
	if p.mode != PersistAuto {
		return p.mode == PersistAlways
	}
	at, _ := p.refused.Get(linode)
	return refused < 2 && time.Since(at) > retryPersist
}

// refuses records that a Linode accepted a volume only without persistence.
func (p *persistence) refuses(linode int) { p.refused.Put(linode, time.Now()) }
