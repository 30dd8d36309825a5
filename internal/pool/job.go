package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// copyChunk is how much is copied between two checks of the context.
	copyChunk int64 = 16 << 20
	// copyBuffer is how much is read before it is written.
	copyBuffer = 1 << 20
	// progressPause is the time between two reports of progress.
	progressPause = 5 * time.Second
)

// Progress is how far a copy has come.
type Progress struct {
	// Target and Source name the two as messages do.
	Target, Source string
	Done, Total    int64
	// Ended is set in the last report only; Err is the outcome.
	Ended bool
	Err   error
}

// job is a copy that runs without the pool's lock. It continues when the call that started it ends, and
// stops with the process. Meanwhile it holds the exclusive flock of its target image: a record in state
// Copying whose image is not locked was left by a killed process.
type job struct {
	record Record
	source source
	to     *os.File
	done   chan struct{}
	// err is set before done is closed.
	err error
}

// startJob does the steps of a copy that need the pool's lock: record, image, flock and reservation.
func (p *Pool) startJob(r Record, src source) (*job, error) {
	j := &job{record: r, source: src, done: make(chan struct{})}
	ref := r.ref()
	parts, total, err := written(src.file, src.record.Size)
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", p.name(src.ref), kindOf(err))
	}
	j.record.State = Copying
	if ref.isSnapshot() {
		j.record.Reservation = total
	}
	err = p.claimName(j.record)
	if err == nil {
		j.to, err = p.disk.emptyImage(p.file(ref, imageExt))
	}
	if err == nil {
		err = flock(j.to, unix.LOCK_EX)
	}
	switch {
	case err != nil:
	case ref.isSnapshot():
		p.disk.step("lengthen image")
		err = retryEINTR(func() error { return j.to.Truncate(j.record.Size) })
	default:
		// A volume is reserved in full before any data is copied.
		err = p.disk.reserve(p.copyCtx, j.to, j.record.Size)
	}
	if err != nil {
		if j.to != nil {
			err = errors.Join(err, j.to.Close())
		}
		return nil, p.undoCreate(err, j.record)
	}
	p.jobs.Go(func() { p.run(j, parts, total) })
	return j, nil
}

// run copies, then marks the record ready or undoes the create.
func (p *Pool) run(j *job, parts []extent, total int64) {
	defer close(j.done)
	err := p.copyParts(j, parts, total)
	// The image is complete and durable before the record says so.
	if err == nil {
		p.disk.step("sync image")
		err = j.to.Sync()
	}
	// Close must not cancel this: every copy that was started is completed or undone.
	unlock, lockErr := p.enter(context.WithoutCancel(p.copyCtx))
	if lockErr == nil && err == nil {
		err = p.checkImageInPlace(j)
	}
	switch {
	case lockErr != nil:
		err = errors.Join(err, lockErr) // the next recover removes the files
	case err == nil:
		if err = p.ready(&j.record); err != nil {
			err = p.undoCreate(err, j.record)
		}
	default:
		err = p.undoCreate(err, j.record)
	}
	// The files are closed before the pool's lock is released, because Close releases the flock of the image.
	_, _ = j.to.Close(), j.source.file.Close()
	if lockErr == nil {
		unlock()
	}
	j.err = err
	p.report(j, total, total, true, err)
}

// checkImageInPlace refuses a copy whose image was removed or replaced while it was written.
func (p *Pool) checkImageInPlace(j *job) error {
	written, err := j.to.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(j.to.Name()); err != nil || !os.SameFile(written, named) {
		return fmt.Errorf("the image of %s was removed while it was being copied: %w", p.name(j.record.ref()), fault.Unavailable)
	}
	return nil
}

// copyParts copies the written parts of the source. Everything else reads as zeros in both files.
func (p *Pool) copyParts(j *job, parts []extent, total int64) error {
	done, reported := int64(0), time.Now()
	p.report(j, 0, total, false, nil)
	for _, part := range parts {
		for end := part.start + part.length; part.start < end; {
			if err := p.copyCtx.Err(); err != nil {
				return err
			}
			p.disk.step("copy")
			n, err := copyRange(j.to, j.source.file, part.start, min(copyChunk, end-part.start))
			if err != nil {
				return fmt.Errorf("copy %s: %w", p.name(j.source.ref), err)
			}
			part.start, done = part.start+n, done+n
			if time.Since(reported) > progressPause {
				p.report(j, done, total, false, nil)
				reported = time.Now()
			}
		}
	}
	return nil
}

// copyRange copies a range to the same offset of another file and returns its length.
func copyRange(to, from *os.File, at, length int64) (int64, error) {
	// copy_file_range would make the files share blocks on xfs and btrfs.
	n, err := io.CopyBuffer(io.NewOffsetWriter(to, at), io.NewSectionReader(from, at, length), make([]byte, copyBuffer))
	if err != nil {
		return 0, err
	}
	if n < length {
		return 0, io.ErrUnexpectedEOF
	}
	// Start the writeback while the next part is read, so that the final sync is short.
	_ = unix.SyncFileRange(int(to.Fd()), at, n, unix.SYNC_FILE_RANGE_WRITE)
	return n, nil
}

func (p *Pool) report(j *job, done, total int64, ended bool, err error) {
	if p.progress != nil {
		p.progress(Progress{Target: p.name(j.record.ref()), Source: p.name(j.source.ref), Done: done, Total: total, Ended: ended, Err: err})
	}
}

// wait returns the record of the finished copy. When the context ends first, the job continues.
func (j *job) wait(ctx context.Context, p *Pool) (Record, error) {
	select {
	case <-j.done:
		if j.err != nil {
			return Record{}, j.err
		}
		return j.record, nil
	case <-ctx.Done():
		return Record{}, fmt.Errorf("%s is still being copied: %w: %w", p.name(j.source.ref), fault.Uncertain, ctx.Err())
	}
}

// beingCopied reports whether a live process is writing the image of this object.
func (p *Pool) beingCopied(ref objectRef) bool {
	f, err := p.openToRead(ref)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(flock(f, unix.LOCK_SH), unix.EWOULDBLOCK)
}

// Close stops the copies of this process, removes their files, and returns when that is done or the context
// ends. Without Close the next process removes the files.
func (p *Pool) Close(ctx context.Context) error {
	p.cancelCopies()
	ended := make(chan struct{})
	go func() {
		p.jobs.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a copy in pool %s is still being undone: %w", p.dir, ctx.Err())
	}
}
