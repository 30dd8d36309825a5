// Package lvm keeps the volumes of one node as linear logical volumes in a volume group of LVM. Volumes share nothing but the
// group's metadata, which LVM replaces atomically.
//
//	volume group                tags cloudblock-node=NODE and cloudblock-pool=NAME: which node the pool belongs to, and its name
//	cloudblock-<32 hex>         a volume
//	cloudblock-growth-<32 hex>  the space by which that volume grows, until it reads as zeros
//	their tags                  cloudblock-name=NAME, cloudblock-created=SECONDS and cloudblock-tag=NAME:VALUE: the record
//	                            cloudblock-creating: it does not read as zeros yet, and its id was not returned
//	                            cloudblock-zeroed=BYTES: how much of it does
//	                            cloudblock-blank=BYTES: nothing was written to it since, and it has not grown
//
// LVM makes a logical volume with its tags in one change and removes it in one, so there is no volume without a name.
// The size is that of the logical volume. A volume is in use as long as it is active: the node program activates it at the first
// stage, and LVM never does by itself, because the volume has the flag to skip that.
//
// An operator makes a devices file for the pool, and every command is limited to its disks. LVM never reads other disks of the node,
// on which pods may have written any name and identity.
package lvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// The names and tags of LVM. A tag may have letters, digits and _+.-/=!:&# and at most 1024 characters.
const (
	volumeLV       = "cloudblock-"
	growthLV       = volumeLV + "growth-"
	nodeTag        = "cloudblock-node="
	poolTag        = "cloudblock-pool="
	creatingTag    = "cloudblock-creating"
	zeroedTag      = "cloudblock-zeroed=" // then a number of bytes
	blankTag       = "cloudblock-blank="  // then its number of bytes
	nameTag        = "cloudblock-name="
	createdTag     = "cloudblock-created=" // then seconds since 1970
	pairTag        = "cloudblock-tag="     // then a name, a colon and a value
	maxTag         = 1024
	maxGroupRecord = 32 << 10
	defaultLockDir = "/run/cloudblock-csi"
	defaultLVMDir  = "/etc/lvm"
)

// Pool is an open pool.
type Pool struct {
	pool.Objects
	lock pool.Lock

	dir, group string
	devices    string // the devices file's name
	devicesDir string
	uuid       string // of the group, without hyphens
	lvm        pool.LVM
	observing  chan struct{} // has a place for one observe

	progress func(pool.Progress)
	// jobs are the zeroing goroutines of this process. Close stops them.
	zeroing     context.Context
	stopZeroing context.CancelFunc
	jobs        sync.WaitGroup
}

// groupState is one reading of a volume group.
type groupState struct {
	volumeGroup
	freeExtents int64
	volumes     []logicalVolume
}

var groupPlace = regexp.MustCompile(`^[a-zA-Z0-9_+][a-zA-Z0-9_+.-]*$`)

// Open opens the pool of a volume group. It changes nothing but the tags with the pool's node and name. fault.PoolUnusable if the
// group is missing or not usable; without a devices file the error is ErrNotHere too.
func Open(ctx context.Context, cfg pool.Config) (*Pool, error) {
	p, err := newPool(cfg)
	if err != nil {
		return nil, err
	}
	p.dir = filepath.Join(cmp.Or(cfg.LockDir, defaultLockDir), p.group)
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for the lock of pool %s: %w", p.Location(), pool.KindOf(err))
	}
	p.lock = pool.NewLock(p.dir)
	return locked(ctx, p, func() (*Pool, error) { return p, p.load(cfg) })
}

// newPool checks a Config.
func newPool(cfg pool.Config) (*Pool, error) {
	group, _ := cfg.Group()
	if !groupPlace.MatchString(group) {
		return nil, fmt.Errorf("pool %q is not lvm:VG: %w", cfg.Dir, fault.InvalidArgument)
	}
	if err := cfg.CheckNode(); err != nil {
		return nil, err
	}
	p := &Pool{
		group: group, devices: volumeLV + group, devicesDir: filepath.Join(cmp.Or(cfg.LVMDir, defaultLVMDir), "devices"),
		lvm: cfg.LVM, observing: make(chan struct{}, 1), progress: cfg.Progress,
	}
	p.Objects = pool.NewObjects(cfg, cfg.Dir, pool.Calls{List: p.list, Get: p.get, Delete: p.delete, Usage: p.Usage})
	if p.lvm == nil {
		p.lvm = nodeLVM{}
	}
	p.zeroing, p.stopZeroing = context.WithCancel(context.Background())
	return p, nil
}

// load reads the pool's node and name, and stores them in a new pool.
func (p *Pool) load(cfg pool.Config) error {
	if err := p.checkDevices(); err != nil {
		return err
	}
	s, err := p.read()
	if err != nil {
		return err
	}
	node, name := s.tag(nodeTag), s.tag(poolTag)
	if node == "" {
		if cfg.MustExist {
			return fmt.Errorf("%s is not a pool of volumes: %w", p.Location(), fault.PoolUnusable)
		}
		if err := p.checkNew(s, cfg); err != nil {
			return err
		}
		node, name = cfg.Node, cfg.OwnName()
		if err := p.change("vgchange", "--addtag", nodeTag+node, "--addtag", poolTag+name, p.group); err != nil {
			return err
		}
	}
	if err := p.checkOwner(node, name, cfg); err != nil {
		return err
	}
	p.SetOwner(node, name)
	p.uuid = plain(s.ID)
	return nil
}

// checkNew refuses a volume group that has lost its tags: new ones would give its volumes to whatever node has its disks.
func (p *Pool) checkNew(s groupState, cfg pool.Config) error {
	held := len(s.entries())
	if held == 0 {
		return nil
	}
	return fmt.Errorf("pool %s has lost the tag with its node but holds %d volumes; if this really is the pool of node %s, run `lvm vgchange --devicesfile %s --addtag %s --addtag %s %s`: %w",
		p.Location(), held, cfg.Node, p.devices, nodeTag+cfg.Node, poolTag+cfg.OwnName(), p.group, fault.PoolUnusable)
}

// plain returns a UUID of LVM in the kernel's form.
func plain(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }

// checkDevices refuses a pool without a devices file, because LVM would then read every disk of the node, including those that pods
// write to.
func (p *Pool) checkDevices() error {
	file := filepath.Join(p.devicesDir, p.devices)
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pool %s: it has no devices file, %s; make it on the node with `lvm lvmdevices --devicesfile %s --adddev DISK` for each disk of %s: %w: %w",
			p.Location(), file, p.devices, p.group, fault.PoolUnusable, pool.ErrNotHere)
	}
	if err != nil {
		return fmt.Errorf("pool %s: read its devices file: %w", p.Location(), pool.KindOf(err))
	}
	return nil
}

// run runs a command on the pool's disks.
func (p *Pool) run(verb string, args ...string) ([]byte, error) {
	return p.lvm.Run(append([]string{verb, "--devicesfile", p.devices}, args...)...)
}

func (p *Pool) change(verb string, args ...string) error {
	_, err := p.run(verb, args...)
	return err
}

// target returns the name of a logical volume for commands.
func (p *Pool) target(name string) string { return p.group + "/" + name }

// tag returns the rest of the group's tag with this prefix, or "".
func (s groupState) tag(prefix string) string {
	for tag := range strings.SplitSeq(s.Tags, ",") {
		if value, found := strings.CutPrefix(tag, prefix); found {
			return value
		}
	}
	return ""
}

// checkOwner refuses a pool of another node or with another name.
func (p *Pool) checkOwner(node, name string, cfg pool.Config) error {
	err := errors.Join(pool.CheckNode(node), pool.CheckName(name))
	switch {
	case err != nil:
		err = fmt.Errorf("its tags: %w: %w", fault.PoolUnusable, err)
	case cfg.Node != "" && node != cfg.Node:
		err = fmt.Errorf("it belongs to node %q, this is node %q: %w", node, cfg.Node, fault.PoolUnusable)
	default:
		err = cfg.CheckOwnName(name)
	}
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.Location(), err)
	}
	return nil
}

// read reads the volume group. fault.PoolUnusable if it is not the one that was opened.
func (p *Pool) read() (groupState, error) {
	fail := func(err error) (groupState, error) { return groupState{}, fmt.Errorf("pool %s: %w", p.Location(), err) }
	disks, err := report[volumeGroup](p, "vg", "vgs", "-o", groupFields, "-S", `vg_name="`+p.group+`"`)
	switch {
	case err != nil:
		return fail(err)
	case len(disks) == 0:
		return fail(fmt.Errorf("there is no such volume group on the disks of its devices file; are they there? %w", fault.PoolUnusable))
	case slices.ContainsFunc(disks, func(d volumeGroup) bool { return d.ID != disks[0].ID }):
		return fail(fmt.Errorf("there are several volume groups with this name: %w", fault.PoolUnusable))
	case p.uuid != "" && plain(disks[0].ID) != p.uuid:
		return fail(fmt.Errorf("it is not the one that was opened; start the program again when the right disk is there: %w", fault.PoolUnusable))
	case disks[0].Extent < 1 || disks[0].Extent%pool.SizeStep != 0 && pool.SizeStep%disks[0].Extent != 0:
		return fail(fmt.Errorf("it has extents of %d bytes; make it with extents of whole MiB (vgcreate -s 4m): %w", disks[0].Extent, fault.PoolUnusable))
	}
	s := groupState{volumeGroup: disks[0], freeExtents: freeExtents(disks)}
	s.volumes, err = report[logicalVolume](p, "lv", "lvs", "-o", volumeFields, "-S", `vg_uuid="`+s.ID+`"`)
	if err != nil {
		return fail(err)
	}
	return s, nil
}

// locked runs f under the pool's lock. When the context ends it returns fault.Uncertain; f runs to its end and keeps the lock until
// then, because a command of LVM is never interrupted.
func locked[T any](ctx context.Context, p *Pool, f func() (T, error)) (T, error) {
	unlock, err := p.lock.Acquire(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return finish(ctx, p, unlock, f)
}

// observe reads the volume group without the lock. If a disk hangs, only one vgs hangs, however many calls observe, and each call waits
// no longer than its context.
func (p *Pool) observe(ctx context.Context) (groupState, error) {
	select {
	case p.observing <- struct{}{}:
		return finish(ctx, p, func() { <-p.observing }, p.read)
	case <-ctx.Done():
		return groupState{}, p.unfinished(ctx)
	}
}

// finish runs f and then release to their end, and waits for them as long as ctx lasts.
func finish[T any](ctx context.Context, p *Pool, release func(), f func() (T, error)) (T, error) {
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

func (p *Pool) unfinished(ctx context.Context) error {
	return fmt.Errorf("pool %s: a command of LVM is still running: %w: %w", p.Location(), fault.Uncertain, ctx.Err())
}

// within is locked with a reading of the volume group, after mend.
func within[T any](ctx context.Context, p *Pool, f func(s groupState) (T, error)) (T, error) {
	return locked(ctx, p, func() (T, error) {
		s, err := p.read()
		if err != nil {
			var none T
			return none, err
		}
		p.mend(s)
		return f(s)
	})
}

// mend repairs devices that killed commands have left in the middle of a change. LVM loads a device's new table and suspends the
// device, commits the group's metadata, and makes the table live. All I/O of a suspended device blocks for ever. A loaded table may
// be that of a growth that was never committed, with extents that another volume gets later, and LVM's own refresh would make it
// live. So mend drops the table and then refreshes the device from the metadata. The caller holds the pool's lock; LVM's own lock
// makes lvs wait for the command of an operator.
func (p *Pool) mend(s groupState) {
	for i := range s.volumes {
		v := &s.volumes[i]
		if _, ours := parseLV(v.Name); !ours || !v.beingChanged() {
			continue
		}
		if v.broken = p.lvm.Clear(p.kernelName(*v)); v.broken == nil {
			v.broken = p.change("lvchange", "-y", "--refresh", p.target(v.Name))
		}
	}
}

// Close stops the zeroing of this process, and waits for it and for running commands of LVM. Another process continues the zeroing.
func (p *Pool) Close(ctx context.Context) error {
	p.stopZeroing()
	ended := make(chan struct{})
	go func() {
		p.jobs.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return p.unfinished(ctx)
	}
	unlock, err := p.lock.Acquire(ctx)
	if err == nil {
		unlock()
	}
	return err
}

// Dir returns the folder with the pool's lock. A reboot may empty it.
func (p *Pool) Dir() string { return p.dir }

// SnapshotsBy returns NoSnapshots.
func (p *Pool) SnapshotsBy() string { return pool.NoSnapshots }

// FileName returns the name of a volume's logical volume.
func (p *Pool) FileName(id pool.ID) string { return VolumeName(id) }

// Check checks that the pool is there with all its disks. It does not wait for the lock.
func (p *Pool) Check(ctx context.Context) error {
	s, err := p.observe(ctx)
	if err == nil && s.MissingDisks > 0 {
		err = fmt.Errorf("pool %s lacks %d disks: volumes on the others can be used, but nothing is created, grown or deleted until they are back: %w",
			p.Location(), s.MissingDisks, fault.PoolUnusable)
	}
	return err
}

// VolumeName returns the name of a volume's logical volume.
func VolumeName(id pool.ID) string { return volumeLV + string(id) }

// growthName returns the name of the space by which a volume grows.
func growthName(id pool.ID) string { return growthLV + string(id) }

// parseLV returns the volume that has or is extended by a logical volume of this name.
func parseLV(name string) (pool.ID, bool) {
	digits, found := strings.CutPrefix(name, growthLV)
	if !found {
		digits, found = strings.CutPrefix(name, volumeLV)
	}
	id, err := pool.ParseID(digits)
	return id, found && err == nil
}

// Examine returns the error with which a pool would be refused, as far as reading shows it. It changes nothing.
func Examine(cfg pool.Config) error {
	p, err := newPool(cfg)
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
		err = p.checkOwner(node, s.tag(poolTag), cfg)
	} else {
		err = p.checkNew(s, cfg)
	}
	if err != nil {
		return err
	}
	if s.MissingDisks > 0 {
		return fmt.Errorf("pool %s lacks %d disks: %w", p.Location(), s.MissingDisks, fault.PoolUnusable)
	}
	return p.full(s)
}
