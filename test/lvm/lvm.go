// Package lvm stands for LVM in tests: volume groups with thin pools, in memory. It takes the command lines that
// package pool sends, and refuses others.
package lvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrKilled is what a command returns after Kill.
var ErrKilled = errors.New("killed")

// Host is a machine with volume groups. Its methods may be called by several goroutines.
type Host struct {
	mu     sync.Mutex
	groups []*Group
	number int // of the newest UUID
	left   int // commands until the kill; -1: none is planned
	effect bool
	killed bool
}

// Group is a volume group. Its fields may be changed while no command runs.
type Group struct {
	Name, UUID string
	Extent     int64
	Missing    int
	Volumes    []*Volume
}

// Volume is a logical volume.
type Volume struct {
	Name, UUID, Pool string // Pool is empty for a thin pool
	Size             int64
	Tags             []string
	Active, Open     bool
	Mapped           bool // it has data
	Chunk, Metadata  int64
	NoZero           bool
	Percent          string // of a thin pool, how much is written
}

// New returns a machine with the volume group vg and a thin pool of this size in it.
func New(size int64) *Host {
	h := &Host{left: -1}
	g := h.Add("vg")
	g.Volumes = []*Volume{{Name: "thin", UUID: h.uuid(), Size: size, Chunk: 64 << 10, Metadata: 64 << 20, Active: true}}
	return h
}

// Add adds an empty volume group.
func (h *Host) Add(name string) *Group {
	g := &Group{Name: name, UUID: h.uuid(), Extent: 4 << 20}
	h.groups = append(h.groups, g)
	return g
}

// Groups returns the volume groups, and Set replaces them.
func (h *Host) Groups() []*Group { return h.groups }

// Set replaces the volume groups, as another disk does.
func (h *Host) Set(groups ...*Group) { h.groups = groups }

// Volume returns a logical volume of vg, or nil.
func (h *Host) Volume(name string) *Volume {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groups[0].find(name)
}

// Kill makes the n-th change from now fail, with or without its effect, and all commands after it.
func (h *Host) Kill(n int, effect bool) { h.left, h.effect = n, effect }

// Restart ends the effect of Kill and reports whether it came to it.
func (h *Host) Restart() bool {
	was := h.killed
	h.left, h.killed = -1, false
	return was
}

func (h *Host) uuid() string {
	h.number++
	s := fmt.Sprintf("%032d", h.number)
	return strings.Join([]string{s[:6], s[6:10], s[10:14], s[14:18], s[18:22], s[22:26], s[26:]}, "-")
}

// Run runs a command.
func (h *Host) Run(args ...string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.killed {
		return nil, ErrKilled
	}
	if args[0] == "lvs" {
		return h.report(args[1:])
	}
	if h.left > 0 {
		h.left--
		h.killed = h.left == 0
	}
	if h.killed && !h.effect {
		return nil, ErrKilled
	}
	c, err := parse(args)
	if err == nil {
		err = h.change(c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	if h.killed {
		return nil, ErrKilled
	}
	return nil, nil
}

// command is a command line.
type command struct {
	verb     string
	options  map[string]string
	add, del []string // tags
	target   string
}

var withValue = []string{"-n", "-V", "-L", "-T", "-s", "-S"}

func parse(args []string) (command, error) {
	c := command{verb: args[0], options: map[string]string{}}
	for args = args[1:]; len(args) > 0; args = args[1:] {
		switch option := args[0]; {
		case option == "--addtag" || option == "--deltag" || slices.Contains(withValue, option):
			if len(args) < 2 {
				return c, fmt.Errorf("%s without a value", option)
			}
			args = args[1:]
			switch option {
			case "--addtag":
				c.add = append(c.add, args[0])
			case "--deltag":
				c.del = append(c.del, args[0])
			default:
				c.options[option] = args[0]
			}
		case strings.HasPrefix(option, "-"):
			c.options[option] = "yes"
		default:
			c.target = option
		}
	}
	for _, tag := range c.add {
		if len(tag) > 1024 || !goodTag.MatchString(tag) {
			return c, fmt.Errorf("tag %q", tag)
		}
	}
	return c, nil
}

// goodTag is what lvm(8) says about tags.
var goodTag = regexp.MustCompile(`^[A-Za-z0-9_+./=!:&#][A-Za-z0-9_+./=!:&#-]*$`)

func (h *Host) change(c command) error {
	if c.verb == "lvcreate" {
		return h.create(c)
	}
	if c.verb == "lvremove" {
		return h.remove(c)
	}
	_, v, err := h.find(c.target)
	switch {
	case err != nil:
		return err
	case c.verb == "lvextend":
		size, err := bytes(c.options["-L"])
		if err != nil || size <= v.Size {
			return fmt.Errorf("size %d is not above %d: %w", size, v.Size, err)
		}
		v.Size = size
	case c.verb != "lvchange":
		return errors.New("unknown command")
	case c.options["-an"] != "" && v.Open:
		return errors.New("logical volume is in use")
	case c.options["-an"] != "":
		v.Active = false
	case c.options["-ay"] != "" && c.options["-K"] == "":
		// The flag for skipping is set: success without an effect.
	case c.options["-ay"] != "":
		v.Active = true
	}
	v.Tags = slices.DeleteFunc(append(v.Tags, c.add...), func(tag string) bool { return slices.Contains(c.del, tag) })
	return nil
}

func (h *Host) create(c command) error {
	target, blank := c.options["-T"], true
	if origin := c.options["-s"]; origin != "" {
		target, blank = origin, false
	}
	g, v, err := h.find(target)
	if err != nil {
		return err
	}
	n := &Volume{Name: c.options["-n"], UUID: h.uuid(), Pool: v.Name, Tags: c.add}
	if blank {
		n.Size, err = bytes(c.options["-V"])
	} else {
		n.Pool, n.Size, n.Mapped = v.Pool, v.Size, v.Mapped
	}
	switch {
	case err != nil:
		return err
	case n.Size%g.Extent != 0 || n.Pool == "" || n.Name == "" || g.find(n.Name) != nil:
		return fmt.Errorf("cannot make %+v", n)
	case (c.options["-Wn"] != "") != blank:
		return errors.New("-Wn is for a blank volume alone")
	case c.options["-an"] == "" || c.options["-ky"] == "":
		return errors.New("the volume would be active")
	}
	g.Volumes = append(g.Volumes, n)
	return nil
}

func (h *Host) remove(c command) error {
	g, v, err := h.find(c.target)
	switch {
	case err != nil:
		return err
	case v.Open:
		return errors.New("logical volume is in use")
	}
	g.Volumes = slices.DeleteFunc(g.Volumes, func(other *Volume) bool { return other == v })
	return nil
}

func (h *Host) find(target string) (*Group, *Volume, error) {
	group, name, _ := strings.Cut(target, "/")
	for _, g := range h.groups {
		if v := g.find(name); g.Name == group && v != nil {
			return g, v, nil
		}
	}
	return nil, nil, fmt.Errorf("failed to find logical volume %q", target)
}

func (g *Group) find(name string) *Volume {
	for _, v := range g.Volumes {
		if v.Name == name {
			return v
		}
	}
	return nil
}

func bytes(text string) (int64, error) {
	return strconv.ParseInt(strings.TrimSuffix(text, "b"), 10, 64)
}

// report is lvs. All its values are text, as LVM's are.
func (h *Host) report(args []string) ([]byte, error) {
	c, err := parse(append([]string{"lvs"}, args...))
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(strings.TrimPrefix(c.options["-S"], `vg_name="`), `"`)
	rows := []map[string]string{}
	for _, g := range h.groups {
		if g.Name != name {
			continue
		}
		for _, v := range g.Volumes {
			row := map[string]string{
				"vg_name": g.Name, "vg_uuid": g.UUID, "vg_extent_size": strconv.FormatInt(g.Extent, 10), "vg_missing_pv_count": strconv.Itoa(g.Missing),
				"lv_name": v.Name, "lv_uuid": v.UUID, "lv_size": strconv.FormatInt(v.Size, 10), "lv_tags": strings.Join(v.Tags, ","),
				"segtype": "thin", "pool_lv": v.Pool, "lv_active": word(v.Active, "active"), "lv_device_open": word(v.Open, "open"),
				"lv_health_status": "", "lv_metadata_size": "", "chunk_size": "0", "zero": "unknown", "data_percent": "",
			}
			if v.Pool == "" {
				row["segtype"], row["zero"], row["data_percent"] = "thin-pool", word(!v.NoZero, "zero"), v.Percent
				row["chunk_size"], row["lv_metadata_size"] = strconv.FormatInt(v.Chunk, 10), strconv.FormatInt(v.Metadata, 10)
			} else if v.Active {
				row["data_percent"] = "0.00"
				if v.Mapped {
					row["data_percent"] = "12.50"
				}
			}
			rows = append(rows, row)
		}
	}
	return json.Marshal(map[string]any{"report": []any{map[string]any{"lv": rows}}})
}

func word(is bool, text string) string {
	if is {
		return text
	}
	return ""
}
