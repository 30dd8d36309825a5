package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
)

// errConfig marks an error of the command line.
var errConfig = errors.New("wrong command line")

// clusterTag is the tag that says which cluster a volume was made for.
const clusterTag = "cloudblock-cluster"

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
	clusterID    string
	tagFlags     []string
	version      bool

	// Filled by complete.
	backend backend
	names   driver.Names
	most    int64
	tags    []cloud.Tag
}

// nodeInfo is what the node program says about this node, too.
func (c config) nodeInfo() driver.NodeInfo {
	return driver.NodeInfo{ID: c.nodeID, Zone: c.nodeID, MaxVolumes: c.most}
}

func knownClouds() string { return strings.Join(slices.Sorted(maps.Keys(backends)), ", ") }

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("cloudblock-controller", flag.ContinueOnError)
	fs.StringVar(&c.cloud, "cloud", "", "where the volumes are: "+knownClouds()+" (required)")
	fs.StringVar(&c.endpoint, "endpoint", "unix:///csi/csi.sock", "the CSI socket")
	fs.StringVar(&c.httpEndpoint, "http-endpoint", "", "`host:port` of /metrics, /healthz and /readyz; empty: off")
	fs.StringVar(&c.driverName, "driver-name", "", "another CSI driver name (default <cloud>.csi.cloudblock.io)")
	fs.Func("topology-key", "another topology key, as `KEY=SCOPE`; may be repeated", appendTo(&c.topologyKeys))
	fs.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.logFormat, "log-format", "json", "json or console")
	fs.StringVar(&c.localPool, "local-pool", "", "the `folder` that holds the volumes of --cloud local (required with it)")
	fs.StringVar(&c.nodeID, "node-id", "", "the name of the node this runs on (required with --cloud local)")
	fs.StringVar(&c.maxVolumes, "max-volumes", "", "how many volumes this node may hold; must be the node program's value (default: no limit on local)")
	fs.StringVar(&c.clusterID, "cluster-id", "", "the cluster's name, written on every volume as the tag "+clusterTag)
	fs.Func("tag", "a tag for every volume, as `KEY=VALUE`; may be repeated", appendTo(&c.tagFlags))
	fs.BoolVar(&c.version, "version", false, "print the version and exit")
	return fs
}

func appendTo(list *[]string) func(string) error {
	return func(v string) error {
		*list = append(*list, v)
		return nil
	}
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
			_, _ = fmt.Fprintln(out, "Usage: cloudblock-controller --cloud local --local-pool DIR --node-id NAME [flags]")
			_, _ = fmt.Fprintln(out, "       cloudblock-controller volumes --cloud local --local-pool DIR [flags]")
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
	if err := errors.Join(append(mistakes, c.complete())...); err != nil {
		return config{}, fmt.Errorf("%w:\n%w", errConfig, err)
	}
	return c, nil
}

// complete checks the flags against one another, reports every mistake and fills what follows from
// them.
func (c *config) complete() error {
	var mistakes []error
	wrong := func(err error) {
		if err != nil {
			mistakes = append(mistakes, err)
		}
	}
	name, known := c.cloud, false
	switch c.backend, known = backends[name]; {
	case name == "":
		wrong(fmt.Errorf("--cloud is required: %s", knownClouds()))
	case !known:
		wrong(fmt.Errorf("--cloud %q: known are %s", name, knownClouds()))
	}
	scope := string(c.backend.scope)
	if !known {
		name, scope = "local", driver.ScopeNode // so that the other flags are checked all the same
	}
	var err error
	c.names, err = driver.NewNames(name, scope, c.driverName, c.topologyKeys)
	wrong(err)
	_, err = driver.SocketPath(c.endpoint)
	wrong(inFlag("--endpoint", err))
	wrong(checkHTTP(c.httpEndpoint))
	_, err = driver.NewLogger(c.logLevel, "json", io.Discard)
	wrong(err)
	_, err = driver.NewLogger("info", c.logFormat, io.Discard)
	wrong(err)
	c.most, err = parseMost(c.maxVolumes)
	wrong(err)
	c.tags, err = c.parseTags()
	wrong(err)
	if known {
		wrong(c.backend.validate(*c))
	}
	return errors.Join(mistakes...)
}

func (c config) validateLocal() error {
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

func (c config) parseTags() ([]cloud.Tag, error) {
	tags, err := controller.ParseTags(c.tagFlags)
	err = inFlag("--tag", err)
	if c.clusterID != "" {
		err = errors.Join(err, inFlag("--cluster-id", driver.CheckSegment("cluster id", c.clusterID)))
		tags = append(tags, cloud.Tag{Key: clusterTag, Value: c.clusterID})
	}
	return tags, err
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

func inFlag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
