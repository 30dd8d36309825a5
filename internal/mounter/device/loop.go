package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// LoopConfig says where a node's pool is. Empty folders mean the usual ones.
type LoopConfig struct {
	// Pool is the pool's folder, an absolute path.
	Pool string
	// Node is this node's name.
	Node string
	// SysDir is where the kernel lists block devices: /sys/block.
	SysDir string
	// DevDir is where the device nodes are: /dev.
	DevDir string
}

// Loop finds the volumes of a node's pool: files that it makes loop devices of.
//
// A volume is in use exactly as long as its loop device lives. The descriptor that the kernel gets for
// it carries a shared flock, which therefore ends with the device and not with this process, and
// which the pool asks before it removes a volume. All attaching and detaching happens under the
// pool's lock: two loop devices of one file would be two caches of one disk.
type Loop struct {
	pool   *pool.Pool
	sysDir string
	devDir string
}

var _ Resolver = (*Loop)(nil)

// NewLoop opens the node's pool.
func NewLoop(ctx context.Context, cfg LoopConfig) (*Loop, error) {
	if cfg.SysDir == "" {
		cfg.SysDir = "/sys/block"
	}
	if cfg.DevDir == "" {
		cfg.DevDir = "/dev"
	}
	p, err := pool.Open(ctx, pool.Config{Dir: cfg.Pool, Node: cfg.Node, SysDir: cfg.SysDir})
	if err != nil {
		return nil, err
	}
	return &Loop{pool: p, sysDir: cfg.SysDir, devDir: cfg.DevDir}, nil
}

// Pool returns the pool that the volumes are in.
func (l *Loop) Pool() *pool.Pool { return l.pool }

// Check proves that the pool is there and can be written.
func (l *Loop) Check(ctx context.Context) error { return l.pool.Check(ctx) }

// Open returns the loop device of a volume and makes it if there is none. Before that it finishes an
// interrupted growth and reserves again what the image has lost. fault.NotFound when there is no
// such volume on this node.
func (l *Loop) Open(ctx context.Context, claim Claim) (*Device, error) {
	id, err := l.parse(claim)
	if err != nil {
		return nil, err
	}
	var dev *Device
	err = l.pool.Use(ctx, id, func(image *os.File, r pool.Record) error {
		f, err := l.find(id)
		if errors.Is(err, errNoLoop) {
			f, err = l.attach(ctx, image, r.BlockSize)
		}
		if err != nil {
			return err
		}
		if err := l.setUp(f, r.Size); err != nil {
			return errors.Join(fmt.Errorf("volume %s: %w", claim.Volume, err), f.Close())
		}
		dev, err = l.device(ctx, f, claim, id)
		return err
	})
	return dev, err
}

// Lookup returns the loop device of a volume if there is one. It changes nothing.
func (l *Loop) Lookup(ctx context.Context, claim Claim) (*Device, error) {
	id, err := l.parse(claim)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := l.find(id)
	if errors.Is(err, errNoLoop) {
		return nil, fmt.Errorf("volume %s has no loop device now: %w", claim.Volume, fault.NotFound)
	}
	if err != nil {
		return nil, err
	}
	return l.device(ctx, f, claim, id)
}

// ByNumber is Lookup: the id names the file, so the loop device is the volume's or it is not.
func (l *Loop) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	dev, err := l.Lookup(ctx, Claim{Volume: volume})
	if err == nil && dev.Number() != number {
		return nil, errors.Join(fmt.Errorf("volume %s is another device: %w", volume, fault.NotFound), dev.Close())
	}
	return dev, err
}

// Release detaches the loop device and proves that it is gone, then reserves again what the image has
// lost meanwhile. fault.Busy while anybody has the device open or mounted. Nothing attached, or no
// such volume: no error.
func (l *Loop) Release(ctx context.Context, claim Claim) error {
	id, err := l.parse(claim)
	if err != nil {
		return err
	}
	var detached []string
	err = l.pool.Exclusively(ctx, func() (err error) {
		detached, err = l.detach(id)
		return err
	})
	for _, name := range detached {
		// Not under the lock: somebody else's probing of the device may take a moment.
		err = errors.Join(err, l.waitGone(ctx, name, id))
	}
	if err != nil {
		return fmt.Errorf("release volume %s: %w", claim.Volume, err)
	}
	// The volume is free whatever comes of this; the next Open does it too, and insists.
	_ = l.pool.Reserve(ctx, id)
	return nil
}

// Grow reserves more space for a volume, then makes its image and its loop device larger. It returns
// the size that the volume has then. fault.OutOfRange when the pool has no room; nothing changed.
func (l *Loop) Grow(ctx context.Context, claim Claim, size int64) (int64, error) {
	id, err := l.parse(claim)
	if err != nil {
		return 0, err
	}
	grown, err := l.pool.Grow(ctx, id, size)
	if err != nil {
		return 0, err
	}
	f, err := l.find(id)
	if errors.Is(err, errNoLoop) {
		return grown, nil
	}
	if err != nil {
		return 0, err
	}
	return grown, errors.Join(setCapacity(f, grown), f.Close())
}

// Prezeroed reports whether every byte of the device surely reads as zero, because none was ever
// written. It must be asked before the first write, since it only ever turns false.
func (l *Loop) Prezeroed(ctx context.Context, d *Device) (bool, error) {
	id, err := l.parse(d.Claim())
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	// What somebody wrote may still be in the device's cache only, where the image does not show it.
	if err := d.File().Sync(); err != nil {
		return false, fmt.Errorf("flush %s of volume %s: %w: %w", d.Path(), d.Claim().Volume, fault.Unavailable, err)
	}
	return l.pool.NeverWritten(id)
}

// parse reads the volume id of a claim, which came from outside, and checks it against the name.
func (l *Loop) parse(claim Claim) (pool.ID, error) {
	h, err := pool.ParseHandle(claim.Volume)
	if err != nil {
		return "", fmt.Errorf("volume %.200q is not on node %s: %w: %w", claim.Volume, l.pool.Node(), fault.NotFound, err)
	}
	if h.Node != l.pool.Node() {
		return "", fmt.Errorf("volume %s is not on node %s: %w", claim.Volume, l.pool.Node(), fault.NotFound)
	}
	if claim.Name != "" && strings.TrimSuffix(claim.Name, ".img") != string(h.ID) {
		return "", fmt.Errorf("volume %s cannot be the device %.80q: %w", claim.Volume, claim.Name, fault.Precondition)
	}
	return h.ID, nil
}

// device proves that an open loop device is the volume's and wraps it. It takes f over.
func (l *Loop) device(ctx context.Context, f *os.File, claim Claim, id pool.ID) (*Device, error) {
	d, err := newDevice(f, f.Name(), claim, func(_ context.Context, d *Device) error {
		return l.prove(d.file, id)
	})
	if err != nil {
		return nil, err
	}
	if err := d.Verify(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
