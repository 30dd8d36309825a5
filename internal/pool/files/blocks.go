package files

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

// blocksPerSend is the maximum number of parts that ReadBlocks holds in memory.
const blocksPerSend = 1024

// ReadBlocks calls send, at least once, with the size of a snapshot and the next parts of it in their order: those that may have data,
// or with a base those that may differ from that snapshot. Everything else reads as zeros, or as the base does. After an error what
// was sent is not all. send must not retain the parts.
//
// fault.NoCopies in a pool without reflinks, fault.NotFound without one of the snapshots, fault.InvalidArgument if they are of different
// volumes, fault.OutOfRange for a start beyond the size. While it runs neither snapshot can be deleted.
func (p *Pool) ReadBlocks(ctx context.Context, req pool.BlocksRequest, send func(size int64, blocks []pool.Range) error) error {
	if !p.reflink {
		return p.NoBlocks()
	}
	target, base, err := p.openSnapshots(ctx, req)
	if err != nil {
		return err
	}
	defer target.close()
	defer base.close()
	size := target.record.Size
	if req.From > size {
		return fmt.Errorf("%s has %d bytes, asked for are those from %d on: %w", target.name, size, req.From, fault.OutOfRange)
	}
	var parts []pool.Range
	sent := false
	flush := func() error {
		err := send(size, parts)
		parts, sent = parts[:0], true
		return err
	}
	err = extents.Changed(base.source(ctx, req.From), target.source(ctx, req.From), req.From, size, func(r extents.Range) error {
		if parts = append(parts, pool.Range(r)); len(parts) < blocksPerSend {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = base.checkUnchanged()
	}
	if err == nil {
		err = target.checkUnchanged()
	}
	if err == nil && (len(parts) > 0 || !sent) {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("read the blocks of %s: %w", target.name, pool.KindOf(err))
	}
	return nil
}

// snapshot is an open snapshot. The zero value is one without data.
type snapshot struct {
	name   string
	record pool.Record
	file   *os.File
	opened unix.Stat_t
}

// openSnapshots opens the snapshots of a request. Their shared flocks keep them from being deleted: a deleted image is truncated, so
// that the blocks of an open one would be gone.
func (p *Pool) openSnapshots(ctx context.Context, req pool.BlocksRequest) (target, base snapshot, err error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return target, base, err
	}
	defer unlock()
	if target, err = p.openSnapshot(req.Target); err != nil {
		return target, base, err
	}
	if req.Base != "" {
		if base, err = p.openSnapshot(req.Base); err == nil && base.record.Volume != target.record.Volume {
			err = fmt.Errorf("%s is of volume %s, and %s of volume %s: %w",
				base.name, p.Handle(base.record.Volume), target.name, p.Handle(target.record.Volume), fault.InvalidArgument)
		}
	}
	if err != nil {
		target.close()
		base.close()
	}
	return target, base, err
}

func (p *Pool) openSnapshot(id pool.ID) (snapshot, error) {
	ref := pool.SnapshotRef(id)
	f, r, err := p.openImage(ref, os.O_RDONLY)
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{name: p.Describe(ref), record: r, file: f}
	// Nothing writes to a snapshot, so this has nothing to do. It allocates the blocks of data that is only in the page cache.
	err = f.Sync()
	if err == nil {
		s.opened, err = s.stat()
	}
	if err != nil {
		s.close()
		return snapshot{}, fmt.Errorf("read %s: %w", s.name, pool.KindOf(err))
	}
	return s, nil
}

func (s snapshot) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

func (s snapshot) stat() (st unix.Stat_t, err error) {
	err = pool.RetryEINTR(func() error { return unix.Fstat(int(s.file.Fd()), &st) })
	return st, err
}

// source returns the mappings of the snapshot, as long as the context lasts.
func (s snapshot) source(ctx context.Context, from int64) extents.Source {
	if s.file == nil {
		return extents.Nothing
	}
	reader := extents.NewReader(s.file, from, s.record.Size)
	return func() (extents.Mapping, bool, error) {
		if err := ctx.Err(); err != nil {
			return extents.Mapping{}, false, err
		}
		m, more, err := reader.Next()
		m.Length = min(m.Length, s.record.Size-m.Start)
		return m, more && m.Length > 0, err
	}
}

// checkUnchanged refuses a snapshot that a foreign program has written to, or whose blocks it has moved (xfs_fsr), since it was opened.
func (s snapshot) checkUnchanged() error {
	if s.file == nil {
		return nil
	}
	now, err := s.stat()
	if err == nil && (now.Ctim != s.opened.Ctim || now.Size != s.opened.Size) {
		err = fmt.Errorf("a foreign program has changed %s meanwhile: %w", s.name, fault.Unavailable)
	}
	return err
}
