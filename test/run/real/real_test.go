//go:build real

package real

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

var (
	account  Account
	machines string
	cassette string
	volumes  = flag.Int("volumes", 400, "how many volumes and snapshots the run may make")
	limit    = flag.Duration("limit", time.Hour, "how long the run may take")
	cleaning = flag.Bool("clean", false, "only remove what an earlier run made")
	emulated = flag.Bool("emulated", false, "use an emulated account with two machines")

	spending *Budget
	mu       sync.Mutex
	parts    int
	outcome  = Outcomes{}
)

// nothingSent is the exit status of a run that did not begin; a panic has 2.
const nothingSent = 3

func TestMain(m *testing.M) {
	flag.StringVar(&account.Cloud, "cloud", "", "cloud of the account")
	flag.StringVar(&account.Run, "run-word", "", "six hexadecimal digits of this run alone")
	flag.StringVar(&account.TokenFile, "token-file", "", "file with the credentials")
	flag.StringVar(&account.Region, "region", "", "region, on Yandex Cloud the zone")
	flag.StringVar(&account.Folder, "folder", "", "folder on Yandex Cloud")
	flag.StringVar(&account.Endpoint, "endpoint", "", "another address of the API")
	flag.StringVar(&cassette, "cassette", "", "file for what is said to the API; none: nothing is recorded")
	flag.StringVar(&machines, "machines", "", "ids of two machines in the region, with a comma")
	flag.Parse()
	for id := range strings.SplitSeq(machines, ",") {
		if id != "" {
			account.Machines = append(account.Machines, cloud.NodeID(id))
		}
	}
	end := func() error { return nil }
	if *emulated {
		var err error
		if end, err = emulate(&account); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := account.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(nothingSent)
	}
	if *cleaning {
		os.Exit(clean())
	}
	if cassette != "" {
		account.Cassette = &Cassette{}
	}
	code := run(m)
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run runs everything, and returns the exit status.
func run(m *testing.M) int {
	spending = account.NewBudget(*volumes)
	account.Announce(os.Stdout, spending, *limit)
	patterns := make([]string, 0, len(account.LeftOut()))
	for _, l := range account.LeftOut() {
		patterns = append(patterns, "TestContract/"+l.Pattern)
	}
	if err := flag.Set("test.skip", strings.Join(patterns, "|")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return nothingSent
	}
	// A part that hangs ends here, too. What it has made is removed by the next program.
	time.AfterFunc(*limit, func() {
		report()
		fmt.Fprintf(os.Stderr, "the time limit of %s is over\n", *limit)
		os.Exit(1)
	})
	code := m.Run()
	report()
	return code
}

func report() {
	mu.Lock()
	defer mu.Unlock()
	account.Report(os.Stdout, outcome, spending)
	if cassette == "" {
		return
	}
	if err := account.Cassette.Write(cassette, account.prefix()); err != nil {
		fmt.Fprintln(os.Stderr, "the cassette:", err)
		return
	}
	fmt.Printf("\nwhat was said to the API, without credentials and names, is in %s (docs/contributing/testing.md)\n", cassette)
}

// clean removes what the run made, and returns the exit status.
func clean() int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	c, err := account.Open(ctx, View{})
	if err == nil {
		var removed []string
		removed, err = account.Clean(ctx, c, account.prefix())
		fmt.Printf("run %s left %d volumes and snapshots: %s\n", account.Run, len(removed), strings.Join(removed, ", "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// open returns a view of the account for one part, which finds it empty and leaves it so.
func open(t *testing.T, v View) cloud.Cloud {
	t.Helper()
	prefix := account.Prefix(v.Part)
	_, v.Name, _ = strings.Cut(strings.TrimPrefix(t.Name(), "Test"), "Contract/")
	if v.Name == "" {
		v.Name = strings.TrimPrefix(t.Name(), "Test")
	}
	c, err := account.Open(context.Background(), v)
	must(t, err)
	cloudtest.CloseAfter(t, c.Close)
	if !v.Denied && !v.Second {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			if _, err := account.Clean(ctx, c, prefix); err != nil {
				t.Error(err)
			}
		})
	}
	return NewGuard(c, prefix, account.Machines, spending)
}

// part returns the number of a new part, and records how it ends.
func part(t *testing.T) int {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	parts++
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		_, name, _ := strings.Cut(t.Name(), "/")
		if name == "" {
			name = strings.TrimPrefix(t.Name(), "Test")
		}
		outcome[name] = !t.Failed()
	})
	return parts
}

func TestContract(t *testing.T) {
	cloudtest.Run(t, cloudtest.Harness{
		New: func(t *testing.T) cloud.Cloud { return open(t, View{Part: part(t)}) },
		Pair: func(t *testing.T) (a, b cloud.Cloud) {
			n := part(t)
			return open(t, View{Part: n}), open(t, View{Part: n, Second: true})
		},
		Denied:     func(t *testing.T) cloud.Cloud { return open(t, View{Part: part(t), Denied: true}) },
		Zones:      []string{account.Region},
		Nodes:      append(account.Machines, "none", "none"),
		Size:       account.Size(),
		Parameters: account.Parameters(),
		Slow:       true,
		Patience:   5 * time.Minute,
	})
}

// A volume's life through what the controller puts around a backend: made, found, attached, grown, snapshotted, restored
// and deleted, each change twice, as sidecars repeat them.
func TestLife(t *testing.T) {
	c := middleware.Stack(open(t, View{Part: part(t)}), wait.Backoff{})
	caps, ctx := c.Capabilities(), t.Context()
	req := cloud.CreateVolumeRequest{
		Name: "pvc-6c4a4ee5-47e4-4e9f-8c1c-0d0a4f4f5a01", Size: account.Size(), Zones: []string{account.Region},
		Tags: []cloud.Tag{{Key: "purpose", Value: "e2e-real"}},
	}
	vol, err := c.CreateVolume(ctx, req)
	must(t, err)
	again, err := c.CreateVolume(ctx, req)
	must(t, err)
	if again.ID != vol.ID || vol.Size < req.Size || vol.Zone != account.Region {
		t.Fatalf("CreateVolume = %+v, then %+v", vol, again)
	}
	if caps.Attach {
		for _, node := range account.Machines {
			for range 2 {
				dev, err := c.Attach(ctx, vol.ID, node)
				must(t, err)
				if dev.Name == "" {
					t.Errorf("Attach to %s names no device: %+v", node, dev)
				}
			}
			must(t, c.Detach(ctx, vol.ID, node))
			must(t, c.Detach(ctx, vol.ID, node))
		}
	}
	grown, err := c.ExpandVolume(ctx, vol.ID, 2*vol.Size)
	must(t, err)
	if got, err := c.GetVolume(ctx, vol.ID); err != nil || grown.Size < 2*vol.Size || got.Size != grown.Size {
		t.Errorf("ExpandVolume = %+v, GetVolume = %+v, %v", grown, got, err)
	}
	if caps.Snapshots {
		restore(t, c, vol.ID, grown.Size)
	}
	must(t, c.DeleteVolume(ctx, vol.ID))
	must(t, c.DeleteVolume(ctx, vol.ID))
}

// restore takes a snapshot under the longest name that the provisioner gives one, and makes a volume of it.
func restore(t *testing.T, c cloud.Cloud, of cloud.VolumeID, size cloud.Bytes) {
	t.Helper()
	ctx, name := t.Context(), "snapshot-"+strings.Repeat("6c4a4ee5", 8)
	snap, err := c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: name, Volume: of})
	must(t, err)
	if found, err := c.FindSnapshot(ctx, name); err != nil || found.ID != snap.ID {
		t.Errorf("FindSnapshot = %+v, %v, want %s", found, err, snap.ID)
	}
	ready := time.NewTicker(time.Second)
	defer ready.Stop()
	for !snap.Ready {
		<-ready.C
		snap, err = c.GetSnapshot(ctx, snap.ID)
		must(t, err)
	}
	vol, err := c.CreateVolume(ctx, cloud.CreateVolumeRequest{
		Name: "restored", Size: size, Zones: []string{account.Region}, Source: cloud.Source{Snapshot: snap.ID},
	})
	must(t, err)
	must(t, c.DeleteSnapshot(ctx, snap.ID))
	must(t, c.DeleteVolume(ctx, vol.ID))
}
