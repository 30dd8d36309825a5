package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// The profiles, from which the flags are checked, have the same clouds as the program's table.
func TestEveryCloudHasABackend(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(backends)), profile.Names(); !slices.Equal(got, want) {
		t.Errorf("the backends are %v, the profiles %v", got, want)
	}
}

func TestParseReportsEveryMistakeAtOnce(t *testing.T) {
	drivertest.WantRefused(t, refusal, drivertest.WrongFlags())
	drivertest.WantRefused(t, refusal, map[string]drivertest.CommandLine{
		"no flags at all":               {nil, []string{"--cloud: required: digitalocean, "}},
		"a cloud that is not built in":  {[]string{"--cloud=mars"}, []string{`--cloud "mars": known are digitalocean, `}},
		"the sub-command behind a flag": {drivertest.Local("volumes"), []string{`argument "volumes"`}},
		"a tag without a value":         {drivertest.Local("--tag=a"), []string{"--tag: entry 1"}},
		"a tag given twice":             {drivertest.Local("--tag=a=1", "--tag=a=2"), []string{"--tag: entry 2 repeats"}},
		"a tag of the driver's own":     {drivertest.Local("--tag=cloudblock-pv=x"), []string{"--tag"}},
		"a cluster id that is no label": {drivertest.Local("--cluster-id=a b", "--tag=x"), []string{"--tag", "--cluster-id"}},
		"a mistake in each of several places": {
			[]string{"--log-level=x", "--max-volumes=-1", "--driver-name=-", "--topology-key=q", "--tag=="},
			[]string{"--cloud", "--log-level", "--max-volumes", "--driver-name", "--topology-key", "--tag"},
		},
	})
}

func TestParseReadsGoodCommandLines(t *testing.T) {
	short, err := parse([]string{"--cloud=local", "--local-pool=/pool", "--node-id=node-a"}, noEnvironment, &bytes.Buffer{})
	ok(t, err)
	if short.Endpoint != "unix:///csi/csi.sock" || short.LogLevel != "info" || short.LogFormat != "json" || short.HTTPEndpoint != "" ||
		short.Names.Driver != "local.csi.cloudblock.io" || len(short.tags) > 0 ||
		short.LocalNode() != (driver.NodeInfo{ID: "node-a", Zone: "node-a"}) {
		t.Errorf("parse = %+v, want the documented defaults", short)
	}
	long, err := parse([]string{
		"--cloud", "local", "--local-pool", "/pool", "--node-id", "node-a", "--max-volumes", "7", "--http-endpoint", ":8080",
		"--driver-name", "blocks.example", "--topology-key", "a.example/node=node", "--topology-key", "b.example/node=node",
		"--cluster-id", "prod-1", "--tag", "team=a", "--tag", "list=1,2",
	}, noEnvironment, &bytes.Buffer{})
	ok(t, err)
	wantTags := []cloud.Tag{{Key: "team", Value: "a"}, {Key: "list", Value: "1,2"}, {Key: "cloudblock-cluster", Value: "prod-1"}}
	if long.LocalNode().MaxVolumes != 7 || long.Names.Driver != "blocks.example" || len(long.Names.Topology) != 2 ||
		!reflect.DeepEqual(long.tags, wantTags) {
		t.Errorf("parse = %+v, want the flags' values", long)
	}
}

var noEnvironment driver.Environment

// refusal returns the error about a command line.
func refusal(args []string) error {
	_, err := parse(args, noEnvironment, &bytes.Buffer{})
	return err
}

func TestVariablesSetFlags(t *testing.T) {
	environ := driver.Environment{"CLOUDBLOCK_FLAG_CLUSTER_ID=prod", "CLOUDBLOCK_FLAG_TAG=a=1,b=2", "CLOUDBLOCK_FLAG_ZONE=of-the-node-program"}
	got, err := parse(drivertest.Local("--tag=c=3"), environ, &bytes.Buffer{})
	want := []cloud.Tag{{Key: "c", Value: "3"}, {Key: clusterTag, Value: "prod"}}
	if err != nil || !slices.Equal(got.tags, want) {
		t.Errorf("parse with %q = the tags %v, %v, want %v", environ, got.tags, err, want)
	}
	_, err = parse(drivertest.Local(), driver.Environment{"CLOUDBLOCK_FLAG_CLUSTERID=prod"}, &bytes.Buffer{})
	if !errors.Is(err, driver.ErrCommandLine) || !strings.Contains(err.Error(), "CLOUDBLOCK_FLAG_CLUSTERID") {
		t.Errorf("parse with a variable of no flag = %v, want an error of the command line that names it", err)
	}
}

// CSI bounds the length of an id: a volume with a longer one would be created, and could then neither be used nor deleted.
func TestEachIDOfAPoolIsAccepted(t *testing.T) {
	node, longest := strings.Repeat("n", 63), strings.Repeat("p", 26)
	parsed := func(name string) error {
		_, err := parse([]string{"--cloud=local", "--node-id=" + node, "--local-pool=" + name + "=/pool"}, noEnvironment, io.Discard)
		return err
	}
	h := pool.Handle{Node: node, Pool: longest, ID: pool.NewID()}
	if err := errors.Join(parsed(longest), driver.CheckVolumeID("id", h.String()), driver.CheckSnapshotID("id", h.Snapshot())); err != nil {
		t.Errorf("the longest names: %v", err)
	}
	h.Pool += "p"
	if driver.CheckSnapshotID("id", h.Snapshot()) == nil {
		t.Errorf("the id %s is accepted, so the pool's name is not too long", h.Snapshot())
	}
	if err := parsed(h.Pool); !errors.Is(err, driver.ErrCommandLine) || !strings.Contains(err.Error(), "more than the 26 characters") {
		t.Errorf("a pool's name that is one character too long: %v, want that it is refused", err)
	}
}
