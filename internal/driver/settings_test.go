package driver

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// settable has a program's flags: some settings, one that no variable sets, and one that is not a string.
type settable struct {
	cluster, nodeID, limits, pool string
	tags                          []string
	wait                          time.Duration
}

func (s *settable) parse(environ Environment, args ...string) error {
	fs := flag.NewFlagSet("program", flag.ContinueOnError)
	fs.StringVar(&s.cluster, "cluster-id", "unset", "")
	fs.StringVar(&s.nodeID, "node-id", "", "")
	fs.StringVar(&s.limits, "api-limits", "", "")
	fs.DurationVar(&s.wait, "operation-timeout", time.Minute, "")
	fs.Var(List(&s.tags), "tag", "")
	settings := SettingsOf(fs, "zone", "local-pool")
	fs.StringVar(&s.pool, "local-pool", "", "") // a flag of a sub-command, which registers it after the settings
	if err := ParseArgs(fs, args, io.Discard, ""); err != nil {
		return err
	}
	return settings.Read(fs, environ)
}

func TestVariablesSetFlags(t *testing.T) {
	tests := map[string]struct {
		environ Environment
		args    []string
		want    settable
	}{
		"nothing set": {Environment{"PATH=/bin"}, nil, settable{cluster: "unset", wait: time.Minute}},
		"each of its kind, and one of the other program": {
			Environment{
				"CLOUDBLOCK_FLAG_CLUSTER_ID=prod", "CLOUDBLOCK_FLAG_OPERATION_TIMEOUT=90s", "CLOUDBLOCK_FLAG_TAG=a=1,b=2",
				"CLOUDBLOCK_FLAG_API_LIMITS=250/1m,5000/1h", "CLOUDBLOCK_FLAG_ZONE=z", "CLOUDBLOCK_BIN=/bin",
			},
			nil, settable{cluster: "prod", wait: 90 * time.Second, tags: []string{"a=1", "b=2"}, limits: "250/1m,5000/1h"},
		},
		"the command line wins": {
			Environment{"CLOUDBLOCK_FLAG_CLUSTER_ID=prod", "CLOUDBLOCK_FLAG_TAG=a=1"},
			[]string{"--cluster-id=", "--tag=list=1,2"}, settable{wait: time.Minute, tags: []string{"list=1,2"}},
		},
		"empty is not set": {
			Environment{"CLOUDBLOCK_FLAG_CLUSTER_ID=", "CLOUDBLOCK_FLAG_OPERATION_TIMEOUT=", "CLOUDBLOCK_FLAG_TAG="},
			nil, settable{cluster: "unset", wait: time.Minute},
		},
		"a flag of the sub-command alone": {Environment{"CLOUDBLOCK_FLAG_LOCAL_POOL=/pool"}, nil, settable{cluster: "unset", wait: time.Minute}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got settable
			if err := got.parse(tc.environ, tc.args...); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.tags, tc.want.tags) {
				t.Errorf("the tags are %q, want %q", got.tags, tc.want.tags)
			}
			got.tags, tc.want.tags = nil, nil
			if got.cluster != tc.want.cluster || got.wait != tc.want.wait || got.limits != tc.want.limits || got.pool != tc.want.pool {
				t.Errorf("%q and %q set %+v, want %+v", tc.environ, tc.args, got, tc.want)
			}
		})
	}
}

func TestWrongVariablesAreReportedAllAtOnce(t *testing.T) {
	var s settable
	err := s.parse(Environment{
		"CLOUDBLOCK_FLAG_CLUSTERID=prod", "CLOUDBLOCK_FLAG_NODE_ID=same-on-all", "CLOUDBLOCK_FLAG_cluster_id=prod",
		"CLOUDBLOCK_FLAG_VERSION=true", "CLOUDBLOCK_FLAG_OPERATION_TIMEOUT=long",
	})
	if err == nil || len(strings.Split(err.Error(), "\n")) != 5 || !strings.Contains(err.Error(), `OPERATION_TIMEOUT="long"`) {
		t.Errorf("the wrong variables are reported as\n%v\nwant all five", err)
	}
	if s.nodeID != "" {
		t.Errorf("--node-id is %q, which no variable sets", s.nodeID)
	}
}

// A flag that package flag cannot split is one mistake among others. Parse leaves it where it is, so that a loop over what is left would
// never end.
func TestArgsThatAreNoFlags(t *testing.T) {
	for _, wrong := range []string{"---cloud=linode", "-=", "--=x", "---"} {
		var f Flags
		fs := flag.NewFlagSet("program", flag.ContinueOnError)
		f.Register(fs)
		said := 0
		fs.Usage = func() { // package flag calls it at each mistake
			if said++; said > 2 {
				t.Fatalf("%s: the parsing does not end", wrong)
			}
		}
		err := ParseArgs(fs, []string{"--cloud=local", wrong, "extra", "--log-level=debug"}, io.Discard, "")
		if err == nil || strings.Count(err.Error(), "bad flag syntax: "+wrong) != 1 || !strings.Contains(err.Error(), "extra") || f.LogLevel != "debug" {
			t.Errorf("%s: %v and --log-level %s, want both mistakes, once, and the flags around them", wrong, err, f.LogLevel)
		}
	}
}
