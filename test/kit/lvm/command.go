package lvm

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// command is a command line.
type command struct {
	verb     string
	options  map[string]string
	add, del []string // tags
	targets  []string
}

var withValue = []string{"-n", "-L", "-S", "-o", "--devicesfile", "--type", "--alloc", "--reportformat", "--units"}

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
			c.targets = append(c.targets, option)
		}
	}
	for _, tag := range c.add {
		if len(tag) > 1024 || !goodTag.MatchString(tag) {
			return c, fmt.Errorf("tag %q", tag)
		}
	}
	if len(c.targets) == 0 && c.options["-S"] == "" {
		return c, errors.New("a command about everything")
	}
	return c, nil
}

// goodTag is what lvm(8) says about tags.
var goodTag = regexp.MustCompile(`^[A-Za-z0-9_+./=!:&#][A-Za-z0-9_+./=!:&#-]*$`)

func (c command) tag(tags []string) []string {
	return slices.DeleteFunc(append(slices.Clone(tags), c.add...), func(tag string) bool { return slices.Contains(c.del, tag) })
}

func (h *Host) change(c command) error {
	switch c.verb {
	case "lvcreate":
		return h.create(c)
	case "vgchange":
		g, err := h.group(c.targets[0])
		if err == nil {
			g.Tags = c.tag(g.Tags)
		}
		return err
	}
	g, v, err := h.find(c.targets[0])
	switch {
	case err != nil:
		return err
	case g.Missing > 0 && (c.verb != "lvchange" || len(c.add)+len(c.del) > 0):
		return errors.New("cannot change a volume group while disks are missing")
	case c.verb == "lvextend":
		return g.extend(v, c)
	case c.verb == "lvremove" && v.Open:
		return errors.New("logical volume is in use")
	case c.verb == "lvremove" && v.Role != "": // what depends on it goes, too
		g.Volumes = nil
		return nil
	case c.verb == "lvremove":
		g.Volumes = slices.DeleteFunc(g.Volumes, func(other *Volume) bool { return other == v })
		return nil
	case c.verb != "lvchange":
		return errors.New("unknown command")
	case c.options["-an"] != "" && v.Open:
		return errors.New("logical volume is in use")
	case c.options["-an"] != "":
		v.Active, v.Suspended, v.Live, v.Loaded = false, false, nil, nil
	case c.options["-ay"] != "" && c.options["-K"] == "":
		// The flag for skipping is set: success without an effect.
	case c.options["-ay"] != "":
		v.Active, v.Live = true, v.Extents
	case c.options["--refresh"] != "" && v.Health != "":
		return errors.New("refusing refresh of partial logical volume")
	case c.options["--refresh"] != "" && v.Loaded != nil: // whatever the group's metadata say
		v.Live, v.Loaded, v.Suspended = v.Loaded, nil, false
	case c.options["--refresh"] != "":
		v.Live, v.Suspended = v.Extents, false
	}
	v.Tags = c.tag(v.Tags)
	return nil
}

func (h *Host) create(c command) error {
	g, err := h.group(c.targets[0])
	if err != nil {
		return err
	}
	size, err := bytes(c.options["-L"])
	n := &Volume{Name: c.options["-n"], UUID: h.uuid(), Tags: c.add}
	switch {
	case err != nil:
		return err
	case size <= 0 || size%g.Extent != 0 || n.Name == "" || g.find(n.Name) != nil || c.options["--type"] != "linear" || g.Missing > 0:
		return fmt.Errorf("cannot make %+v", n)
	case c.options["-an"] == "" || c.options["-ky"] == "" || c.options["-Wn"] == "" || c.options["-Zn"] == "":
		return errors.New("the volume would be active")
	}
	free := g.free()
	if int64(len(free)) < size/g.Extent {
		return errors.New("insufficient free space")
	}
	n.Extents = free[:size/g.Extent]
	g.Volumes = append(g.Volumes, n)
	return nil
}

// extend takes exactly the extents that it is given, all of them free.
func (g *Group) extend(v *Volume, c command) error {
	size, err := bytes(strings.TrimPrefix(c.options["-L"], "+"))
	if err != nil || !strings.HasPrefix(c.options["-L"], "+") {
		return fmt.Errorf("size %q: %w", c.options["-L"], err)
	}
	free := g.free()
	var more []int
	for _, place := range c.targets[1:] {
		var first, last int
		if _, err := fmt.Sscanf(place, "/dev/vda:%d-%d", &first, &last); err != nil {
			return fmt.Errorf("extents %q: %w", place, err)
		}
		for e := first; e <= last; e++ {
			if !slices.Contains(free, e) {
				return fmt.Errorf("extent %d is not free", e)
			}
			more = append(more, e)
		}
	}
	if int64(len(more))*g.Extent != size {
		return fmt.Errorf("%d extents for %d bytes", len(more), size)
	}
	v.Extents = slices.Concat(v.Extents, more)
	if v.Active {
		v.Live = v.Extents
	}
	return nil
}

func bytes(text string) (int64, error) {
	return strconv.ParseInt(strings.TrimSuffix(text, "b"), 10, 64)
}
