package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// readBytes is how much of a file is read at a time.
const readBytes = 1 << 20

// reader reads the files of a volume.
type reader struct {
	*checker
	ctx  context.Context
	root *os.Root
	// done has the files that were read and can be met again: by another name, or after the comparison with the list.
	done map[uint64]bool
	buf  []byte
}

// readFiles reads every file. Those on the list of checksums are read first.
func (c *checker) readFiles(ctx context.Context, root *os.Root) error {
	r := &reader{checker: c, ctx: ctx, root: root, done: map[uint64]bool{}, buf: make([]byte, readBytes)}
	if err := r.compare(); err != nil {
		return err
	}
	return r.walk(".")
}

// walk reads a directory and what is below it.
func (r *reader) walk(dir string) error {
	var below []string
	f, err := r.root.Open(dir)
	if err == nil {
		r.report.Directories++
		below, err = r.list(f, dir)
		_ = f.Close()
	}
	if err := r.skip(dir, err); err != nil {
		return err
	}
	for _, name := range below {
		if err := r.walk(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// list reads the files of a directory and returns the names of the directories in it.
func (r *reader) list(f *os.File, dir string) (below []string, err error) {
	const atOnce = 1000
	for {
		entries, err := f.ReadDir(atOnce)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case e.IsDir():
				below = append(below, e.Name())
			case e.Type().IsRegular():
				err := r.readFile(path)
				if err := r.skip(path, err); err != nil {
					return nil, err
				}
			default:
				r.report.Others++
				if e.Type()&os.ModeSymlink != 0 {
					_, err := r.root.Readlink(path)
					if err := r.skip(path, err); err != nil {
						return nil, err
					}
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return below, nil
		}
		if err != nil {
			return below, err
		}
	}
}

// skip makes an error about one path a line of the report. It returns an error if the check cannot go on.
func (r *reader) skip(path string, err error) error {
	switch {
	case r.ctx.Err() != nil:
		return fmt.Errorf("stopped: %w: %w", fault.Unavailable, r.ctx.Err())
	case err == nil:
	case errors.Is(err, unix.ENOKEY):
		r.report.unchecked("read %q: it is encrypted by the filesystem, and the key is not here", path)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		r.report.unchecked("read %q: %s; that takes the capability DAC_READ_SEARCH", path, cause(err))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("read %q: %w: %w", path, fault.Unavailable, err)
	default:
		r.report.finding("read %q: %s", path, cause(err))
	}
	return nil
}

// cause returns an error without the name of the call and of the path.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// readFile reads the data of a file. Holes are left out: a sparse file may be larger than the disk.
func (r *reader) readFile(path string) error {
	f, known, err := r.open(path, false)
	if err != nil || known {
		return err
	}
	defer func() { _ = f.Close() }()
	for at := int64(0); ; {
		from, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no data behind it
			return nil
		}
		if err != nil {
			return err
		}
		to, err := f.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		n, err := r.copy(io.Discard, io.NewSectionReader(f, from, to-from))
		if err == nil && n != to-from {
			err = fmt.Errorf("%d of %d bytes at %d: %w", n, to-from, from, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		at = to
	}
}

// open opens a file, counts it and remembers it. A file that was read before is known and not opened, unless it is to be read again.
func (r *reader) open(path string, again bool) (f *os.File, known bool, err error) {
	// A path of the list may be a named pipe, which would wait for a writer.
	f, err = r.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		_ = f.Close()
		return nil, false, err
	}
	st, isStat := info.Sys().(*syscall.Stat_t)
	known = isStat && r.done[st.Ino]
	if known && !again {
		return nil, true, f.Close()
	}
	if !known {
		r.report.Files++
	}
	if isStat && (st.Nlink > 1 || again) {
		r.done[st.Ino] = true
	}
	return f, false, nil
}

// copy copies and counts until the end or until the check is stopped.
func (r *reader) copy(to io.Writer, from io.Reader) (total int64, err error) {
	for r.ctx.Err() == nil {
		n, err := from.Read(r.buf)
		total += int64(n)
		r.report.Bytes += int64(n)
		if _, err := to.Write(r.buf[:n]); err != nil {
			return total, err
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, r.ctx.Err()
}
