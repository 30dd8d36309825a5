package device

import "context"

// Resolver finds the devices of volumes. ByID does it for cloud disks, Loop for files of a pool.
type Resolver interface {
	// Open finds the device, waits for it to appear until ctx ends, and proves its identity.
	// The pool's resolver attaches the loop device if it is not there yet.
	Open(ctx context.Context, spec Spec) (*Device, error)
	// Lookup is Open without attaching and without waiting: fault.NotFound when the device is
	// not there now.
	Lookup(ctx context.Context, spec Spec) (*Device, error)
	// Number returns the number of the device from sysfs: it opens no device, so a disk
	// that hangs does not stop it. For specs of other volumes than the one that a call is about. fault.NotFound when
	// the device is not there now.
	Number(ctx context.Context, spec Spec) (uint64, error)
	// ByNumber opens the device that has this number, if it may be the volume: fault.NotFound when
	// it cannot. The caller has seen the device where the volume is staged or published, and knows
	// no more of the volume than its id.
	ByNumber(ctx context.Context, volume string, number uint64) (*Device, error)
	// Release gives the device back after nothing uses it any more. Called when there is
	// nothing to release it returns nil.
	Release(ctx context.Context, spec Spec) error
	// Grow makes the device at least size bytes where this node can, and returns its size.
	Grow(ctx context.Context, spec Spec, size int64) (int64, error)
}
