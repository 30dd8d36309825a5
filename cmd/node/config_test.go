package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func TestParseReportsEveryMistakeAtOnce(t *testing.T) {
	good := []string{"--cloud=local", "--local-pool=/pool", "--node-id=node-a"}
	tests := map[string]struct {
		args []string
		want []string // each is on a line of its own
	}{
		"no flags at all":                     {nil, []string{"--cloud: required"}},
		"a cloud that is not built in":        {[]string{"--cloud=mars"}, []string{`--cloud "mars"`}},
		"local without its flags":             {[]string{"--cloud=local"}, []string{"--local-pool: required", "--node-id: required"}},
		"a relative pool":                     {[]string{"--cloud=local", "--local-pool=pool", "--node-id=a"}, []string{`--local-pool "pool": not an absolute path`}},
		"a node id that is no node name":      {[]string{"--cloud=local", "--local-pool=/p", "--node-id=../a"}, []string{"--node-id"}},
		"an unknown flag and a wrong number":  {append(good, "--colour=red", "--max-volumes=many"), []string{"-colour", `--max-volumes "many"`}},
		"two unknown flags and a stray word":  {append(good, "--colour", "red", "--shape"), []string{"-colour", `argument "red"`, "-shape"}},
		"zero volumes":                        {append(good, "--max-volumes=0"), []string{"--max-volumes"}},
		"a number that does not fit":          {append(good, "--max-volumes=99999999999"), []string{"--max-volumes"}},
		"an endpoint that is no socket":       {append(good, "--endpoint=tcp://1.2.3.4:5"), []string{"endpoint"}},
		"an http endpoint without a port":     {append(good, "--http-endpoint=localhost"), []string{"--http-endpoint"}},
		"an http endpoint with a wrong port":  {append(good, "--http-endpoint=localhost:http"), []string{"--http-endpoint"}},
		"both log flags wrong":                {append(good, "--log-level=loud", "--log-format=xml"), []string{"--log-level", "--log-format"}},
		"a driver name that is no domain":     {append(good, "--driver-name=a/b"), []string{"--driver-name"}},
		"a topology key of another scope":     {append(good, "--topology-key=a.example/zone=zone"), []string{"--topology-key"}},
		"a mistake in each of several places": {[]string{"--log-level=x", "--max-volumes=-1", "--driver-name=-"}, []string{"--cloud", "--log-level", "--max-volumes", "--driver-name"}},
		"a flag without its value":            {append(good, "--log-level"), []string{"-log-level"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.args, &bytes.Buffer{})
			if !errors.Is(err, driver.ErrCommandLine) {
				t.Fatalf("parse(%q) = %v, want an error of the command line", tc.args, err)
			}
			got := strings.Split(err.Error(), "\n")[1:]
			if len(got) != len(tc.want) {
				t.Fatalf("parse(%q) names %d mistakes, want %d:\n%s", tc.args, len(got), len(tc.want), strings.Join(got, "\n"))
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("parse(%q) = %v, want it to name %s", tc.args, err, want)
				}
			}
		})
	}
}

func TestFlagsOfDisksAreCheckedAllAtOnce(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"a relative device folder":        {[]string{"--device-dir=by-id"}, []string{`--device-dir "by-id"`}},
		"a zone that is no label":         {[]string{"--zone=a b"}, []string{"--zone"}},
		"a pool":                          {[]string{"--local-pool=/p"}, []string{"--local-pool"}},
		"a metadata service with a query": {[]string{"--metadata-endpoint=http://127.0.0.1/?x"}, []string{"--metadata-endpoint"}},
		"reserved slots that are none":    {[]string{"--reserved-attachments=some"}, []string{"--reserved-attachments"}},
		"a negative number of them":       {[]string{"--reserved-attachments=-1"}, []string{"--reserved-attachments"}},
		"all slots reserved, none left":   {[]string{"--reserved-attachments=15"}, []string{"--reserved-attachments 15"}},
		"a mistake in each":               {[]string{"--zone=?", "--device-dir=x", "--reserved-attachments=x", "--max-volumes=0"}, []string{"--zone", "--device-dir", "--reserved-attachments", "--max-volumes"}},
		"a topology key of another scope": {[]string{"--topology-key=a.example/node=node"}, []string{"--topology-key"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(append([]string{"--cloud=digitalocean"}, tc.args...), &bytes.Buffer{})
			if !errors.Is(err, driver.ErrCommandLine) {
				t.Fatalf("parse(%q) = %v, want an error of the command line", tc.args, err)
			}
			if got := strings.Split(err.Error(), "\n")[1:]; len(got) != len(tc.want) {
				t.Fatalf("parse(%q) names %d mistakes, want %d:\n%s", tc.args, len(got), len(tc.want), strings.Join(got, "\n"))
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("parse(%q) = %v, want it to name %s", tc.args, err, want)
				}
			}
		})
	}
}

// A5 and A6: the limit leaves what is reserved to others and is never 0, which would mean no limit.
func TestTheLimitLeavesReservedSlotsAndIsNeverZero(t *testing.T) {
	for flags, want := range map[string]int64{
		"": 15, "--reserved-attachments=0": 15, "--reserved-attachments=1": 14, "--reserved-attachments=14": 1,
		"--max-volumes=7": 7, "--max-volumes=7 --reserved-attachments=3": 7, "--max-volumes=1": 1,
	} {
		cfg, err := parse(append([]string{"--cloud=digitalocean"}, strings.Fields(flags)...), &bytes.Buffer{})
		if err != nil || cfg.MaxVolumes != want {
			t.Errorf("parse(%q) = a limit of %d, %v, want %d", flags, cfg.MaxVolumes, err, want)
		}
	}
}

// Where the limit is the machine's, the flags leave it open until that is known.
func TestTheLimitOfAMachineThatSaysItIsLeftOpen(t *testing.T) {
	for flags, want := range map[string][2]int64{"": {0, 0}, "--reserved-attachments=60": {0, 60}, "--max-volumes=7 --reserved-attachments=3": {7, 3}} {
		cfg, err := parse(append([]string{"--cloud=linode"}, strings.Fields(flags)...), &bytes.Buffer{})
		if got := [2]int64{cfg.MaxVolumes, cfg.reservedSlots}; err != nil || got != want {
			t.Errorf("parse(%q) = a limit and a reserve of %d, %v, want %d", flags, got, err, want)
		}
	}
}

func TestParseReadsGoodCommandLines(t *testing.T) {
	cfg, err := parse([]string{
		"--cloud", "local", "--local-pool", "/pool", "--node-id", "node-a", "--max-volumes", "7",
		"--driver-name", "blocks.example", "--topology-key", "a.example/node=node", "--topology-key", "b.example/node=node",
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatalf("parse = %v, want no error", err)
	}
	if cfg.MaxVolumes != 7 || cfg.Names.Driver != "blocks.example" || len(cfg.Names.Topology) != 2 ||
		cfg.Endpoint != "unix:///csi/csi.sock" || cfg.LogLevel != "info" || cfg.LogFormat != "json" || cfg.HTTPEndpoint != "" {
		t.Errorf("parse = %+v, want the flags' values and the documented defaults", cfg)
	}
}

func TestHelpPrintsEveryFlagAndIsNoError(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"--help"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("parse(--help) = %v, want flag.ErrHelp", err)
	}
	var c config
	c.flags().VisitAll(func(f *flag.Flag) {
		if !strings.Contains(out.String(), "-"+f.Name) {
			t.Errorf("--help does not name -%s", f.Name)
		}
	})
}
