package driver

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// ErrCommandLine marks an error of the command line, for which the programs exit with 2.
var ErrCommandLine = errors.New("wrong command line (see --help)")

// CheckCommand returns an error if the arguments begin with a word, which is not one of the known sub-commands of a program.
func CheckCommand(args []string, known ...string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	return fmt.Errorf("%w:\n%q: unknown command; known are %s", ErrCommandLine, args[0], strings.Join(known, ", "))
}

// Flags are the flags that both programs have, with the same meaning.
type Flags struct {
	Cloud        string
	Endpoint     string
	HTTPEndpoint string
	LogLevel     string
	LogFormat    string
	// LocalPools are the values of --local-pool; see Pools. NodeID is the node's name in the cluster if the node itself is the
	// cloud, and its id in the cloud otherwise.
	LocalPools []string
	NodeID     string
	// AnyNode: --node-id may be omitted; the command then accepts the pools of any node.
	AnyNode bool
	// MetadataEndpoint is the base URL of the metadata service; empty: the cloud's own.
	MetadataEndpoint string
	Version          bool

	// Check sets Names and MaxVolumes. MaxVolumes 0 means no limit.
	Names      Names
	MaxVolumes int64

	driverName, maxVolumes string
	topologyKeys           []string
}

// Register adds the flags to a set.
func (f *Flags) Register(fs *flag.FlagSet) {
	fs.StringVar(&f.Cloud, "cloud", "", "where the volumes are: "+known()+" (required)")
	fs.StringVar(&f.Endpoint, "endpoint", "unix:///csi/csi.sock", "the CSI socket")
	fs.StringVar(&f.HTTPEndpoint, "http-endpoint", "", "`host:port` of /metrics, /healthz and /readyz; empty: off")
	fs.StringVar(&f.driverName, "driver-name", "", "another CSI driver name (default <cloud>."+domain+")")
	fs.Var(List(&f.topologyKeys), "topology-key", "another topology key, as `KEY=SCOPE`; may be repeated")
	fs.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.LogFormat, "log-format", "json", "json or console")
	fs.Var(List(&f.LocalPools), "local-pool", LocalPoolUsage+" (required with --cloud local)")
	fs.StringVar(&f.NodeID, "node-id", "", "this node's name in the cluster (required with --cloud local), or its id in the cloud (default: ask the metadata service)")
	fs.StringVar(&f.maxVolumes, "max-volumes", "", "how many volumes this node may hold, a `number`, the same for both programs (default: no limit on local, elsewhere what the cloud allows)")
	fs.StringVar(&f.MetadataEndpoint, "metadata-endpoint", "", "another base `URL` of the cloud's metadata service")
	fs.BoolVar(&f.Version, "version", false, "print the version and exit")
}

// ParseArgs parses a command line into a set of flags. It reports all mistakes, not only the first. For --help it writes the usage
// and the flags to out and returns flag.ErrHelp.
func ParseArgs(fs *flag.FlagSet, args []string, out io.Writer, usage string) error {
	var mistakes []error
	fs.SetOutput(io.Discard)
	for len(args) > 0 {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			if _, err := fmt.Fprintf(out, "%s\n\nThe environment sets flags too, such as %sLOG_LEVEL --log-level; the command line wins.\n\n", usage, settingPrefix); err != nil {
				return err
			}
			if err := PrintFlags(fs, out); err != nil {
				return err
			}
			return flag.ErrHelp
		}
		args = fs.Args()
		if err != nil {
			mistakes = append(mistakes, Spelled(err)) // Parse has consumed the wrong flag; the next one may be wrong too
			if strings.HasPrefix(err.Error(), badSyntax) {
				args = args[1:] // but not one such as ---cloud
			}
		} else if len(args) > 0 {
			mistakes = append(mistakes, fmt.Errorf("argument %q: not a flag", args[0]))
			args = args[1:]
		}
	}
	return errors.Join(mistakes...)
}

// PrintFlags writes the flags as the documents spell them, with two dashes; package flag writes one, and accepts both.
func PrintFlags(fs *flag.FlagSet, out io.Writer) error {
	var text bytes.Buffer
	fs.SetOutput(&text)
	fs.PrintDefaults()
	_, err := out.Write(flagInHelp.ReplaceAll(text.Bytes(), []byte("  --$1")))
	return err
}

const badSyntax = "bad flag syntax: "

var (
	flagInHelp = regexp.MustCompile(`(?m)^  -(\w)`)
	// badSyntax begins, and unknownFlag and invalidValue match what package flag says of a mistake.
	unknownFlag  = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	invalidValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([^:]*): (.*)$`)
)

// Spelled returns a mistake that package flag has found as the other mistakes are spelled.
func Spelled(err error) error {
	text := unknownFlag.ReplaceAllString(err.Error(), "--$1: unknown flag")
	return errors.New(invalidValue.ReplaceAllString(text, "--$2 $1: $3"))
}

// ParseCommand is ParseArgs for a sub-command, which has the flags of the program and its own. Its help has only its own.
func ParseCommand(fs *flag.FlagSet, own func(*flag.FlagSet), args []string, out io.Writer, usage string) error {
	own(fs)
	err := ParseArgs(fs, args, io.Discard, "")
	if errors.Is(err, flag.ErrHelp) {
		help := flag.NewFlagSet("", flag.ContinueOnError)
		own(help)
		return ParseArgs(help, []string{"--help"}, out, usage)
	}
	return err
}

// known lists the clouds, for messages.
func known() string { return strings.Join(profile.Names(), ", ") }

// Check checks the flags together, reports all mistakes and sets the fields that follow from the flags.
func (f *Flags) Check() error {
	var mistakes []error
	wrong := func(err error) { mistakes = append(mistakes, err) }
	name := f.Cloud
	c, found := profile.Of(name)
	switch {
	case name == "":
		wrong(fmt.Errorf("--cloud: required: %s", known()))
	case !found:
		wrong(fmt.Errorf("--cloud %q: known are %s", name, known()))
	}
	if !found {
		// This allows to check the other flags too.
		name = profile.Names()[0]
		if vendor := compat.Of(f.driverName); vendor != nil {
			name = vendor.Cloud
		}
		c, _ = profile.Of(name)
	}
	var err error
	f.Names, err = NewNames(name, c.Scope, f.driverName, f.topologyKeys)
	wrong(err)
	_, err = SocketPath(f.Endpoint)
	wrong(InFlag("--endpoint", err))
	wrong(checkHTTP(f.HTTPEndpoint))
	_, err = NewLogger(f.LogLevel, f.LogFormat, io.Discard)
	wrong(err)
	f.MaxVolumes, err = parseMost(f.maxVolumes)
	wrong(err)
	return errors.Join(mistakes...)
}

// CheckLocal returns the mistakes in the flags of the cloud that is the node itself. checkNode checks the node's name, checkPool
// that of a pool.
func (f *Flags) CheckLocal(checkNode, checkPool func(string) error) error {
	_, err := ParseLocalPools(f.LocalPools, checkPool)
	mistakes := []error{err}
	if len(f.LocalPools) == 0 {
		mistakes = append(mistakes, errors.New("--local-pool: required with --cloud local"))
	}
	if f.NodeID == "" && !f.AnyNode {
		mistakes = append(mistakes, errors.New("--node-id: required with --cloud local"))
	} else if f.NodeID != "" {
		mistakes = append(mistakes, InFlag("--node-id", checkNode(f.NodeID)))
	}
	return errors.Join(mistakes...)
}

// LocalNode returns the NodeInfo that both programs report if the node itself is the cloud.
func (f *Flags) LocalNode() NodeInfo {
	return NodeInfo{ID: f.NodeID, Zone: f.NodeID, MaxVolumes: f.MaxVolumes}
}

func parseMost(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("--max-volumes %q: not a number of at least 1", text)
	}
	return n, nil
}

func checkHTTP(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fmt.Errorf("--http-endpoint %q: not of the form host:port", endpoint)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("--http-endpoint %q: the port is not a number", endpoint)
	}
	return nil
}

// Duration returns a flag's function that sets a variable. An invalid value leaves the variable, which has the default, unchanged.
func Duration(to *time.Duration) func(string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil {
			return errors.New("not a duration, such as 90s or 5m")
		}
		*to = d
		return nil
	}
}

// InFlag prefixes an error with the name of a flag.
func InFlag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// LocalPoolUsage explains --local-pool.
const LocalPoolUsage = "the `[NAME=]FOLDER` where the filesystem of a pool is mounted, or lvm:VG; a NAME for classes with the parameter pool; may be repeated"

// LocalPool is a pool of the cloud that is the node itself.
type LocalPool struct {
	// Name is the pool's name in classes and ids; empty: default, the pool of classes that name none.
	Name string
	// Dir is the mount point of its filesystem, or lvm:VG.
	Dir string
}

// volumeGroup matches lvm: and a volume group of LVM, with the characters that lvm(8) allows in names.
var volumeGroup = regexp.MustCompile(`^lvm:[a-zA-Z0-9_+][a-zA-Z0-9_+.-]*$`)

// ParseLocalPools parses the values of --local-pool and reports all mistakes. A value that begins with a slash is the folder of the
// pool without a name. checkName checks the names of the others.
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

// Pools returns the pools of --local-pool, which CheckLocal has checked.
func (f *Flags) Pools() []LocalPool {
	pools, _ := ParseLocalPools(f.LocalPools, func(string) error { return nil })
	return pools
}
