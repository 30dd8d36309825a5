package pool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The names and tags of LVM. A tag may have letters, digits and _+.-/=!:&# and at most 1024 characters.
const (
	thinPrefix     = "lvm:"
	volumeLV       = "cloudblock-"
	snapshotLV     = volumeLV + snapshotPrefix
	nodeTag        = "cloudblock-node="
	creatingTag    = "cloudblock-creating"
	recordTag      = "cloudblock-record." // then two digits of the part's number, a dot and the part
	recordPart     = 900
	maxThinRecord  = 32 << 10
	defaultLockDir = "/run/cloudblock-csi"
)

// ThinPool keeps volumes as thin volumes in a thin pool of LVM.
//
//	thin pool                 tag cloudblock-node=NODE: which node the pool belongs to
//	cloudblock-<32 hex>       a volume
//	cloudblock-snap-<32 hex>  a snapshot
//	their tags                cloudblock-record.NN.PART: the record of the file pool, in base64
//	                          cloudblock-creating: the create has not been completed
//
// LVM makes a logical volume with its tags in one change of its metadata and removes it in one, so there is no
// volume without a record. The size is that of the logical volume. A volume is in use as long as it is active: the node
// program activates it at its first stage, and LVM itself never does, because the volume has the flag for that.
//
// All logical volumes of the thin pool, also foreign ones, count with their full size, and together they are never
// larger than the pool: each can be written in full. So discards are allowed.
type ThinPool struct {
	objects
	changeLock

	dir         string
	group, thin string
	uuid        string // what the kernel has as the pool's; see IsDevice
	lvm         func(args ...string) ([]byte, error)
	others      func() []Storage
	observing   chan struct{} // has a place for one observe
}

// thinState is what a thin pool and its volumes are at one moment.
type thinState struct {
	pool     logicalVolume
	metadata int64
	volumes  []logicalVolume // all in the pool
}

var thinPlace = regexp.MustCompile(`^([a-zA-Z0-9_+][a-zA-Z0-9_+.-]*)/([a-zA-Z0-9_+][a-zA-Z0-9_+.-]*)$`)

// openThin opens the thin pool VG/POOL. It changes nothing but a tag that says which node the pool belongs
// to. fault.NotFound if the pool is absent, see Set; fault.PoolUnusable if it is missing or not usable.
func openThin(ctx context.Context, cfg Config, place string, others func() []Storage) (*ThinPool, error) {
	p, err := newThinPool(cfg, place)
	if err != nil {
		return nil, err
	}
	p.others, p.dir = others, filepath.Join(cmp.Or(cfg.LockDir, defaultLockDir), place)
	if err := os.MkdirAll(p.dir, folderPerm); err != nil {
		return nil, fmt.Errorf("make the folder for the lock of pool %s: %w", p.location, kindOf(err))
	}
	p.changeLock = newChangeLock(filepath.Join(p.dir, lockFile))
	return locked(ctx, p, func() (*ThinPool, error) { return p, p.load(cfg) })
}

// newThinPool checks a Config.
func newThinPool(cfg Config, place string) (*ThinPool, error) {
	names := thinPlace.FindStringSubmatch(place)
	if names == nil {
		return nil, fmt.Errorf("pool %q is not %sVG/THINPOOL: %w", cfg.Dir, thinPrefix, fault.InvalidArgument)
	}
	if err := cfg.checkNode(); err != nil {
		return nil, err
	}
	p := &ThinPool{group: names[1], thin: names[2], lvm: cfg.LVM, observing: make(chan struct{}, 1)}
	p.objects = objects{label: cfg.Name, location: cfg.Dir, of: p}
	if p.lvm == nil {
		p.lvm = runLVM
	}
	return p, nil
}

// load identifies the pool.
func (p *ThinPool) load(cfg Config) error {
	known, err := readIDFile(cfg.IDFile)
	if err != nil {
		return err
	}
	s, err := p.read()
	if errors.Is(err, errNoThinPool) && cfg.Name != "" && known.ID == "" && !cfg.MustExist {
		return fmt.Errorf("node %s has no pool %s: %w", cfg.Node, cfg.Name, fault.NotFound)
	}
	if err != nil {
		return err
	}
	if p.node, err = p.owner(s, cfg); err != nil {
		return err
	}
	if cfg.Node != "" && p.node != cfg.Node {
		return p.foreign(p.node, cfg.Node)
	}
	p.uuid = s.pool.uuid()
	sum := sha256.Sum256([]byte(p.uuid))
	return checkIDFile(disk{}, cfg.IDFile, known, idFile{ID: hex.EncodeToString(sum[:idLen/2]), Dir: p.location})
}

// owner returns the node that the pool belongs to. A pool without a tag gets the tag of this node.
func (p *ThinPool) owner(s thinState, cfg Config) (string, error) {
	if node, err := taggedNode(s.pool); node != "" || err != nil {
		return node, err
	}
	if cfg.MustExist {
		return "", fmt.Errorf("%s is not a pool of volumes: %w", p.location, fault.PoolUnusable)
	}
	_, err := p.lvm("lvchange", "--addtag", nodeTag+cfg.Node, p.group+"/"+p.thin)
	return cfg.Node, err
}

// taggedNode returns the node of a thin pool's tag, or nothing.
func taggedNode(pool logicalVolume) (string, error) {
	for _, tag := range pool.tags() {
		if node, found := strings.CutPrefix(tag, nodeTag); found {
			return node, CheckNode(node)
		}
	}
	return "", nil
}

func (p *ThinPool) foreign(node, ours string) error {
	return fmt.Errorf("pool %s belongs to node %q, this is node %q: %w", p.location, node, ours, fault.PoolUnusable)
}

// errNoThinPool: LVM finds no such thin pool.
var errNoThinPool = errors.New("there is no such thin pool; is its disk there?")

// read reads the state of the pool. fault.PoolUnusable if it is not the one that was opened, or cannot keep the
// reservations of its volumes.
func (p *ThinPool) read() (thinState, error) {
	var s thinState
	all, err := logicalVolumes(p.lvm, p.group)
	for _, v := range all {
		switch {
		case v.GroupID != all[0].GroupID:
			err = fmt.Errorf("there are several volume groups with this name: %w", fault.PoolUnusable)
		case v.Name == p.thin && v.Type == "thin-pool":
			s.pool = v
		case v.Pool == p.thin:
			s.volumes = append(s.volumes, v)
		}
	}
	if err == nil {
		s.metadata, err = p.usable(s.pool)
	}
	if err != nil {
		return s, fmt.Errorf("pool %s: %w", p.location, err)
	}
	return s, nil
}

// usable refuses a thin pool that cannot keep the reservations of its volumes, and returns the size of its metadata.
func (p *ThinPool) usable(pool logicalVolume) (metadata int64, err error) {
	switch {
	case pool.Name == "":
		err = errNoThinPool
	case p.uuid != "" && pool.uuid() != p.uuid:
		err = errors.New("it is not the one that was opened; start the program again when the right disk is there")
	case pool.Missing > 0:
		err = fmt.Errorf("its volume group lacks %d disks", pool.Missing)
	case pool.Zero != "zero":
		err = fmt.Errorf("it does not zero new blocks, so volumes would show what deleted ones had; switch that on with `lvchange -Zy %s/%s`", p.group, p.thin)
	case pool.Extent < 1 || pool.Chunk < 1:
		err = fmt.Errorf("it has extents of %d and chunks of %d bytes", pool.Extent, pool.Chunk)
	default:
		metadata, err = strconv.ParseInt(pool.Metadata, 10, 64)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", fault.PoolUnusable, err)
	}
	return metadata, err
}

// locked runs f under the pool's lock. When the context ends, f goes on and keeps the lock: a command of LVM is
// never interrupted. Then the error is fault.Uncertain.
func locked[T any](ctx context.Context, p *ThinPool, f func() (T, error)) (T, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return finish(ctx, p, unlock, f)
}

// observe reads the state without the lock. Where a disk that LVM reads hangs, one lvs hangs with it, however many calls ask,
// and none of them waits for longer than its context.
func (p *ThinPool) observe(ctx context.Context) (thinState, error) {
	select {
	case p.observing <- struct{}{}:
		return finish(ctx, p, func() { <-p.observing }, p.read)
	case <-ctx.Done():
		return thinState{}, p.unfinished(ctx)
	}
}

// finish runs f, and release after it, to their end, and waits for that as long as ctx lasts.
func finish[T any](ctx context.Context, p *ThinPool, release func(), f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		release()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, p.unfinished(ctx)
	}
}

func (p *ThinPool) unfinished(ctx context.Context) error {
	return fmt.Errorf("pool %s: a command of LVM is still running: %w: %w", p.location, fault.Uncertain, ctx.Err())
}

// within is locked with the state of the pool, after recover.
func within[T any](ctx context.Context, p *ThinPool, f func(s thinState) (T, error)) (T, error) {
	return locked(ctx, p, func() (T, error) {
		s, err := p.read()
		if err != nil {
			var none T
			return none, err
		}
		p.recover(&s)
		return f(s)
	})
}

// Close waits for running commands of LVM, which have the lock.
func (p *ThinPool) Close(ctx context.Context) error {
	unlock, err := p.lock(ctx)
	if err == nil {
		unlock()
	}
	return err
}

// Dir returns the folder with the pool's lock, which has nothing that outlives a reboot.
func (p *ThinPool) Dir() string { return p.dir }

// SnapshotsBy returns "thin": snapshots and clones share chunks with their source.
func (p *ThinPool) SnapshotsBy() string { return "thin" }

// FileName returns the name of a volume's logical volume.
func (p *ThinPool) FileName(id ID) string { return lvName(volumeRef(id)) }

// Check checks that the pool is there and healthy. It does not wait for the lock.
func (p *ThinPool) Check(ctx context.Context) error {
	s, err := p.observe(ctx)
	if err == nil && s.pool.Health != "" {
		err = fmt.Errorf("pool %s: the thin pool is %q, see lvs: %w", p.location, s.pool.Health, fault.PoolUnusable)
	}
	return err
}

func (p *ThinPool) checkIdentity(ctx context.Context) error {
	_, err := p.observe(ctx)
	return err
}

// lvName returns the name of the logical volume of an object.
func lvName(ref objectRef) string {
	if ref.isSnapshot() {
		return snapshotLV + string(ref.id)
	}
	return volumeLV + string(ref.id)
}

// parseLV returns the object that has a logical volume of this name.
func parseLV(name string) (objectRef, bool) {
	for _, kind := range []struct {
		prefix string
		folder folder
	}{{snapshotLV, snapshots}, {volumeLV, volumes}} {
		if digits, found := strings.CutPrefix(name, kind.prefix); found {
			if id, err := ParseID(digits); err == nil {
				return objectRef{kind.folder, id}, true
			}
		}
	}
	return objectRef{}, false
}

// recordTags returns a record as tags.
func recordTags(r Record) ([]string, error) {
	data, err := r.encode()
	if err == nil && len(data) > maxThinRecord {
		err = fmt.Errorf("the record of %.200q with its tags has %d bytes, in LVM the maximum is %d: %w", r.Name, len(data), maxThinRecord, fault.InvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	var tags []string
	for part := range slices.Chunk([]byte(base64.RawURLEncoding.EncodeToString(data)), recordPart) {
		tags = append(tags, fmt.Sprintf("%s%02d.%s", recordTag, len(tags), part))
	}
	return tags, nil
}

// errNoRecord: a logical volume has no tags with a record.
var errNoRecord = errors.New("its tags with the record are missing")

// recordOf reads the record from the tags of a logical volume, with the size of that.
func recordOf(ref objectRef, v logicalVolume) (Record, error) {
	var text strings.Builder
	for _, tag := range slices.Sorted(slices.Values(v.tags())) {
		if rest, found := strings.CutPrefix(tag, recordTag); found {
			_, part, _ := strings.Cut(rest, ".")
			text.WriteString(part)
		}
	}
	if text.Len() == 0 {
		return Record{}, errNoRecord
	}
	data, err := base64.RawURLEncoding.DecodeString(text.String())
	if err != nil {
		return Record{}, err
	}
	r, err := decodeRecord(ref, data)
	if err == nil {
		r.Size = v.Size
	}
	return r, err
}
