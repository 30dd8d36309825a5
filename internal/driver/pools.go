package driver

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// LocalPoolUsage explains --local-pool.
const LocalPoolUsage = "the `[NAME=]FOLDER` of a pool with volumes, or lvm:VG; a NAME for classes with the parameter pool; may be repeated"

// LocalPool is one pool of the cloud that is the node itself.
type LocalPool struct {
	// Name is what classes and ids call it; empty: default, the pool of classes that name none.
	Name string
	// Dir is its folder, or lvm:VG.
	Dir string
}

// volumeGroup is a volume group of LVM, by the characters that lvm(8) allows in names.
var volumeGroup = regexp.MustCompile(`^lvm:[a-zA-Z0-9_+][a-zA-Z0-9_+.-]*$`)

// ParseLocalPools reads the values of --local-pool and reports every mistake. A value that begins with a slash is the
// folder of the pool without a name. checkName judges the others' names.
func ParseLocalPools(values []string, checkName func(string) error) ([]LocalPool, error) {
	var pools []LocalPool
	var mistakes []error
	names, folders := map[string]bool{}, map[string]bool{}
	for _, value := range values {
		p := LocalPool{Dir: value}
		if name, dir, named := strings.Cut(value, "="); named && !strings.HasPrefix(value, "/") {
			p.Name, p.Dir = name, dir
			mistakes = append(mistakes, InFlag(fmt.Sprintf("--local-pool %q", value), checkName(name)))
		}
		folder, group := filepath.Clean(p.Dir), volumeGroup.MatchString(p.Dir)
		switch {
		case strings.HasPrefix(p.Dir, "lvm:") && !group:
			mistakes = append(mistakes, fmt.Errorf("--local-pool %q: not of the form lvm:VG", value))
		case !filepath.IsAbs(p.Dir) && !group:
			mistakes = append(mistakes, fmt.Errorf("--local-pool %q: not an absolute path", value))
		case folders[folder]:
			mistakes = append(mistakes, fmt.Errorf("--local-pool %q: another pool has this folder", value))
		case names[p.Name] && p.Name == "":
			mistakes = append(mistakes, fmt.Errorf("--local-pool %q: there is one pool without a name already; write NAME=FOLDER", value))
		case names[p.Name], p.Name == "" && names["default"], p.Name == "default" && names[""]:
			mistakes = append(mistakes, fmt.Errorf("--local-pool %q: another pool has this name", value))
		}
		names[p.Name], folders[folder] = true, true
		pools = append(pools, p)
	}
	return pools, errors.Join(mistakes...)
}

// Pools returns what --local-pool says, which CheckLocal has checked.
func (f *Flags) Pools() []LocalPool {
	pools, _ := ParseLocalPools(f.LocalPools, func(string) error { return nil })
	return pools
}

// PoolIDFile returns where the programs of `local` keep the id of one of the node's pools: in the folder state
// next to the socket. Both programs of a pod mount that folder, and it outlives them.
func (f *Flags) PoolIDFile(pool string) string {
	socket := strings.TrimPrefix(f.Endpoint, "unix://")
	file := "pool-id"
	if pool != "" {
		file += "-" + pool
	}
	return filepath.Join(filepath.Dir(socket), "state", file)
}
