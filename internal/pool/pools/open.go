package pools

import (
	"context"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/lvm"
)

var _, _ pool.Storage = (*files.Pool)(nil), (*lvm.Pool)(nil)

// IsFileName reports whether a name is the Storage.FileName of this volume in any kind of pool.
func IsFileName(id pool.ID, name string) bool {
	return name == id.ImageName() || name == lvm.VolumeName(id)
}

// openPool opens the pool at Config.Dir.
func openPool(ctx context.Context, cfg pool.Config) (pool.Storage, error) {
	if _, group := cfg.Group(); group {
		p, err := lvm.Open(ctx, cfg)
		if err != nil {
			return nil, err // a nil *lvm.Pool would be a Storage that is not nil
		}
		return p, nil
	}
	p, err := files.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Examine returns the error with which a pool would be refused, as far as reading shows it within answerBound. It changes nothing.
func Examine(ctx context.Context, cfg pool.Config) error {
	return (&Set{}).ask(ctx, cfg.Dir, cfg.Dir, func(ctx context.Context) error {
		if _, group := cfg.Group(); group {
			return lvm.Examine(cfg)
		}
		return files.Examine(ctx, cfg)
	})
}
