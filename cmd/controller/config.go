package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
)

// clusterTag is the tag that says which cluster a volume was made for.
const clusterTag = "cloudblock-cluster"

const usage = `Usage: cloudblock-controller --cloud local --local-pool DIR --node-id NAME [flags]
       cloudblock-controller volumes --cloud local --local-pool DIR [flags]`

// config is what the flags say.
type config struct {
	driver.Flags

	clusterID string
	tagFlags  []string

	// Filled by validate.
	backend backend
	tags    []cloud.Tag
}

// clouds says for each backend what its volumes are bound to.
func clouds() driver.Scopes {
	scopes := driver.Scopes{}
	for name, b := range backends {
		scopes[name] = string(b.scope)
	}
	return scopes
}

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("cloudblock-controller", flag.ContinueOnError)
	c.Register(fs, clouds())
	fs.StringVar(&c.clusterID, "cluster-id", "", "the cluster's name, written on every volume as the tag "+clusterTag)
	fs.Func("tag", "a tag for every volume, as `KEY=VALUE`; may be repeated", driver.AppendTo(&c.tagFlags))
	return fs
}

// parse reads the command line. Every mistake is reported, not only the first; the error then
// matches driver.ErrCommandLine. With --help it writes the flags to out and returns flag.ErrHelp.
func parse(args []string, out io.Writer) (config, error) {
	var c config
	err := driver.ParseArgs(c.flags(), args, out, usage)
	if errors.Is(err, flag.ErrHelp) || (err == nil && c.Version) {
		return c, err
	}
	if err := errors.Join(err, c.validate()); err != nil {
		return config{}, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return c, nil
}

// validate reports every mistake and fills what follows from the flags.
func (c *config) validate() error {
	err := c.Check(clouds())
	var tagErr error
	c.tags, tagErr = c.parseTags()
	err = errors.Join(err, tagErr)
	if b, known := backends[c.Cloud]; known {
		c.backend = b
		err = errors.Join(err, b.validate(c))
	}
	return err
}

func (c *config) validateLocal() error { return c.CheckLocal(pool.CheckNode) }

func (c *config) parseTags() ([]cloud.Tag, error) {
	tags, err := controller.ParseTags(c.tagFlags)
	err = driver.InFlag("--tag", err)
	if c.clusterID != "" {
		err = errors.Join(err, driver.InFlag("--cluster-id", driver.CheckSegment("cluster id", c.clusterID)))
		tags = append(tags, cloud.Tag{Key: clusterTag, Value: c.clusterID})
	}
	return tags, err
}
