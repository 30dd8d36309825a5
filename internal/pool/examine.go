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

// Examine returns the error with which a pool would be refused, as far as reading shows it, and whether its volumes have the
// filesystem or volume group for themselves. It changes nothing. A folder that would be made is fs.ErrNotExist, a pool that this
// node does not have fault.NotFound.
func Examine(ctx context.Context, cfg Config) (own bool, err error) {
	if place, group := strings.CutPrefix(cfg.Dir, groupPrefix); group {
		return true, examineGroup(cfg, place)
	}
	p, err := newPool(cfg)
	if err != nil {
		return false, err
	}
	if err := cfg.checkThere(); err != nil {
		return false, err
	}
	known, err := readIDFile(cfg.IDFile)
	if err == nil {
		err = p.checkPresent(cfg.IDFile, known)
	}
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(p.dir); err != nil {
		return false, fmt.Errorf("pool folder: %w", kindOf(err))
	}
	if err := errors.Join(p.checkOwner(), p.checkFilesystem()); err != nil {
		return false, err
	}
	switch _, err := os.Lstat(p.path(metaFile)); {
	case errors.Is(err, fs.ErrNotExist):
		if err := p.checkEmpty(cfg); err != nil {
			return false, err
		}
	default:
		cfg.Name, cfg.MustExist = cfg.name(), true
		if err := p.load(cfg); err != nil {
			return false, err
		}
		if known.ID != "" { // without one, Open writes it
			if err := checkIDFile(p.disk, cfg.IDFile, known, idFile{ID: p.id, Dir: p.dir}); err != nil {
				return false, err
			}
		}
		if err := p.Check(ctx); err != nil {
			return false, err
		}
	}
	return isWholeFilesystem(p.dir)
}

// examineGroup is Examine for a volume group.
func examineGroup(cfg Config, place string) error {
	p, err := newGroupPool(cfg, place)
	if err != nil {
		return err
	}
	known, err := readIDFile(cfg.IDFile)
	if err == nil {
		err = p.checkDevices()
	}
	if errors.Is(err, errNoDevicesFile) && cfg.Name != "" && known.ID == "" {
		return fmt.Errorf("node %s has no pool %s: %w: %w", cfg.Node, cfg.Name, fault.NotFound, err)
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
