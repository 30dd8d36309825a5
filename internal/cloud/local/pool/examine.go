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
// filesystem or thin pool for themselves. It changes nothing. A folder that would be made is fs.ErrNotExist, a pool that this
// node does not have fault.NotFound.
func Examine(ctx context.Context, cfg Config) (own bool, err error) {
	if place, thin := strings.CutPrefix(cfg.Dir, thinPrefix); thin {
		return true, examineThin(cfg, place)
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
	if err := p.checkOwner(); err != nil {
		return false, err
	}
	switch _, err := os.Lstat(p.path(metaFile)); {
	case errors.Is(err, fs.ErrNotExist):
		if err := p.checkEmpty(cfg.Node); err != nil {
			return false, err
		}
	default:
		cfg.MustExist = true
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

// examineThin is Examine for a thin pool.
func examineThin(cfg Config, place string) error {
	p, err := newThinPool(cfg, place)
	if err != nil {
		return err
	}
	s, err := p.read()
	if errors.Is(err, errNoThinPool) && cfg.Name != "" {
		return fmt.Errorf("node %s has no pool %s: %w", cfg.Node, cfg.Name, fault.NotFound)
	}
	if err != nil {
		return err
	}
	node, err := taggedNode(s.pool)
	if err == nil && node != "" && cfg.Node != "" && node != cfg.Node {
		err = p.foreign(node, cfg.Node)
	}
	return err
}
