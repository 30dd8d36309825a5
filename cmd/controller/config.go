package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// clusterTag is the tag with the cluster of a volume.
const clusterTag = "cloudblock-cluster"

const usage = `Usage: cloudblock-controller --cloud CLOUD [--credentials-file FILE] [flags]
       cloudblock-controller --cloud local --local-pool [NAME=]DIR... --node-id NAME [flags]
       cloudblock-controller volumes --help
       cloudblock-controller relocate --help
       cloudblock-controller doctor --help`

// nodeSettings are the settings of the node program only.
var nodeSettings = []string{"cgroup-dir", "device-dir", "kubelet-dir", "reserved-attachments", "zone"}

const usualOperation = 5 * time.Minute

// config has the values of the flags.
type config struct {
	driver.Flags

	clusterID string
	tagFlags  []string

	// For clouds with an API.
	credentialsFile, apiEndpoint, apiCAFile string
	region, namePrefix, yandexFolder        string
	yandexOperations                        int
	linodePersist                           string
	linodeKubernetesTags                    bool
	linodeSnapshots                         string
	operationTimeout                        time.Duration
	apiLimits                               []budget.Window

	// Set by validate.
	backend backend
	tags    []cloud.Tag
	token   func() (string, error)
	file    *tokenFile // read by token; nil: the credentials are in no file
	caPool  *x509.CertPool
}

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("cloudblock-controller", flag.ContinueOnError)
	c.Register(fs)
	fs.StringVar(&c.clusterID, "cluster-id", "", "a `name` for the cluster that no other cluster of the account has, written on everything created as the tag "+clusterTag+"; required unless --cloud is local")
	fs.Var(driver.List(&c.tagFlags), "tag", "a tag for every volume, as `KEY=VALUE`; may be repeated")
	fs.StringVar(&c.credentialsFile, "credentials-file", "", "the `file` with the API token of the cloud, or the authorized key of a service account (JSON) of Yandex Cloud; a new one in it is used after a volume was read with it")
	fs.StringVar(&c.apiEndpoint, "api-endpoint", "", "another `URL` of the cloud's API: scheme, host and port; http:// for loopback addresses only")
	fs.StringVar(&c.apiCAFile, "api-ca-file", "", "the `file` with the certificates (PEM) that --api-endpoint is trusted by (default: the system's)")
	fs.StringVar(&c.region, "region", "", "the region, or the zone on Yandex Cloud, of requests that name none (default: ask the metadata service)")
	fs.StringVar(&c.yandexFolder, "yandex-folder-id", "", "the folder of Yandex Cloud that the volumes are in (default: ask the metadata service)")
	fs.IntVar(&c.yandexOperations, "yandex-max-operations", usualYandexOperations, "how many operations Yandex Cloud runs at a time in the folder, which is a quota of it")
	fs.StringVar(&c.linodePersist, "linode-persist", usualLinodePersist, "whether attachments survive a boot of the Linode: `auto|true|false`; auto: where the cloud lets them")
	fs.BoolVar(&c.linodeKubernetesTags, "linode-kubernetes-tags", false, "write the names of claim, namespace and volume as tags on volumes of Linode, which may need a user with unrestricted access")
	fs.StringVar(&c.linodeSnapshots, "linode-snapshots", noLinodeSnapshots, "snapshots on Linode, which has none: `off|clones`; clones: each is a copy of its volume, and is billed as a volume")
	fs.StringVar(&c.namePrefix, "volume-name-prefix", "", "what the cloud's names of volumes and snapshots begin with")
	c.operationTimeout = usualOperation
	fs.Func("operation-timeout", "how long an operation of the cloud is waited for where no caller says, a `duration` (default 5m)", driver.Duration(&c.operationTimeout))
	fs.Func("api-limits", "how many requests the API takes, as `CALLS/TIME,...` (default: what the cloud documents); less where clusters share a token", limitsFlag(&c.apiLimits))
	return fs
}

// parse parses the command line. Its error has all mistakes, not only the first, and matches driver.ErrCommandLine. For --help it
// writes the flags to out and returns flag.ErrHelp.
func parse(args []string, environ driver.Environment, out io.Writer) (config, error) {
	var c config
	fs := c.flags()
	settings := driver.SettingsOf(fs, nodeSettings...)
	err := driver.ParseArgs(fs, args, out, usage)
	if errors.Is(err, flag.ErrHelp) || (err == nil && c.Version) {
		return c, err
	}
	if err := errors.Join(err, settings.Read(fs, environ), c.validate(environ)); err != nil {
		return config{}, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return c, nil
}

// validate reports all mistakes and sets the fields that follow from the flags.
func (c *config) validate(environ driver.Environment) error {
	err := c.Check()
	var tagErr error
	c.tags, tagErr = c.parseTags()
	err = errors.Join(err, tagErr)
	if b, known := backends[c.Cloud]; known {
		c.backend = b
		c.readEnvironment(environ)
		err = errors.Join(err, b.validate(c))
	}
	if c.Cloud != "linode" {
		err = errors.Join(err, refuse("for --cloud linode only",
			given{"--linode-persist", c.linodePersist != usualLinodePersist},
			given{"--linode-kubernetes-tags", c.linodeKubernetesTags},
			given{"--linode-snapshots", c.linodeSnapshots != noLinodeSnapshots}))
	}
	return err
}

// given is a flag, and whether it has another value than its default.
type given struct {
	flag string
	is   bool
}

// refuse returns an error for each flag that is given.
func refuse(why string, flags ...given) (err error) {
	for _, f := range flags {
		if f.is {
			err = errors.Join(err, fmt.Errorf("%s: %s", f.flag, why))
		}
	}
	return err
}

// readEnvironment reads the variables of the vendor's own driver for values that no flag sets.
func (c *config) readEnvironment(environ driver.Environment) {
	if b := c.backend; b.endpointVariable != "" && c.apiEndpoint == "" {
		c.apiEndpoint = environ.Get(b.endpointVariable)
	}
	if b := c.backend; b.folderVariable != "" && c.yandexFolder == "" {
		c.yandexFolder = environ.Get(b.folderVariable)
	}
	check := c.backend.checkSecret
	if check == nil {
		check = checkToken
	}
	switch b := c.backend; {
	case c.credentialsFile != "":
		c.file = &tokenFile{path: c.credentialsFile, check: check}
		c.token = c.file.read
	case b.tokenVariable != "" && environ.Get(b.tokenVariable) != "":
		token := driver.NewSecret(environ.Get(b.tokenVariable))
		c.token = func() (string, error) { return check(token.Reveal()) }
	case b.ownAccount:
		c.token = func() (string, error) { return "", nil }
	}
}

func (c *config) validateLocal() error {
	return errors.Join(c.CheckLocal(pool.CheckNode, pool.CheckNameOn(c.NodeID)), refuse("there is no such thing with --cloud "+c.Cloud,
		given{"--credentials-file", c.credentialsFile != ""},
		given{"--api-endpoint", c.apiEndpoint != ""},
		given{"--api-ca-file", c.apiCAFile != ""},
		given{"--region", c.region != ""},
		given{"--volume-name-prefix", c.namePrefix != ""},
		given{"--metadata-endpoint", c.MetadataEndpoint != ""},
		given{"--yandex-folder-id", c.yandexFolder != ""},
		given{"--api-limits", c.apiLimits != nil},
		given{"--yandex-max-operations", c.yandexOperations != usualYandexOperations},
		given{"--operation-timeout", c.operationTimeout != usualOperation}))
}

// pools returns the pools of --local-pool.
func (c *config) pools() []pool.Config {
	var configs []pool.Config
	for _, p := range c.Pools() {
		configs = append(configs, pool.Config{Name: p.Name, Dir: p.Dir, Node: c.NodeID, MountTable: mountTable})
	}
	return configs
}

// validateRemote checks what all clouds with an API have in common.
func (c *config) validateRemote() error {
	var err error
	if c.token == nil {
		err = fmt.Errorf("--credentials-file: required with --cloud %s, or the environment variable %s", c.Cloud, c.backend.tokenVariable)
	}
	if c.clusterID == "" {
		err = errors.Join(err, fmt.Errorf("--cluster-id: required with --cloud %s: a name that no other cluster of the account has, such as prod-1; "+
			"everything created is marked with it, so it stays the same for the life of the cluster", c.Cloud))
	}
	err = errors.Join(err, refuse("for --cloud local only", given{"--local-pool", strings.Join(c.LocalPools, "") != ""}, given{"--node-id", c.NodeID != ""}))
	if c.backend.folderVariable == "" {
		err = errors.Join(err, refuse("for --cloud yandex only",
			given{"--yandex-folder-id", c.yandexFolder != ""}, given{"--yandex-max-operations", c.yandexOperations != usualYandexOperations}))
	}
	if c.yandexOperations < 1 {
		err = errors.Join(err, fmt.Errorf("--yandex-max-operations %d: less than one", c.yandexOperations))
	}
	if c.operationTimeout < time.Second {
		err = errors.Join(err, fmt.Errorf("--operation-timeout %s: less than a second", c.operationTimeout))
	}
	if c.apiEndpoint != "" {
		err = errors.Join(err, driver.InFlag("--api-endpoint", checkEndpoint(c.apiEndpoint)))
	}
	if c.MetadataEndpoint != "" {
		err = errors.Join(err, driver.InFlag("--metadata-endpoint", machine.CheckBase(c.MetadataEndpoint)))
	}
	if c.apiCAFile != "" {
		var caErr error
		c.caPool, caErr = readCertificates(c.apiCAFile)
		err = errors.Join(err, driver.InFlag("--api-ca-file", caErr))
	}
	return err
}

func (c *config) parseTags() ([]cloud.Tag, error) {
	tags, err := controller.ParseTags(c.tagFlags)
	err = driver.InFlag("--tag", err)
	if c.clusterID != "" {
		err = errors.Join(err, driver.InFlag("--cluster-id", driver.CheckSegment("cluster id", c.clusterID)))
		tags = append(tags, cloud.Tag{Key: clusterTag, Value: c.clusterID})
	}
	return tags, err
}

// limitsFlag returns a flag's function that parses limits of a cloud's API, such as 250/1m,5000/1h, into a variable.
func limitsFlag(to *[]budget.Window) func(text string) error {
	return func(text string) (err error) {
		*to, err = parseLimits(text)
		return err
	}
}

// parseLimits parses limits, which override those that the cloud reports. The headers of the cloud count as those of the limit with
// the longest period.
func parseLimits(text string) ([]budget.Window, error) {
	var all []budget.Window
	for part := range strings.SplitSeq(text, ",") {
		number, per, _ := strings.Cut(part, "/")
		calls, numberErr := strconv.Atoi(number)
		window, perErr := time.ParseDuration(per)
		if errors.Join(numberErr, perErr) != nil || calls < 1 || window < time.Second {
			return nil, fmt.Errorf("%q is not of the form CALLS/TIME, such as 250/1m", part)
		}
		all = append(all, budget.Window{Calls: calls, Per: window, Fixed: true})
	}
	slices.SortStableFunc(all, func(a, b budget.Window) int { return cmp.Compare(a.Per, b.Per) })
	all[len(all)-1].FromHeaders = true
	return all, nil
}
