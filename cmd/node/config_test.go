package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

func refusal(args []string) error {
	_, err := parse(args, nil, &bytes.Buffer{})
	return err
}

func TestEveryCloudThatAttachesIsKnown(t *testing.T) {
	for _, name := range profile.Names() {
		is, _ := profile.Of(name)
		if _, known := attachClouds[name]; known != (is.LinkPrefix != "") {
			t.Errorf("%s: attaches volumes by its profile: %t, here: %t", name, is.LinkPrefix != "", known)
		}
	}
}

func TestParseReportsEveryMistakeAtOnce(t *testing.T) {
	drivertest.WantRefused(t, refusal, drivertest.WrongFlags())
	drivertest.WantRefused(t, refusal, map[string]drivertest.CommandLine{
		"no flags at all":              {nil, []string{"--cloud: required"}},
		"a cloud that is not built in": {[]string{"--cloud=mars"}, []string{`--cloud "mars"`}},
		"flags of disks on local": {
			drivertest.Local("--zone=a", "--device-dir=/x", "--reserved-attachments=1", "--metadata-endpoint=http://127.0.0.1:1"),
			[]string{"--zone: there is no such thing with --cloud local", "--device-dir", "--reserved-attachments", "--metadata-endpoint"},
		},
	})
}

func TestFlagsOfDisksAreCheckedAllAtOnce(t *testing.T) {
	disks := func(more ...string) []string { return append([]string{"--cloud=digitalocean"}, more...) }
	drivertest.WantRefused(t, refusal, map[string]drivertest.CommandLine{
		"a relative kubelet folder":       {disks("--kubelet-dir=kubelet"), []string{`--kubelet-dir "kubelet"`}},
		"the root as kubelet folder":      {disks("--kubelet-dir=//"), []string{`--kubelet-dir "//"`}},
		"a relative cgroup folder":        {disks("--cgroup-dir=cgroup"), []string{`--cgroup-dir "cgroup"`}},
		"snapshots by clones elsewhere":   {disks("--linode-snapshots=clones"), []string{`--linode-snapshots "clones"`}},
		"a relative device folder":        {disks("--device-dir=by-id"), []string{`--device-dir "by-id"`}},
		"a zone that is no label":         {disks("--zone=a b"), []string{"--zone"}},
		"a pool":                          {disks("--local-pool=/p"), []string{"--local-pool"}},
		"a metadata service with a query": {disks("--metadata-endpoint=http://127.0.0.1/?x"), []string{"--metadata-endpoint"}},
		"reserved slots that are none":    {disks("--reserved-attachments=some"), []string{"--reserved-attachments"}},
		"a negative number of them":       {disks("--reserved-attachments=-1"), []string{"--reserved-attachments"}},
		"all slots reserved, none left":   {disks("--reserved-attachments=15"), []string{"--reserved-attachments 15"}},
		"a mistake in each":               {disks("--zone=?", "--device-dir=x", "--reserved-attachments=x", "--max-volumes=0"), []string{"--zone", "--device-dir", "--reserved-attachments", "--max-volumes"}},
		"a topology key of another scope": {disks("--topology-key=a.example/node=node"), []string{"--topology-key"}},
	})
}

// A5 and A6: the limit excludes the reserved slots and is never 0, which would mean no limit.
func TestTheLimitLeavesReservedSlotsAndIsNeverZero(t *testing.T) {
	for flags, want := range map[string]int64{
		"": 15, "--reserved-attachments=0": 15, "--reserved-attachments=1": 14, "--reserved-attachments=14": 1,
		"--max-volumes=7": 7, "--max-volumes=7 --reserved-attachments=3": 7, "--max-volumes=1": 1,
	} {
		cfg, err := parse(append([]string{"--cloud=digitalocean"}, strings.Fields(flags)...), nil, &bytes.Buffer{})
		if err != nil || cfg.MaxVolumes != want {
			t.Errorf("parse(%q) = a limit of %d, %v, want %d", flags, cfg.MaxVolumes, err, want)
		}
	}
}

// If the limit depends on the machine, the flags leave it open until it is known.
func TestTheLimitOfAMachineThatSaysItIsLeftOpen(t *testing.T) {
	for flags, want := range map[string][2]int64{"": {0, 0}, "--reserved-attachments=60": {0, 60}, "--max-volumes=7 --reserved-attachments=3": {7, 3}} {
		cfg, err := parse(append([]string{"--cloud=linode"}, strings.Fields(flags)...), nil, &bytes.Buffer{})
		if got := [2]int64{cfg.MaxVolumes, cfg.reservedSlots}; err != nil || got != want {
			t.Errorf("parse(%q) = a limit and a reserve of %d, %v, want %d", flags, got, err, want)
		}
	}
}

func TestParseReadsGoodCommandLines(t *testing.T) {
	cfg, err := parse([]string{
		"--cloud", "local", "--local-pool", "/pool", "--node-id", "node-a", "--max-volumes", "7",
		"--driver-name", "blocks.example", "--topology-key", "a.example/node=node", "--topology-key", "b.example/node=node",
	}, nil, &bytes.Buffer{})
	if err != nil {
		t.Fatalf("parse = %v, want no error", err)
	}
	if cfg.MaxVolumes != 7 || cfg.Names.Driver != "blocks.example" || len(cfg.Names.Topology) != 2 ||
		cfg.Endpoint != "unix:///csi/csi.sock" || cfg.LogLevel != "info" || cfg.LogFormat != "json" || cfg.HTTPEndpoint != "" || cfg.kubeletDir != "/var/lib/kubelet" {
		t.Errorf("parse = %+v, want the flags' values and the documented defaults", cfg)
	}
}

func TestVariablesSetFlags(t *testing.T) {
	environ := driver.Environment{"CLOUDBLOCK_FLAG_RESERVED_ATTACHMENTS=3", "CLOUDBLOCK_FLAG_CLUSTER_ID=of-the-controller"}
	got, err := parse([]string{"--cloud=digitalocean"}, environ, &bytes.Buffer{})
	if err != nil || got.MaxVolumes != 12 {
		t.Errorf("parse with %q = a limit of %d, %v, want 12", environ, got.MaxVolumes, err)
	}
	_, err = parse([]string{"--cloud=digitalocean"}, driver.Environment{"CLOUDBLOCK_FLAG_NODE_ID=1"}, &bytes.Buffer{})
	if !errors.Is(err, driver.ErrCommandLine) || !strings.Contains(err.Error(), "CLOUDBLOCK_FLAG_NODE_ID") {
		t.Errorf("parse with an id for all nodes = %v, want an error of the command line that names it", err)
	}
}
