package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

const usage = `Usage: cloudblock-node --cloud CLOUD [flags]
       cloudblock-node --cloud local --local-pool [NAME=]DIR... --node-id NAME [flags]
       cloudblock-node doctor [flags of the program] [--output json]
       cloudblock-node check DEVICE-OR-IMAGE [--checksums FILE] [--replay] [--json]`

const (
	defaultDeviceDir = "/dev/disk/by-id"
	defaultReserved  = "0"

	// The values of --linode-snapshots.
	noLinodeSnapshots, linodeClones = "off", "clones"
)

// controllerSettings are the settings of the controller program only.
var controllerSettings = []string{
	"api-ca-file", "api-endpoint", "api-limits", "cluster-id", "credentials-file", "linode-kubernetes-tags", "linode-persist",
	"operation-timeout", "region", "tag", "volume-name-prefix", "yandex-folder-id", "yandex-max-operations",
}

// config has the values of the flags.
type config struct {
	driver.Flags

	// For clouds that attach disks.
	deviceDir, zone, reserved string

	// kubeletDir is the folder of all paths in requests.
	kubeletDir string

	// cgroupDir is where the machine's cgroup v2 is mounted; empty: no limits of I/O.
	cgroupDir string

	// linodeSnapshots is whether there are snapshots on Linode. Both programs report the same capabilities of the plugin.
	linodeSnapshots string

	// Set by validate. Without disks the node itself is the cloud.
	disks         *disks
	reservedSlots int64
}

// disks is a cloud that attaches disks to machines.
type disks struct {
	profile.Cloud

	// machine reads the identity of this machine from the metadata service.
	machine machine.Source
	// mayBeVolume distinguishes volumes from other disks with the prefix of their links, by their serials; nil: there are no others.
	mayBeVolume func(serial string) bool
	// fallback reads what the machine itself has of its identity when the metadata service fails; nil: no fallback.
	fallback func() (machine.Info, error)
}

// attachClouds are the clouds that attach disks.
var attachClouds = map[string]disks{
	"digitalocean": {
		Cloud: profile.DigitalOcean, machine: machine.DigitalOcean,
		fallback: func() (machine.Info, error) { return machine.DigitalOceanItself("/") },
	},
	"linode": {
		Cloud: profile.Linode, machine: machine.Linode,
		fallback: func() (machine.Info, error) { return machine.LinodeItself("/") },
	},
	"yandex": {Cloud: profile.Yandex, machine: machine.Yandex, mayBeVolume: yandexVolume.MatchString},
}

// yandexVolume matches the serial of a volume of Yandex Cloud: its id or, if the vendor's driver attached it,
// "csi-" and a number.
var yandexVolume = regexp.MustCompile(`^([a-z0-9]{20}|csi-[0-9]{1,10})$`)

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("cloudblock-node", flag.ContinueOnError)
	c.Register(fs)
	fs.StringVar(&c.deviceDir, "device-dir", defaultDeviceDir, "the `folder` with the links to the cloud's disks")
	fs.StringVar(&c.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's `folder`: every path of a request lies below it")
	fs.StringVar(&c.cgroupDir, "cgroup-dir", "", "the `folder` where the machine's cgroup v2 is mounted, writable: limits of I/O of a class are set there "+
		"(default: off, volumes with limits are refused)")
	fs.StringVar(&c.linodeSnapshots, "linode-snapshots", noLinodeSnapshots, "as the controller's: `off|clones`; the programs report the same capabilities")
	fs.StringVar(&c.zone, "zone", "", "where this node is, a region or zone of the cloud (default: ask the metadata service)")
	fs.StringVar(&c.reserved, "reserved-attachments", defaultReserved, "the `number` of the machine's slots for volumes that are left to others; not counted in --max-volumes")
	return fs
}

// parse parses the command line. Its error has all mistakes, not only the first, and matches driver.ErrCommandLine. For --help it
// writes the flags to out and returns flag.ErrHelp.
func parse(args []string, environ driver.Environment, out io.Writer) (config, error) {
	var c config
	fs := c.flags()
	settings := driver.SettingsOf(fs, controllerSettings...)
	err := driver.ParseArgs(fs, args, out, usage)
	if errors.Is(err, flag.ErrHelp) || (err == nil && c.Version) {
		return c, err
	}
	if err := errors.Join(err, settings.Read(fs, environ), c.validate()); err != nil {
		return config{}, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return c, nil
}

// validate reports all mistakes and sets the fields that follow from the flags.
func (c *config) validate() error {
	err := c.Check()
	if !filepath.IsAbs(c.kubeletDir) || filepath.Clean(c.kubeletDir) == "/" {
		err = errors.Join(err, fmt.Errorf("--kubelet-dir %q: not an absolute path below /", c.kubeletDir))
	}
	if c.cgroupDir != "" && !filepath.IsAbs(c.cgroupDir) {
		err = errors.Join(err, fmt.Errorf("--cgroup-dir %q: not an absolute path", c.cgroupDir))
	}
	if c.linodeSnapshots != noLinodeSnapshots && (c.linodeSnapshots != linodeClones || c.Cloud != "linode") {
		err = errors.Join(err, fmt.Errorf("--linode-snapshots %q: %s, or %s with --cloud linode", c.linodeSnapshots, noLinodeSnapshots, linodeClones))
	}
	if c.Cloud == "local" {
		return errors.Join(err, c.validateLocal())
	}
	if d, known := attachClouds[c.Cloud]; known {
		c.disks = &d
		err = errors.Join(err, c.validateDisks())
	}
	return err
}

// features returns those of the controller: every instance of the plugin must report the same.
func (c *config) features() driver.Features {
	is, _ := profile.Of(c.Cloud) // as checked
	return driver.Features{SnapshotZones: is.SnapshotZones || c.linodeSnapshots == linodeClones, SnapshotBlocks: is.SnapshotBlocks}
}

// pools returns the pools of --local-pool. An empty mountTable is the kernel's.
func (c *config) pools(mountTable string) []pool.Config {
	var configs []pool.Config
	for _, p := range c.Pools() {
		configs = append(configs, pool.Config{Name: p.Name, Dir: p.Dir, Node: c.NodeID, MountTable: mountTable})
	}
	return configs
}

// validateLocal refuses the flags that have no effect with the local backend.
func (c *config) validateLocal() error {
	err := c.CheckLocal(pool.CheckNode, pool.CheckNameOn(c.NodeID))
	for _, f := range []struct{ name, value, def string }{
		{"--device-dir", c.deviceDir, defaultDeviceDir},
		{"--zone", c.zone, ""},
		{"--reserved-attachments", c.reserved, defaultReserved},
		{"--metadata-endpoint", c.MetadataEndpoint, ""},
	} {
		if f.value != f.def {
			err = errors.Join(err, fmt.Errorf("%s: there is no such thing with --cloud %s", f.name, c.Cloud))
		}
	}
	return err
}

func (c *config) validateDisks() error {
	var err error
	if !filepath.IsAbs(c.deviceDir) {
		err = fmt.Errorf("--device-dir %q: not an absolute path", c.deviceDir)
	}
	if c.zone != "" {
		err = errors.Join(err, driver.InFlag("--zone", driver.CheckSegment("zone", c.zone)))
	}
	if c.NodeID != "" {
		err = errors.Join(err, driver.InFlag("--node-id", driver.CheckNodeID("node id", c.NodeID)))
	}
	if len(c.LocalPools) > 0 {
		err = errors.Join(err, errors.New("--local-pool: for --cloud local only"))
	}
	if c.MetadataEndpoint != "" {
		err = errors.Join(err, driver.InFlag("--metadata-endpoint", machine.CheckBase(c.MetadataEndpoint)))
	}
	// A limit of 0 would mean that there is none (failure A6 of the catalogue), so it is never reported.
	var numErr error
	slots := int64(c.disks.Slots)
	c.reservedSlots, numErr = strconv.ParseInt(c.reserved, 10, 32)
	switch {
	case numErr != nil || c.reservedSlots < 0:
		err = errors.Join(err, fmt.Errorf("--reserved-attachments %q: not a number of at least 0", c.reserved))
	case slots == 0:
		// The limit depends on the machine; see machine.Limit.
	case c.reservedSlots >= slots:
		err = errors.Join(err, fmt.Errorf("--reserved-attachments %d: a machine of this cloud has %d slots, so none would be left", c.reservedSlots, slots))
	case c.MaxVolumes == 0:
		c.MaxVolumes = slots - c.reservedSlots
	}
	return err
}
