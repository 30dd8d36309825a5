package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The names and tags of LVM. A tag may have letters, digits and _+.-/=!:&# and at most 1024 characters.
const (
	groupPrefix    = "lvm:"
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

// GroupPool keeps volumes as linear logical volumes in a volume group of LVM. Volumes share nothing but the group's metadata,
// which LVM replaces atomically.
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
// The size is that of the logical volume. A volume is in use as long as it is active: the node program activates it at its
// first stage, and LVM itself never does, because the volume has the flag for that.
//
// Every command is limited to the disks of a devices file that belongs to the pool, which an operator makes. What others write
// on other disks of the node, with whatever name and identity, is never read.
type GroupPool struct {
	objects
	changeLock

	dir, group string
	devices    string // the devices file's name
	devicesDir string
	uuid       string // of the group, without hyphens
	lvm        LVM
	observing  chan struct{} // has a place for one observe

	progress func(Progress)
	// Close ends the zeroing of this process, which are jobs.
	zeroing     context.Context
	stopZeroing context.CancelFunc
	jobs        sync.WaitGroup
}

// groupState is what a volume group holds at one moment.
type groupState struct {
	volumeGroup
	volumes []logicalVolume
}

var groupPlace = regexp.MustCompile(`^[a-zA-Z0-9_+][a-zA-Z0-9_+.-]*$`)

// openGroup opens the pool VG. It changes nothing but the tags that say which node the pool belongs to and what its name is.
// fault.PoolUnusable if it is missing or not usable, which without a devices file is ErrNotHere too.
func openGroup(ctx context.Context, cfg Config, place string) (*GroupPool, error) {
	p, err := newGroupPool(cfg, place)
	if err != nil {
		return nil, err
	}
	p.dir = filepath.Join(cmp.Or(cfg.LockDir, defaultLockDir), place)
	if err := os.MkdirAll(p.dir, folderPerm); err != nil {
		return nil, fmt.Errorf("make the folder for the lock of pool %s: %w", p.location, kindOf(err))
	}
	p.changeLock = newChangeLock(filepath.Join(p.dir, lockFile))
	return locked(ctx, p, func() (*GroupPool, error) { return p, p.load(cfg) })
}

// newGroupPool checks a Config.
func newGroupPool(cfg Config, place string) (*GroupPool, error) {
	if !groupPlace.MatchString(place) {
		return nil, fmt.Errorf("pool %q is not %sVG: %w", cfg.Dir, groupPrefix, fault.InvalidArgument)
	}
	if err := cfg.checkNode(); err != nil {
		return nil, err
	}
	p := &GroupPool{
		group: place, devices: volumeLV + place, devicesDir: filepath.Join(cmp.Or(cfg.LVMDir, defaultLVMDir), "devices"),
		lvm: cfg.LVM, observing: make(chan struct{}, 1), progress: cfg.Progress,
	}
	p.objects = objects{label: cfg.Name, location: cfg.Dir, of: p}
	if p.lvm == nil {
		p.lvm = nodeLVM{}
	}
	p.zeroing, p.stopZeroing = context.WithCancel(context.Background())
	return p, nil
}

// load identifies the pool.
func (p *GroupPool) load(cfg Config) error {
	if err := p.checkDevices(); err != nil {
		return err
	}
	s, err := p.read()
	if err != nil {
		return err
	}
	if p.node, p.label = s.tag(nodeTag), s.tag(poolTag); p.node == "" {
		if cfg.MustExist {
			return fmt.Errorf("%s is not a pool of volumes: %w", p.location, fault.PoolUnusable)
		}
		p.node, p.label = cfg.Node, cfg.name()
		if err := p.change("vgchange", "--addtag", nodeTag+p.node, "--addtag", poolTag+p.label, p.group); err != nil {
			return err
		}
	}
	if err := p.checkOwner(p.node, p.label, cfg); err != nil {
		return err
	}
	p.uuid = plain(s.ID)
	return nil
}

// plain is a UUID of LVM as the kernel has it.
func plain(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }

// checkDevices refuses a pool without a devices file: without one LVM would read every disk of the node, also those that pods
// write to.
func (p *GroupPool) checkDevices() error {
	file := filepath.Join(p.devicesDir, p.devices)
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pool %s: it has no devices file, %s; make it on the node with `lvm lvmdevices --devicesfile %s --adddev DISK` for each disk of %s: %w: %w",
			p.location, file, p.devices, p.group, fault.PoolUnusable, ErrNotHere)
	}
	if err != nil {
		return fmt.Errorf("pool %s: read its devices file: %w", p.location, kindOf(err))
	}
	return nil
}

// run runs a command on the pool's disks.
func (p *GroupPool) run(verb string, args ...string) ([]byte, error) {
	return p.lvm.Run(append([]string{verb, "--devicesfile", p.devices}, args...)...)
}

func (p *GroupPool) change(verb string, args ...string) error {
	_, err := p.run(verb, args...)
	return err
}

// target is a logical volume as commands name it.
func (p *GroupPool) target(name string) string { return p.group + "/" + name }

// tag returns what follows this in a tag of the group, or nothing.
func (s groupState) tag(prefix string) string {
	for tag := range strings.SplitSeq(s.Tags, ",") {
		if value, found := strings.CutPrefix(tag, prefix); found {
			return value
		}
	}
	return ""
}

// checkOwner refuses a pool of another node or with another name.
func (p *GroupPool) checkOwner(node, name string, cfg Config) error {
	err := errors.Join(CheckNode(node), CheckName(name))
	switch {
	case err != nil:
		err = fmt.Errorf("its tags: %w: %w", fault.PoolUnusable, err)
	case cfg.Node != "" && node != cfg.Node:
		err = fmt.Errorf("it belongs to node %q, this is node %q: %w", node, cfg.Node, fault.PoolUnusable)
	default:
		err = cfg.checkName(name)
	}
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.location, err)
	}
	return nil
}

// read reads the state of the pool. fault.PoolUnusable if it is not the one that was opened.
func (p *GroupPool) read() (groupState, error) {
	fail := func(err error) (groupState, error) { return groupState{}, fmt.Errorf("pool %s: %w", p.location, err) }
	groups, err := report[volumeGroup](p, "vg", "vgs", "-o", groupFields, "-S", `vg_name="`+p.group+`"`)
	switch {
	case err != nil:
		return fail(err)
	case len(groups) == 0:
		return fail(fmt.Errorf("there is no such volume group on the disks of its devices file; are they there? %w", fault.PoolUnusable))
	case len(groups) > 1:
		return fail(fmt.Errorf("there are several volume groups with this name: %w", fault.PoolUnusable))
	case p.uuid != "" && plain(groups[0].ID) != p.uuid:
		return fail(fmt.Errorf("it is not the one that was opened; start the program again when the right disk is there: %w", fault.PoolUnusable))
	case groups[0].Extent < 1 || groups[0].Extent%SizeStep != 0 && SizeStep%groups[0].Extent != 0:
		return fail(fmt.Errorf("it has extents of %d bytes; make it with extents of whole MiB (vgcreate -s 4m): %w", groups[0].Extent, fault.PoolUnusable))
	}
	s := groupState{volumeGroup: groups[0]}
	s.volumes, err = report[logicalVolume](p, "lv", "lvs", "-o", volumeFields, "-S", `vg_uuid="`+s.ID+`"`)
	if err != nil {
		return fail(err)
	}
	return s, nil
}

// locked runs f under the pool's lock. When the context ends, f goes on and keeps the lock: a command of LVM is
// never interrupted. Then the error is fault.Uncertain.
func locked[T any](ctx context.Context, p *GroupPool, f func() (T, error)) (T, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return finish(ctx, p, unlock, f)
}

// observe reads the state without the lock. Where a disk that LVM reads hangs, one vgs hangs with it, however many calls ask,
// and none of them waits for longer than its context.
func (p *GroupPool) observe(ctx context.Context) (groupState, error) {
	select {
	case p.observing <- struct{}{}:
		return finish(ctx, p, func() { <-p.observing }, p.read)
	case <-ctx.Done():
		return groupState{}, p.unfinished(ctx)
	}
}

// finish runs f, and release after it, to their end, and waits for that as long as ctx lasts.
func finish[T any](ctx context.Context, p *GroupPool, release func(), f func() (T, error)) (T, error) {
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

func (p *GroupPool) unfinished(ctx context.Context) error {
	return fmt.Errorf("pool %s: a command of LVM is still running: %w: %w", p.location, fault.Uncertain, ctx.Err())
}

// within is locked with the state of the pool, in which no device is left as a command that was killed has left it.
func within[T any](ctx context.Context, p *GroupPool, f func(s groupState) (T, error)) (T, error) {
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

// mend ends what killed commands have left half done with devices. LVM loads a device's new table and suspends it, commits the
// group's metadata, and makes the table live. A device that stays suspended lets everything that reads or writes it wait for
// ever. A table that stays loaded may be of a growth that was never committed, with extents that another volume gets, and
// LVM's own refresh would make it live: it is dropped, and then the device gets what the metadata say. The caller holds the
// pool's lock, and LVM's own lock makes lvs wait for the command of an operator.
func (p *GroupPool) mend(s groupState) {
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

// Close ends the zeroing of this process, and waits for it and for running commands of LVM, which have the lock. Another
// call continues what is not zeroed.
func (p *GroupPool) Close(ctx context.Context) error {
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
	unlock, err := p.lock(ctx)
	if err == nil {
		unlock()
	}
	return err
}

// Dir returns the folder with the pool's lock, which has nothing that outlives a reboot.
func (p *GroupPool) Dir() string { return p.dir }

// SnapshotsBy returns NoSnapshots.
func (p *GroupPool) SnapshotsBy() string { return NoSnapshots }

// FileName returns the name of a volume's logical volume.
func (p *GroupPool) FileName(id ID) string { return lvName(id) }

// Check checks that the pool is there with all its disks. It does not wait for the lock.
func (p *GroupPool) Check(ctx context.Context) error {
	s, err := p.observe(ctx)
	if err == nil && s.MissingDisks > 0 {
		err = fmt.Errorf("pool %s lacks %d disks: volumes on the others can be used, but nothing is created, grown or deleted until they are back: %w",
			p.location, s.MissingDisks, fault.PoolUnusable)
	}
	return err
}

// lvName returns the name of a volume's logical volume, growthName that of the space by which it grows.
func lvName(id ID) string     { return volumeLV + string(id) }
func growthName(id ID) string { return growthLV + string(id) }

// parseLV returns the volume that has or is extended by a logical volume of this name.
func parseLV(name string) (ID, bool) {
	digits, found := strings.CutPrefix(name, growthLV)
	if !found {
		digits, found = strings.CutPrefix(name, volumeLV)
	}
	id, err := ParseID(digits)
	return id, found && err == nil
}
