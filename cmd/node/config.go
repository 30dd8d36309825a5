package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// errConfig marks an error of the command line.
var errConfig = errors.New("wrong command line")

// config is what the flags say.
type config struct {
	cloud        string
	endpoint     string
	httpEndpoint string
	driverName   string
	topologyKeys []string
	logLevel     string
	logFormat    string
	localPool    string
	nodeID       string
	maxVolumes   string
	version      bool

	// Filled by validate.
	names driver.Names
	most  int64
}

// clouds are the backends this program knows, each with what its volumes are bound to.
var clouds = map[string]string{"local": driver.ScopeNode}

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("cloudblock-node", flag.ContinueOnError)
	fs.StringVar(&c.cloud, "cloud", "", "where the volumes are: local (required)")
	fs.StringVar(&c.endpoint, "endpoint", "unix:///csi/csi.sock", "the CSI socket")
	fs.StringVar(&c.httpEndpoint, "http-endpoint", "", "`host:port` of /metrics, /healthz and /readyz; empty: off")
	fs.StringVar(&c.driverName, "driver-name", "", "another CSI driver name (default <cloud>.csi.cloudblock.io)")
	fs.Func("topology-key", "another topology key, as `KEY=SCOPE`; may be repeated", func(v string) error {
		c.topologyKeys = append(c.topologyKeys, v)
		return nil
	})
	fs.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.logFormat, "log-format", "json", "json or console")
	fs.StringVar(&c.localPool, "local-pool", "", "the `folder` that holds the volumes of --cloud local (required with it)")
	fs.StringVar(&c.nodeID, "node-id", "", "this node's name in the cluster (required with --cloud local)")
	fs.StringVar(&c.maxVolumes, "max-volumes", "", "how many volumes this node may hold (default: no limit on local)")
	fs.BoolVar(&c.version, "version", false, "print the version and exit")
	return fs
}

// parse reads the command line. Every mistake is reported, not only the first; the error then
// matches errConfig. With --help it writes the flags to out and returns flag.ErrHelp.
func parse(args []string, out io.Writer) (config, error) {
	var (
		c        config
		mistakes []error
	)
	fs := c.flags()
	fs.SetOutput(io.Discard)
	for len(args) > 0 {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(out)
			_, _ = io.WriteString(out, "Usage: cloudblock-node --cloud local --local-pool DIR --node-id NAME [flags]\n")
			fs.PrintDefaults()
			return config{}, flag.ErrHelp
		}
		args = fs.Args()
		if err != nil {
			mistakes = append(mistakes, err) // the wrong flag is behind us, the next one may be wrong too
		} else if len(args) > 0 {
			mistakes = append(mistakes, fmt.Errorf("argument %q: not a flag", args[0]))
			args = args[1:]
		}
	}
	if c.version && len(mistakes) == 0 {
		return c, nil
	}
	if err := errors.Join(append(mistakes, c.validate())...); err != nil {
		return config{}, fmt.Errorf("%w:\n%w", errConfig, err)
	}
	return c, nil
}

// validate checks the flags against one another and reports every mistake.
func (c *config) validate() error {
	var mistakes []error
	wrong := func(err error) {
		if err != nil {
			mistakes = append(mistakes, err)
		}
	}
	name := c.cloud
	scope, known := clouds[name]
	switch {
	case name == "":
		wrong(errors.New("--cloud: required"))
	case !known:
		wrong(fmt.Errorf("--cloud %q: this build knows only local", name))
	}
	if !known {
		name, scope = "local", clouds["local"] // so that the other flags are checked all the same
	}
	var err error
	c.names, err = driver.NewNames(name, scope, c.driverName, c.topologyKeys)
	wrong(err)
	_, err = driver.SocketPath(c.endpoint)
	wrong(inFlag("--endpoint", err))
	wrong(checkHTTP(c.httpEndpoint))
	wrong(c.checkLog())
	if known {
		wrong(c.checkLocal())
	}
	wrong(c.checkMost())
	return errors.Join(mistakes...)
}

func (c *config) checkLog() error {
	_, err := driver.NewLogger(c.logLevel, c.logFormat, io.Discard)
	if err == nil {
		return nil
	}
	// NewLogger stops at the first mistake; ask for the other one with a good value in its place.
	_, formatErr := driver.NewLogger("info", c.logFormat, io.Discard)
	_, levelErr := driver.NewLogger(c.logLevel, "json", io.Discard)
	return errors.Join(levelErr, formatErr)
}

func (c *config) checkLocal() error {
	var mistakes []error
	switch {
	case c.localPool == "":
		mistakes = append(mistakes, errors.New("--local-pool: required with --cloud local"))
	case !filepath.IsAbs(c.localPool):
		mistakes = append(mistakes, fmt.Errorf("--local-pool %q: not an absolute path", c.localPool))
	}
	if c.nodeID == "" {
		mistakes = append(mistakes, errors.New("--node-id: required with --cloud local"))
	} else {
		mistakes = append(mistakes, inFlag("--node-id", pool.CheckNode(c.nodeID)))
	}
	return errors.Join(mistakes...)
}

func (c *config) checkMost() error {
	if c.maxVolumes == "" {
		return nil
	}
	n, err := strconv.ParseInt(c.maxVolumes, 10, 32)
	if err != nil || n < 1 {
		return fmt.Errorf("--max-volumes %q: not a number of at least 1", c.maxVolumes)
	}
	c.most = n
	return nil
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

func inFlag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
