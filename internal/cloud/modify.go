package cloud

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// OwnTags begins the keys of the driver's own tags.
const OwnTags = "cloudblock-"

// Modifier is the part of a Cloud with Capabilities.Modify. A decorator hides it, and so passes it on by Modify.
type Modifier interface {
	// ModifyVolume puts tags on a volume and returns when the cloud shows them there. Each replaces what the volume
	// has under its key, and all others stay. Tags that are there already change nothing, so calling twice is the
	// same as once. fault.NotFound when there is no such volume; fault.InvalidArgument, and nothing is changed, for a
	// tag that the cloud would refuse and for one of the driver's own.
	ModifyVolume(ctx context.Context, id VolumeID, tags []Tag) error
}

// Modify modifies a volume, or answers fault.Unsupported where the backend cannot.
func Modify(ctx context.Context, c Cloud, id VolumeID, tags []Tag) error {
	m, ok := c.(Modifier)
	if !ok {
		return fmt.Errorf("modify volume %.80q: %w", id, fault.Unsupported)
	}
	return m.ModifyVolume(ctx, id, tags)
}
