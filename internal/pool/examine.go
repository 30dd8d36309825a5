package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Examine returns the error with which a pool would be refused, as far as reading shows it. It changes nothing.
func Examine(ctx context.Context, cfg Config) error {
	if place, group := strings.CutPrefix(cfg.Dir, groupPrefix); group {
		return examineGroup(cfg, place)
	}
	p, err := newPool(cfg)
	if err == nil {
		_, err = p.mounted(cfg.MountTable)
	}
	if err == nil {
		err = p.checkOwner()
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(p.path(metaFile)); errors.Is(err, fs.ErrNotExist) {
		return p.checkEmpty(cfg)
	}
	cfg.Name, cfg.MustExist = cfg.name(), true
	if err := p.load(cfg); err != nil {
		return err
	}
	return p.Check(ctx)
}

// examineGroup is Examine for a volume group.
func examineGroup(cfg Config, place string) error {
	p, err := newGroupPool(cfg, place)
	if err == nil {
		err = p.checkDevices()
	}
	if err != nil {
		return err
	}
	s, err := p.read()
	if err != nil {
		return err
	}
	if node := s.tag(nodeTag); node != "" {
		if err := p.checkOwner(node, s.tag(poolTag), cfg); err != nil {
			return err
		}
	}
	if s.MissingDisks > 0 {
		return fmt.Errorf("pool %s lacks %d disks: %w", p.location, s.MissingDisks, fault.PoolUnusable)
	}
	return p.full(s)
}
