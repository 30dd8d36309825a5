package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// client is a backend whose user is the test.
type client struct {
	*testing.T
	accounts.Account

	b     Backend
	nodes []cloud.NodeID
}

// simulated plays in simulated time with an account of each cloud that has two machines.
func simulated(t *testing.T, opts accounts.Options, play func(c client)) {
	opts.Machines = 2
	for _, name := range accounts.Names() {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { play(start(t, name, opts)) }) })
	}
}

func start(t *testing.T, name string, opts accounts.Options) client {
	t.Helper()
	a, err := accounts.Start(name, opts)
	cloudtest.Must(t, err)
	t.Cleanup(func() { cloudtest.Must(t, a.Close()) })
	b, err := Open(t.Context(), a, Config{ClusterID: "one", SweepEvery: -1})
	cloudtest.Must(t, err)
	cloudtest.CloseAfter(t, b.Close)
	c := client{T: t, Account: a, b: b}
	for _, id := range a.Machines() {
		c.nodes = append(c.nodes, cloud.NodeID(id))
	}
	return c
}

func (c client) create(ctx context.Context, name string) (cloud.VolumeID, error) {
	vol, err := c.b.CreateVolume(ctx, cloud.CreateVolumeRequest{Name: name, Size: cloud.Bytes(c.Size()), Zones: []string{c.Region()}})
	return vol.ID, err
}

func (c client) volume(name string) cloud.VolumeID {
	c.Helper()
	id, err := c.create(c.Context(), name)
	cloudtest.Must(c.T, err)
	return id
}

func (c client) attach(id cloud.VolumeID) cloud.Device {
	c.Helper()
	dev, err := c.b.Attach(c.Context(), id, c.nodes[0])
	cloudtest.Must(c.T, err)
	return dev
}

func (c client) detach(id cloud.VolumeID) {
	c.Helper()
	cloudtest.Must(c.T, c.b.Detach(c.Context(), id, c.nodes[0]))
}

func (c client) violations(want int) {
	c.Helper()
	if got := c.Violations(); len(got) != want {
		c.Errorf("Violations() = %q, want %d", got, want)
	}
}

func (c client) names() (all []string) {
	c.Helper()
	list, err := c.b.ListVolumes(c.Context(), cloud.Page{})
	cloudtest.Must(c.T, err)
	for _, vol := range list.Volumes {
		if vol.Name != "" { // a machine boots from it
			all = append(all, vol.Name)
		}
	}
	slices.Sort(all)
	return all
}

func TestADetachOfWhatIsHeldIsAViolation(t *testing.T) {
	simulated(t, accounts.Options{}, func(c client) {
		id := c.volume("vol-1")
		c.attach(id)
		release := c.Hold(string(id))
		c.detach(id)
		c.violations(1)
		for _, got := range c.Violations() {
			if !strings.Contains(got, "vol-1") || !strings.Contains(got, string(c.nodes[0])) {
				c.Errorf("the violation is %q, want the volume and the machine named", got)
			}
		}
		release()
		c.attach(id)
		c.detach(id)
		c.violations(1)
	})
}

// Who used the volume is gone with the machine, so that is no violation; the volume's record names the machine for a while.
func TestAMachineThatIsGoneFreesItsVolumesLater(t *testing.T) {
	simulated(t, accounts.Options{}, func(c client) {
		id := c.volume("vol-1")
		c.attach(id)
		c.Hold(string(id))
		c.RemoveMachine(string(c.nodes[0]), time.Second)
		c.violations(0)
		for _, want := range []string{string(c.nodes[0]), ""} {
			if got := accounts.Find(c.Account, string(id)).Machine; got != want {
				c.Errorf("the record names machine %q, want %q", got, want)
			}
			time.Sleep(3 * time.Second)
		}
		if left := c.Machines(); len(left) != 1 {
			c.Errorf("the machines %v are left", left)
		}
	})
}

func TestReadsCanBeStale(t *testing.T) {
	simulated(t, accounts.Options{}, func(c client) {
		c.volume("vol-1")
		time.Sleep(time.Minute)
		c.volume("vol-2")
		for want, effect := range map[string]faults.Effect{
			"[vol-1]":       {StaleAge: clock.Fixed(30 * time.Second)},
			"[]":            {StaleChanges: 1000},
			"[vol-1 vol-2]": {},
		} {
			armed := c.Arm(faults.Fault{Effect: effect})
			if got := fmt.Sprint(c.names()); got != want {
				c.Errorf("with %+v the list is %s, want %s", effect, got, want)
			}
			armed.Disarm()
		}
	})
}

func TestACallerThatGoesStopsNothing(t *testing.T) {
	simulated(t, accounts.Options{}, func(c client) {
		c.volume("vol-1") // what is read once is read
		c.Arm(faults.Fault{Times: 1, Effect: faults.Effect{Delay: clock.Fixed(time.Minute)}})
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		if _, err := c.create(ctx, "vol-2"); !errors.Is(err, context.DeadlineExceeded) {
			c.Errorf("CreateVolume = %v, want the end of its context", err)
		}
		for _, want := range []int{1, 2} {
			if got := c.Volumes(); len(got) != want {
				c.Errorf("the volumes are %+v, want %d", got, want)
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// Operations last as they are told to, by the account's clock, and are remembered by the wall's.
func TestTimeCanRunFaster(t *testing.T) {
	simulated(t, accounts.Options{Speed: 60, Takes: clock.Fixed(10 * time.Minute)}, func(c client) {
		id := c.volume("vol-1")
		c.attach(id)
		c.detach(id)
		cloudtest.Must(c.T, c.b.DeleteVolume(c.Context(), id))
		var kinds []string
		for _, op := range c.Operations() {
			kinds = append(kinds, op.Kind)
			if took := op.Finished.Sub(op.Accepted); op.Volume != "vol-1" || op.Kind == accounts.Attach && took != 10*time.Second {
				c.Errorf("%+v took %s, want ten minutes in ten seconds", op, took)
			}
		}
		if want := []string{accounts.Create, accounts.Attach, accounts.Detach, accounts.Delete}; !slices.Equal(kinds, want) || c.Stats().Writes != len(want) {
			c.Errorf("operations %q, %d writes, want %q", kinds, c.Stats().Writes, want)
		}
	})
}

func TestDecideIsAskedAboutEachRequest(t *testing.T) {
	changes := 0
	opts := accounts.Options{Decide: func(call accounts.Call) faults.Effect {
		if call.Volume == "vol-1" {
			changes++
		}
		if call.Volume == "vol-2" {
			return faults.Effect{Lost: faults.LostBefore}
		}
		return faults.Effect{}
	}}
	simulated(t, opts, func(c client) {
		changes = 0
		c.attach(c.volume("vol-1"))
		if _, err := c.create(c.Context(), "vol-2"); err == nil || changes < 2 {
			c.Errorf("CreateVolume of what is lost = %v, after %d requests about the other volume", err, changes)
		}
	})
}

// owner asks for something below /_emulator/.
func (c client) owner(method, path, body string) (int, string) {
	answer := httptest.NewRecorder()
	c.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(c.Context(), method, "/_emulator/"+path, strings.NewReader(body)))
	return answer.Code, answer.Body.String()
}

func TestTheOwnersSideIsServed(t *testing.T) {
	simulated(t, accounts.Options{}, func(c client) {
		id, machines := string(c.volume("vol-1")), c.Kind()+"s"
		c.Attached(id, string(c.nodes[1]))
		for _, row := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"GET", "stats", "", 200, `"writes": 1`},
			{"GET", "volumes", "", 200, `vol-1`},
			{"GET", "operations", "", 200, `create`},
			{"GET", "violations", "", 200, "null"},
			{"GET", "exchanges", "", 200, `"status"`},
			{"GET", "nothing", "", 404, ""},
			{"PATCH", "settings", `{"durations": {"attach": "1h+1m"}}`, 200, `"attach": "1h0m0s+1m0s"`},
			{"PATCH", "settings", `{"rules": {"no_such_rule": 1}}`, 400, "unknown field"},
			{"GET", "settings", "", 200, `"attach": "1h0m0s+1m0s"`},
			{"POST", machines, `{"nam": "a"}`, 400, "unknown field"},
			{"POST", machines, "", 200, `"metadata"`},
			{"DELETE", machines + "/" + string(c.nodes[1]) + "?lag=soon", "", 400, "soon"},
			{"DELETE", machines + "/" + string(c.nodes[1]) + "?lag=1h", "", 200, string(c.nodes[0])},
			{"POST", "faults", `{"metod": "GET"}`, 400, "unknown field"},
			{"POST", "faults", `{"times": 1, "lost": "before"}`, 200, `"lost": "before"`},
		} {
			status, body := c.owner(row.method, row.path, row.body)
			if status != row.status || !strings.Contains(body, row.want) {
				c.Errorf("%s %s = %d %s, want %d with %q", row.method, row.path, status, body, row.status, row.want)
			}
		}
		if _, err := c.create(c.Context(), "vol-2"); err == nil {
			c.Error("CreateVolume succeeded, although its request was to be lost")
		}
		var ids []any
		if _, body := c.owner(http.MethodGet, machines, ""); json.Unmarshal([]byte(body), &ids) != nil || len(ids) != 2 {
			c.Errorf("the machines are %s, want one fewer and one more", body)
		}
		if got := accounts.Find(c.Account, id).Machine; got != string(c.nodes[1]) {
			c.Errorf("the record names machine %q, want %s for an hour", got, c.nodes[1])
		}
		if _, body := c.owner(http.MethodPost, "reset", ""); c.Stats().Writes != 0 || len(c.Operations()) != 0 {
			c.Errorf("after a reset: %s, %+v", body, c.Operations())
		}
	})
}

// The node program reads the profile, the controller asks the backend: both are one plugin.
func TestABackendIsWhatItsProfileSays(t *testing.T) {
	for _, name := range accounts.Names() {
		is := start(t, name, accounts.Options{}).b.Capabilities()
		got := profile.Cloud{Scope: string(is.Scope), SnapshotZones: is.SnapshotZones, SnapshotBlocks: is.SnapshotBlocks}
		want, _ := profile.Of(name)
		if got.Scope != want.Scope || got.SnapshotZones != want.SnapshotZones || got.SnapshotBlocks != want.SnapshotBlocks {
			t.Errorf("%s: the backend is %+v, its profile %+v", name, got, want)
		}
	}
}
