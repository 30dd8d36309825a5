// Package files keeps the volumes of one node as files of a hard size on a filesystem of their own.
//
//	pool.json              which node the pool belongs to, its name, and its own random id
//	lock                   flock(2) on it orders every change, also between processes
//	volumes/<32 hex>.img   the bytes of a volume, reserved in full
//	volumes/<32 hex>.json  its record: name, size, state, tags
//	volumes/<32 hex>.gone  its tombstone: the record of a volume that is being deleted
//	snapshots/             the same for snapshots
//	*.new                  temporary files; recovery removes those of a killed process
//
// The controller creates and deletes volumes, the node program grows them, and an operator's command
// lists them: three processes that share only this folder. Each method acquires the lock and reads the
// folder again, so no process caches state that another one changes.
//
// A change is a sequence of steps, each durable before the next begins, and the record states the change
// before it starts. So a killed process or a power loss leaves the state before, the state after, or a
// record from which the next caller completes or undoes the change. Files that no such sequence leaves
// are orphans: the pool lists them and refuses to use them, and only a Delete or Remove of that id removes them.
package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

const (
	format       = 1
	metaFile     = "pool.json"
	imageExt     = ".img"
	recordExt    = ".json"
	newExt       = ".new"
	tombstoneExt = ".gone"
	filePerm     = 0o600
	folderPerm   = 0o700
	defaultSys   = "/sys/block"
	maxMetaLen   = 1 << 20
)

// Pool is an open pool. It holds no descriptor and caches no state of the folder.
type Pool struct {
	pool.Objects
	lock pool.Lock

	dir    string
	id     string
	sysDir string
	disk   disk
	// reflink: the pool has snapshots and clones, which share blocks with their source; see canReflink.
	reflink bool
}

// meta is the content of pool.json.
type meta struct {
	Format  int       `json:"format"`
	Node    string    `json:"node"`
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
}

// Open opens the pool on the filesystem that is mounted at a folder, and creates it if that is empty. It recovers the
// changes that a killed process interrupted. fault.PoolUnusable when that is not usable: no filesystem is mounted
// there, which is ErrNotHere too, or one that is neither xfs nor ext4; it is not empty and not a pool, it belongs to another
// node, another user can write to it, or it cannot reserve space.
func Open(ctx context.Context, cfg pool.Config) (*Pool, error) {
	p, err := newPool(cfg)
	if err != nil {
		return nil, err
	}
	filesystem, err := p.mounted(cfg.MountTable)
	if err != nil {
		return nil, err
	}
	if cfg.MustExist {
		if _, err := os.Stat(p.path(metaFile)); err != nil {
			return nil, fmt.Errorf("%s is not a pool of volumes: %w: %w", p.dir, fault.PoolUnusable, err)
		}
	}
	if err := p.checkOwner(); err != nil {
		return nil, err
	}
	// Checked before the lock, which creates a file in the folder.
	if _, err := os.Lstat(p.path(metaFile)); errors.Is(err, fs.ErrNotExist) {
		if err := p.checkEmpty(cfg); err != nil {
			return nil, err
		}
	}
	unlock, err := p.lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := p.load(cfg); err != nil {
		return nil, err
	}
	if err := p.disk.probe(p.path("probe" + newExt)); err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.dir, err)
	}
	if p.reflink, err = canReflink(p.dir, filesystem); err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.dir, err)
	}
	if _, err := p.recover(); err != nil {
		return nil, err
	}
	return p, nil
}

func newPool(cfg pool.Config) (*Pool, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, fmt.Errorf("pool folder %q is not an absolute path: %w", cfg.Dir, fault.InvalidArgument)
	}
	if err := cfg.CheckNode(); err != nil {
		return nil, err
	}
	cfg.SysDir = cmp.Or(cfg.SysDir, defaultSys)
	p := &Pool{dir: filepath.Clean(cfg.Dir), sysDir: cfg.SysDir}
	p.Objects = pool.NewObjects(cfg, p.dir, pool.Calls{List: p.list, Get: p.get, Delete: p.delete, Usage: p.Usage})
	p.lock = pool.NewLock(p.dir)
	p.disk.statfs = statfs
	return p, nil
}

// SnapshotsBy returns "reflink" on an xfs, else NoSnapshots.
func (p *Pool) SnapshotsBy() string {
	if p.reflink {
		return "reflink"
	}
	return pool.NoSnapshots
}

// Dir returns the pool's folder.
func (p *Pool) Dir() string { return p.dir }

// FileName returns the base name of a volume's image.
func (p *Pool) FileName(id pool.ID) string { return id.ImageName() }

// ImagePath returns the path of a volume's image.
func (p *Pool) ImagePath(id pool.ID) string { return p.file(pool.VolumeRef(id), imageExt) }

// Check checks that the pool is readable and writable, and that the folder still holds the pool that was
// opened. It does not wait for the lock.
func (p *Pool) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.checkIdentity(); err != nil {
		return err
	}
	f, err := os.OpenFile(p.path(pool.LockFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("pool %s cannot be written: %w", p.dir, pool.KindOf(err))
	}
	return nil
}

// checkIdentity checks that the folder still holds the pool that was opened.
func (p *Pool) checkIdentity() error {
	m, err := p.readMeta()
	if err != nil {
		return err
	}
	if m.ID != p.id || m.Node != p.Node() || m.Name != p.Name() {
		return fmt.Errorf("pool %s is not the one that was opened (id %s, now %s); start the program again when the right disk is mounted: %w",
			p.dir, p.id, m.ID, fault.PoolUnusable)
	}
	return nil
}

// file returns the path of the file of an object with this extension.
func (p *Pool) file(ref pool.Ref, ext string) string {
	return p.path(string(ref.Folder), string(ref.ID)+ext)
}

func (p *Pool) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// load reads pool.json, or writes it into an empty filesystem. The caller holds the lock.
func (p *Pool) load(cfg pool.Config) error {
	m, err := p.readMeta()
	if errors.Is(err, fs.ErrNotExist) && !cfg.MustExist {
		m, err = p.initialise(cfg)
	}
	if err != nil {
		return err
	}
	if cfg.Node != "" && m.Node != cfg.Node {
		return fmt.Errorf("pool %s belongs to node %q, this is node %q; start with --node-id %s or mount a disk of this node's: %w",
			p.dir, m.Node, cfg.Node, m.Node, fault.PoolUnusable)
	}
	if err := cfg.CheckOwnName(m.Name); err != nil {
		return fmt.Errorf("pool %s: %w", p.dir, err)
	}
	p.SetOwner(m.Node, m.Name)
	p.id = m.ID
	return nil
}

// readMeta reads and checks pool.json. A missing file is fs.ErrNotExist.
func (p *Pool) readMeta() (meta, error) {
	name := p.path(metaFile)
	data, err := readFile(name)
	if err != nil {
		return meta{}, fmt.Errorf("read pool %s: %w: %w", p.dir, fault.PoolUnusable, err)
	}
	var m meta
	if err := json.Unmarshal(data, &m); err != nil {
		return meta{}, fmt.Errorf("%s is damaged: %w: %w", name, fault.PoolUnusable, err)
	}
	if m.Format != format {
		return meta{}, fmt.Errorf("%s has format %d, this program knows %d; use the version that wrote it: %w", name, m.Format, format, fault.PoolUnusable)
	}
	if _, err := pool.ParseID(m.ID); err != nil {
		return meta{}, fmt.Errorf("%s is damaged: its id %q is not 32 hexadecimal digits: %w", name, m.ID, fault.PoolUnusable)
	}
	if err := errors.Join(pool.CheckNode(m.Node), pool.CheckName(m.Name)); err != nil {
		return meta{}, fmt.Errorf("%s is damaged: %w: %w", name, fault.PoolUnusable, err)
	}
	return m, nil
}

// initialise creates a pool on an empty filesystem. It writes pool.json last: a pool with it is complete, and
// one without it has no volumes.
func (p *Pool) initialise(cfg pool.Config) (meta, error) {
	m := meta{Format: format, Node: cfg.Node, Name: cfg.OwnName(), ID: string(pool.NewID()), Created: time.Now().UTC().Truncate(time.Second)}
	data, err := json.Marshal(m)
	if err != nil {
		return meta{}, fmt.Errorf("write pool %s: %w: %w", p.dir, fault.Unavailable, err)
	}
	if err := p.checkEmpty(cfg); err != nil {
		return meta{}, err
	}
	// mkfs gives it a wider mode.
	if err := os.Chmod(p.dir, folderPerm); err != nil {
		return meta{}, fmt.Errorf("make pool %s: %w", p.dir, pool.KindOf(err))
	}
	for _, f := range []pool.Folder{pool.Volumes, pool.Snapshots} {
		if err := p.disk.makeFolder(p.path(string(f))); err != nil {
			return meta{}, fmt.Errorf("make pool %s: %w", p.dir, pool.KindOf(err))
		}
	}
	if err := p.disk.replace(p.path(metaFile), data); err != nil {
		return meta{}, fmt.Errorf("make pool %s: %w", p.dir, pool.KindOf(err))
	}
	return m, nil
}

// checkOwner refuses folders that another user owns or can write to, because that user could replace the
// images.
func (p *Pool) checkOwner() error {
	for _, dir := range []string{p.dir, p.path(string(pool.Volumes)), p.path(string(pool.Snapshots))} {
		var st unix.Stat_t
		err := pool.RetryEINTR(func() error { return unix.Stat(dir, &st) })
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("read pool folder %s: %w", dir, pool.KindOf(err))
		case int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0:
			return fmt.Errorf("pool folder %s belongs to user %d and has mode %#o; it must belong to user %d, and no other user may write to it: %w",
				dir, st.Uid, st.Mode&0o7777, os.Geteuid(), fault.PoolUnusable)
		}
	}
	return nil
}

// checkEmpty refuses a filesystem that holds anything but files of an interrupted Open. One with volumes or snapshots but without
// pool.json is a pool that lost the file: a new pool.json would hide the loss.
func (p *Pool) checkEmpty(cfg pool.Config) error {
	known := map[string]bool{
		pool.LockFile: true, string(pool.Volumes): true, string(pool.Snapshots): true, metaFile + newExt: true, "probe" + newExt: true, "lost+found": true,
		metaFile: true, // another program may make the pool at this moment
	}
	found, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("read pool %s: %w", p.dir, pool.KindOf(err))
	}
	for _, e := range found {
		if !known[e.Name()] {
			return fmt.Errorf("%s is not a pool and not empty (it holds %q); mount an empty filesystem there: %w", p.dir, e.Name(), fault.PoolUnusable)
		}
	}
	held := 0
	for _, f := range []pool.Folder{pool.Volumes, pool.Snapshots} {
		files, err := os.ReadDir(p.path(string(f)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read pool %s: %w", p.dir, pool.KindOf(err))
		}
		held += len(files)
	}
	if held > 0 {
		return fmt.Errorf(`pool %s has lost its %s but holds %d files of volumes and snapshots; put the file back, or if this really is the pool of node %[4]s, write {"format":1,"node":%[4]q,"name":%[5]q,"id":%[6]q,"created":%[7]q} into it: %[8]w`,
			p.dir, metaFile, held, cfg.Node, cfg.OwnName(), pool.NewID(), time.Now().UTC().Format(time.RFC3339), fault.PoolUnusable)
	}
	return nil
}

// enter acquires the lock and checks that the folder still holds the pool that was opened. Without this
// check the empty mount point of an unmounted disk would look like a pool without volumes.
func (p *Pool) enter(ctx context.Context) (unlock func(), err error) {
	// Without this check the open of the lock file would create it in the empty mount point.
	if _, err := os.Lstat(p.path(metaFile)); err != nil {
		return nil, fmt.Errorf("pool %s is gone; is its disk mounted? %w: %w", p.dir, fault.PoolUnusable, err)
	}
	unlock, err = p.lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.checkIdentity(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// Exclusively runs f under the pool's lock, which excludes changes by this and other processes.
func (p *Pool) Exclusively(ctx context.Context, f func() error) error {
	unlock, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// Examine returns the error with which a pool would be refused, as far as reading shows it. It changes nothing.
func Examine(ctx context.Context, cfg pool.Config) error {
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
	cfg.Name, cfg.MustExist = cfg.OwnName(), true
	if err := p.load(cfg); err != nil {
		return err
	}
	return p.Check(ctx)
}
