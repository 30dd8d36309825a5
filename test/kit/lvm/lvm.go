// Package lvm stands for LVM in tests: volume groups with linear volumes, in memory, whose extents remember whether they read as
// zeros. It takes the command lines that package pool sends, and refuses others.
package lvm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// ErrKilled is what a command returns after Kill.
var ErrKilled = errors.New("killed")

// Host is a machine with volume groups. Its methods may be called by several goroutines.
type Host struct {
	mu     sync.Mutex
	groups []*Group
	number int // of the newest UUID
	left   int // changes until the kill; -1: none is planned
	effect bool
	killed bool
	// Hook, if set, is called before each command, with its words.
	Hook func(args []string)
}

// Group is a volume group. Its fields may be changed while no command runs.
type Group struct {
	Name, UUID   string
	Tags         []string
	Extent       int64
	Dirty        []bool // one for each extent: it has bytes of somebody
	Missing      int
	Drained      int // so many of the first extents are on a disk of their own, which is not allocatable
	FreeMetadata int64
	Volumes      []*Volume
}

// Volume is a linear logical volume.
type Volume struct {
	Name, UUID              string
	Tags                    []string
	Extents                 []int
	Active, Open, Suspended bool
	Health                  string
	// Role is what LVM calls it; "": public, as one on which nothing depends.
	Role string
	// Live are the extents that its device shows, Loaded those of a table that a command has loaded and not made live.
	Live, Loaded []int
}

// New returns a machine with the volume group vg, all of whose extents have bytes of somebody.
func New(size int64) *Host {
	h := &Host{left: -1}
	h.Add("vg", size)
	return h
}

// Config is that of a pool on the volume group vg of the machine, which has a devices file.
func (h *Host) Config(t testing.TB) pool.Config {
	t.Helper()
	cfg := pool.Config{Dir: "lvm:vg", Node: "n1", LockDir: t.TempDir(), LVMDir: t.TempDir(), LVM: h}
	devices := filepath.Join(cfg.LVMDir, "devices")
	expect.NoError(t, errors.Join(os.Mkdir(devices, 0o755), os.WriteFile(filepath.Join(devices, "cloudblock-vg"), nil, 0o644)))
	return cfg
}

// Add adds an empty volume group.
func (h *Host) Add(name string, size int64) *Group {
	g := &Group{Name: name, UUID: h.uuid(), Extent: 4 << 20, FreeMetadata: 1 << 20}
	for range size / g.Extent {
		g.Dirty = append(g.Dirty, true)
	}
	h.groups = append(h.groups, g)
	return g
}

// Groups returns the volume groups, and Set replaces them.
func (h *Host) Groups() []*Group { return h.groups }

// Set replaces the volume groups, as another disk does.
func (h *Host) Set(groups ...*Group) { h.groups = groups }

// Volume returns a logical volume of the first group, or nil.
func (h *Host) Volume(name string) *Volume {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groups[0].find(name)
}

// Shows reports whether the device of a volume shows what its extents had before.
func (h *Host) Shows(v *Volume) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	extents := v.Extents
	if v.Active {
		extents = v.Live
	}
	return slices.ContainsFunc(extents, func(e int) bool { return h.groups[0].Dirty[e] })
}

// Write makes all of a volume somebody's bytes.
func (h *Host) Write(v *Volume) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range v.Extents {
		h.groups[0].Dirty[e] = true
	}
}

// Kill makes the n-th change from now fail, with or without its effect, and all commands after it.
func (h *Host) Kill(n int, effect bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left, h.effect = n, effect
}

// Restart ends the effect of Kill and reports whether it came to it. What the killed process had open is closed.
func (h *Host) Restart() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.killed
	h.left, h.killed = -1, false
	for _, g := range h.groups {
		for _, v := range g.Volumes {
			v.Open = v.Open && !was
		}
	}
	return was
}

func (h *Host) uuid() string {
	h.number++
	s := fmt.Sprintf("%032d", h.number)
	return strings.Join([]string{s[:6], s[6:10], s[10:14], s[14:18], s[18:22], s[22:26], s[26:]}, "-")
}

// Run runs a command.
func (h *Host) Run(args ...string) ([]byte, error) {
	if h.Hook != nil {
		h.Hook(args)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.killed {
		return nil, ErrKilled
	}
	c, err := parse(args)
	if err == nil && c.options["--devicesfile"] == "" {
		err = errors.New("the command reads all disks of the machine")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	switch c.verb {
	case "vgs":
		return h.reportGroups(c)
	case "lvs":
		return h.reportVolumes(c)
	}
	before, after := h.next()
	if before || after {
		h.half(c, after)
		return nil, ErrKilled
	}
	if err := h.change(c); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil, nil
}

// half is a command that is killed before or after it has committed its change. Where a device gets another table, LVM loads that
// and suspends the device before the commit, and makes the table live after it.
func (h *Host) half(c command, committed bool) {
	var v *Volume
	if c.verb == "lvextend" {
		_, v, _ = h.find(c.targets[0])
	}
	if v == nil || !v.Active {
		if committed {
			_ = h.change(c)
		}
		return
	}
	extents, live := v.Extents, v.Live
	if h.change(c) == nil {
		v.Loaded, v.Live, v.Suspended = v.Extents, live, true
	}
	if !committed {
		v.Extents = extents
	}
}

// Clear drops the table that was loaded for a device and not made live.
func (h *Host) Clear(device string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.groups {
		for _, v := range g.Volumes {
			if device == strings.ReplaceAll(g.Name, "-", "--")+"-"+strings.ReplaceAll(v.Name, "-", "--") && !h.killed {
				v.Loaded = nil
				return nil
			}
		}
	}
	return fmt.Errorf("device %s does not exist", device)
}

// next counts a change, and reports whether the kill comes before or after it.
func (h *Host) next() (before, after bool) {
	if h.left > 0 {
		h.left--
		h.killed = h.left == 0
	}
	return h.killed && !h.effect, h.killed && h.effect
}

// Device is an open device.
type Device = interface {
	io.Closer
	Zero(from, length int64) error
}

type device struct {
	host   *Host
	group  *Group
	volume *Volume
}

// Open opens the device /dev/VG/LV exclusively.
func (h *Host) Open(path, uuid string) (Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, v, err := h.find(strings.TrimPrefix(path, "/dev/"))
	switch {
	case err != nil:
		return nil, err
	case h.killed:
		return nil, ErrKilled
	case !v.Active || v.Open || v.Suspended:
		return nil, fmt.Errorf("open %s: active %t, open %t, suspended %t", path, v.Active, v.Open, v.Suspended)
	case uuid != "LVM-"+strings.ReplaceAll(g.UUID+v.UUID, "-", ""):
		return nil, fmt.Errorf("open %s: it is not %s", path, uuid)
	}
	v.Open = true
	return &device{h, g, v}, nil
}

// Zero is one change. What is not a whole extent is left as it is.
func (d *device) Zero(from, length int64) error {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.killed {
		return ErrKilled
	}
	before, after := d.host.next()
	if before {
		return ErrKilled
	}
	for e := (from + d.group.Extent - 1) / d.group.Extent; (e+1)*d.group.Extent <= from+length; e++ {
		d.group.Dirty[d.volume.Live[e]] = false
	}
	if after {
		return ErrKilled
	}
	return nil
}

func (d *device) Close() error {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.killed {
		return ErrKilled
	}
	d.volume.Open = false
	return nil
}

// free are the extents of no volume that a volume may get.
func (g *Group) free() []int { return g.unused(g.Drained, len(g.Dirty)) }

// unused are the extents of no volume from one to another.
func (g *Group) unused(from, to int) []int {
	used := map[int]bool{}
	for _, v := range g.Volumes {
		for _, e := range v.Extents {
			used[e] = true
		}
	}
	var unused []int
	for e := from; e < to; e++ {
		if !used[e] {
			unused = append(unused, e)
		}
	}
	return unused
}

func (h *Host) group(name string) (*Group, error) {
	i := slices.IndexFunc(h.groups, func(g *Group) bool { return g.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("volume group %q not found", name)
	}
	return h.groups[i], nil
}

func (h *Host) find(target string) (*Group, *Volume, error) {
	group, name, _ := strings.Cut(target, "/")
	g, err := h.group(group)
	if err == nil && g.find(name) == nil {
		err = fmt.Errorf("failed to find logical volume %q", target)
	}
	if err != nil {
		return nil, nil, err
	}
	return g, g.find(name), nil
}

func (g *Group) find(name string) *Volume {
	i := slices.IndexFunc(g.Volumes, func(v *Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return g.Volumes[i]
}
