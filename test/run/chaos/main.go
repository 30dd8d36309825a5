package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/sim"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// options are the command line.
type options struct {
	cloud       string
	runs        int
	seed        uint64
	controllers int
	verbose     bool
	binary      string
	parallel    int
	plant       string
}

func main() {
	testing.Init() // simulated time is to be had only inside of a test
	var o options
	flag.StringVar(&o.cloud, "cloud", "digitalocean", "the cloud: "+strings.Join(slices.Sorted(maps.Keys(world.Scenes)), ", "))
	flag.IntVar(&o.runs, "runs", 100, "how many runs")
	flag.Uint64Var(&o.seed, "seed", 1, "the seed of the first run; each later one has the next number")
	flag.IntVar(&o.controllers, "controllers", 1, "how many controllers share the cloud: 1 or 2")
	flag.BoolVar(&o.verbose, "history", false, "print the history of every run")
	flag.StringVar(&o.binary, "binary", "", "play with the real program in this `folder`, in real time, and kill -9")
	flag.IntVar(&o.parallel, "parallel", 6, "how many runs with the real program at once")
	flag.StringVar(&o.plant, "plant", "", "give Linode's backend a `fault`, which a run has to find: "+world.UnreadDelete)
	flag.Parse()
	if o.plant != "" && (o.plant != world.UnreadDelete || o.cloud != "linode" || o.binary != "") {
		fmt.Fprintf(os.Stderr, "chaos: -plant is %s, with -cloud linode and without -binary\n", world.UnreadDelete)
		os.Exit(2)
	}
	if o.controllers < 1 || o.controllers > 2 || o.runs < 1 {
		fmt.Fprintln(os.Stderr, "chaos: -controllers is 1 or 2, -runs at least 1")
		os.Exit(2)
	}
	played, err := world.SceneOf(o.cloud)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if o.binary != "" {
		os.Exit(exitCode(campaignBinary(o, played)))
	}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "chaos",
		F:    func(t *testing.T) { os.Exit(exitCode(campaign(t, o, sim.Setup{Scene: played, Unread: o.plant != ""}))) },
	}}, nil, nil)
}

func exitCode(ok bool) int {
	if ok {
		return 0
	}
	return 1
}
