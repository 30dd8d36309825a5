package main

import (
	"bytes"
	"errors"
	"flag"
	"reflect"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func TestParseReportsEveryMistakeAtOnce(t *testing.T) {
	good := []string{"--cloud=local", "--local-pool=/pool", "--node-id=node-a"}
	with := func(more ...string) []string { return append(good[:len(good):len(good)], more...) }
	tests := map[string]struct {
		args []string
		want []string // each is on a line of its own
	}{
		"no flags at all":                    {nil, []string{"--cloud: required: digitalocean, linode, local"}},
		"a cloud that is not built in":       {[]string{"--cloud=mars"}, []string{`--cloud "mars": known are digitalocean, linode, local`}},
		"local without its flags":            {[]string{"--cloud=local"}, []string{"--local-pool: required", "--node-id: required"}},
		"a relative pool":                    {[]string{"--cloud=local", "--local-pool=pool", "--node-id=a"}, []string{`--local-pool "pool": not an absolute path`}},
		"a node id that is no node name":     {[]string{"--cloud=local", "--local-pool=/p", "--node-id=../a"}, []string{"--node-id"}},
		"an unknown flag and a wrong number": {with("--colour=red", "--max-volumes=many"), []string{"-colour", `--max-volumes "many"`}},
		"two unknown flags and a stray word": {with("--colour", "red", "--shape"), []string{"-colour", `argument "red"`, "-shape"}},
		"the sub-command behind a flag":      {with("volumes"), []string{`argument "volumes"`}},
		"zero volumes":                       {with("--max-volumes=0"), []string{"--max-volumes"}},
		"a number that does not fit":         {with("--max-volumes=99999999999"), []string{"--max-volumes"}},
		"an endpoint that is no socket":      {with("--endpoint=tcp://1.2.3.4:5"), []string{"--endpoint"}},
		"an endpoint with a relative path":   {with("--endpoint=unix://csi.sock"), []string{"--endpoint"}},
		"an http endpoint without a port":    {with("--http-endpoint=localhost"), []string{"--http-endpoint"}},
		"an http endpoint with a named port": {with("--http-endpoint=localhost:http"), []string{"--http-endpoint"}},
		"both log flags wrong":               {with("--log-level=loud", "--log-format=xml"), []string{"--log-level", "--log-format"}},
		"a driver name that is no domain":    {with("--driver-name=a/b"), []string{"--driver-name"}},
		"a topology key of another scope":    {with("--topology-key=a.example/zone=zone"), []string{"--topology-key"}},
		"a tag without a value":              {with("--tag=a"), []string{"--tag: entry 1"}},
		"a tag given twice":                  {with("--tag=a=1", "--tag=a=2"), []string{"--tag: entry 2 repeats"}},
		"a tag of the driver's own":          {with("--tag=cloudblock-pv=x"), []string{"--tag"}},
		"a cluster id that is no label":      {with("--cluster-id=a b", "--tag=x"), []string{"--tag", "--cluster-id"}},
		"a flag without its value":           {with("--log-level"), []string{"-log-level"}},
		"a mistake in each of several places": {
			[]string{"--log-level=x", "--max-volumes=-1", "--driver-name=-", "--topology-key=q", "--tag=="},
			[]string{"--cloud", "--log-level", "--max-volumes", "--driver-name", "--topology-key", "--tag"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { wantMistakes(t, tc.args, tc.want) })
	}
}

func TestParseReadsGoodCommandLines(t *testing.T) {
	short, err := parse([]string{"--cloud=local", "--local-pool=/pool", "--node-id=node-a"}, noEnvironment, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	wantTags := []cloud.Tag{{Key: "team", Value: "a"}, {Key: "list", Value: "1,2"}, {Key: "cloudblock-cluster", Value: "prod-1"}}
	if long.LocalNode().MaxVolumes != 7 || long.Names.Driver != "blocks.example" || len(long.Names.Topology) != 2 ||
		!reflect.DeepEqual(long.tags, wantTags) {
		t.Errorf("parse = %+v, want the flags' values", long)
	}
}

func TestHelpPrintsEveryFlagAndIsNoError(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"--help"}, noEnvironment, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("parse(--help) = %v, want flag.ErrHelp", err)
	}
	var c config
	c.flags().VisitAll(func(f *flag.Flag) {
		if !strings.Contains(out.String(), "-"+f.Name) {
			t.Errorf("--help does not name -%s", f.Name)
		}
	})
}

func noEnvironment(string) string { return "" }

// wantMistakes wants a command line to be refused with exactly as many mistakes as words, and each word in
// the message.
func wantMistakes(t *testing.T, args, words []string) {
	t.Helper()
	_, err := parse(args, noEnvironment, &bytes.Buffer{})
	if !errors.Is(err, driver.ErrCommandLine) {
		t.Fatalf("parse(%q) = %v, want an error of the command line", args, err)
	}
	if got := strings.Split(err.Error(), "\n")[1:]; len(got) != len(words) {
		t.Fatalf("parse(%q) names %d mistakes, want %d:\n%s", args, len(got), len(words), strings.Join(got, "\n"))
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("parse(%q) = %v, want it to name %s", args, err, want)
		}
	}
}
