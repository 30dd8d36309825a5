package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

const usage = "Usage: cloudblock-node --cloud local --local-pool DIR --node-id NAME [flags]"

// config is what the flags say.
type config struct{ driver.Flags }

// clouds are the backends this program knows, each with what its volumes are bound to.
var clouds = driver.Scopes{"local": driver.ScopeNode}

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("cloudblock-node", flag.ContinueOnError)
	c.Register(fs, clouds)
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

// validate reports every mistake.
func (c *config) validate() error {
	err := c.Check(clouds)
	if c.Cloud == "local" {
		err = errors.Join(err, c.CheckLocal(pool.CheckNode))
	}
	return err
}
