//go:build e2e

package monitoring

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const mib = int64(1) << 20

// The drivers of the run. One has the name of a vendor's driver.
const (
	cloudDriver, localDriver = "dobs.csi.digitalocean.com", "local.csi.cloudblock.io"
	everyDriver              = cloudDriver + "|" + localDriver
)

// scraped adds the name of the driver, and an address for the metrics of each program, to a cloud.
type scraped struct {
	programs.Cloud
	driver, controller, node string
	machine                  []string // more flags of the node program
}

func (s scraped) Controller(dir string) ([]string, error) {
	flags, err := s.Cloud.Controller(dir)
	return append(flags, "--driver-name="+s.driver, "--http-endpoint="+s.controller), err
}

func (s scraped) Machine(dir string) ([]string, error) {
	flags, err := s.Cloud.Machine(dir)
	return append(append(flags, "--driver-name="+s.driver, "--http-endpoint="+s.node), s.machine...), err
}

// pool is the cloud `local` on a filesystem of its own.
type pool struct{ dir string }

func (pool) Name() string { return "local" }
func (p pool) Controller(string) ([]string, error) {
	return []string{"--local-pool=" + p.dir, "--node-id=node-a"}, nil
}
func (p pool) Machine(dir string) ([]string, error) { return p.Controller(dir) }

// site is everything that Prometheus scrapes.
type site struct {
	*prometheus
	account     accounts.Account
	cloud, here *programs.Pair
	others      *others
	targets     []target
	recording   *recording
}

// TestAlertsAndDashboard plants faults into the real programs while one controller serves many volumes. With minutes made
// seconds, each alert fires and clears. All calls succeed in the end, and then each query of the dashboard has an answer.
func TestAlertsAndDashboard(t *testing.T) {
	s := start(t)
	l := newLoad(s)
	run := func(name string, check func(*testing.T, *site)) {
		if !t.Run(name, func(t *testing.T) { check(t, s) }) {
			t.FailNow()
		}
	}
	attached := s.begin(t, 0, volumes, "created and attached", l.attached)
	run("the volumes of a node", nodeAlerts)
	run("a pool", poolAlert)
	run("slots", slotAlert)
	attached()
	eventually(t, "most of the API budget is there again", func() bool {
		return s.query(t, `cloudblock_api_budget_left{window="1m0s"} > 150`) > 0
	})
	drained := s.begin(t, 0, moved, "moved", l.moved)
	run("the cloud", cloudAlerts)
	deleted := s.begin(t, moved, volumes, "detached and deleted", l.deleted)
	run("the credentials file", fileAlert)
	run("the rate limit", limitAlert)
	drained()
	deletedToo := s.begin(t, 0, moved, "detached and deleted", l.deleted)
	deleted()
	deletedToo()
	l.gone(t)
	run("one of the drivers", absentAlert)

	s.quiet(t)
	for _, target := range s.targets[:4] {
		checkMetrics(t, target.address)
	}
	end := s.inUse(t)
	checkDashboard(t, s.prometheus)
	checkClaims(t, s)
	end()
	checkEveryAlert(t, s.prometheus)
	if file := os.Getenv("CLOUDBLOCK_RECORDING"); file != "" {
		s.recording.write(t, s.prometheus, file)
	}
}

// quiet waits until no alert fires.
func (s *site) quiet(t *testing.T) {
	t.Helper()
	eventually(t, "no alert fires", func() bool { return len(s.firing(t)) == 0 })
}

func start(t *testing.T) *site {
	t.Helper()
	bin := os.Getenv("CLOUDBLOCK_BIN")
	if bin == "" || os.Geteuid() != 0 {
		t.Fatal("run `make e2e-monitoring` as root")
	}
	dir, err := os.MkdirTemp("", "cloudblock-monitoring-")
	must(t, err)
	t.Cleanup(func() { must(t, programs.Clean(dir)) })
	s := &site{others: &others{}, recording: &recording{began: time.Now()}}
	stub := httptest.NewServer(s.others)
	t.Cleanup(stub.Close)
	for _, pod := range []string{"cloud-controller", "cloud-node", "local-controller", "local-node"} {
		s.targets = append(s.targets, target{pod, drivertest.FreeAddress(t)})
	}
	s.targets = append(s.targets, target{"others", strings.TrimPrefix(stub.URL, "http://")})
	s.prometheus = startPrometheus(t, s.targets)
	end := s.recording.begin("fault", "no program runs")
	s.fires(t, "CloudblockAbsent")
	end()

	s.account, err = accounts.Start("digitalocean", accounts.Options{
		DataDir: filepath.Join(dir, "data"), Machines: machines, Takes: clock.Span{Least: time.Second, Spread: 2 * time.Second},
		// Twice what an account has by default, and twice as fast a test.
		Limits: []rest.Limit{{Requests: 500, Window: time.Minute}, {Requests: 10000, Window: time.Hour}},
	})
	must(t, err)
	t.Cleanup(func() { _ = s.account.Close() })
	must(t, s.account.Listen(t.Context(), "127.0.0.1:0"))
	s.cloud, err = programs.Start(t.Context(), programs.Options{
		Bin: bin, Dir: filepath.Join(dir, "cloud"),
		Cloud: scraped{s.account, cloudDriver, s.targets[0].address, s.targets[1].address, []string{"--max-volumes=1"}},
	})
	must(t, err)
	t.Cleanup(s.cloud.Stop)
	disk, mounted := filepath.Join(dir, "disk"), filepath.Join(dir, "pool-disk")
	must(t, os.WriteFile(disk, nil, 0o600))
	must(t, os.Truncate(disk, 1024*mib))
	must(t, os.Mkdir(mounted, 0o700))
	command(t, "mkfs.ext4", "-q", disk)
	command(t, "mount", "-o", "loop", disk, mounted)
	s.here, err = programs.Start(t.Context(), programs.Options{
		Bin: bin, Dir: filepath.Join(dir, "local"),
		Cloud: scraped{pool{mounted}, localDriver, s.targets[2].address, s.targets[3].address, nil},
	})
	must(t, err)
	t.Cleanup(s.here.Stop)
	s.clears(t, "CloudblockAbsent")
	return s
}

// nodeAlerts: a filesystem dies, a volume is in use, and a disk has unknown data.
func nodeAlerts(t *testing.T, s *site) {
	v, err := s.here.Create(t.Context(), programs.Claim{Name: "served", Filesystem: "ext4", Size: 64 * mib})
	must(t, err)
	must(t, v.Stage(t.Context()))
	end := s.recording.begin("fault", "a staged volume is in use")
	busy, err := os.Create(filepath.Join(v.Staging, "open"))
	must(t, err)
	eventually(t, "CloudblockUnstageInUse fires", func() bool {
		if v.Unstage(t.Context()) == nil {
			t.Fatal("unstage with an open file succeeded")
		}
		return s.firing(t)["CloudblockUnstageInUse"] != nil
	})
	end()
	must(t, v.Publish(t.Context()))
	_, err = v.Stats(t.Context())
	must(t, err)
	end = s.recording.begin("fault", "a filesystem has shut down")
	must(t, unix.IoctlSetPointerInt(int(busy.Fd()), 0x8004587d, 2)) // shut down, as when its device is lost
	must(t, busy.Close())
	_, err = v.Stats(t.Context())
	must(t, err)
	if l := s.fires(t, "CloudblockVolumeAbnormal"); l["reason"] != "FilesystemDead" || l["pod"] != "local-node" {
		t.Errorf("CloudblockVolumeAbnormal has the labels %v", l)
	}
	if err := v.Stage(t.Context()); err == nil {
		t.Error("stage onto a dead mount succeeded")
	}
	s.fires(t, "CloudblockDeadMount")
	must(t, errors.Join(v.Unpublish(t.Context()), v.Unstage(t.Context())))
	end()
	s.clears(t, "CloudblockVolumeAbnormal")
	s.clears(t, "CloudblockDeadMount")
	s.clears(t, "CloudblockUnstageInUse")

	other, err := s.here.Create(t.Context(), programs.Claim{Name: "written", Filesystem: "xfs", Size: 320 * mib})
	must(t, err)
	other.Filesystem = "ext4"
	must(t, v.Delete(t.Context()))
	f, err := os.OpenFile(s.image(t, other), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("data"), mib)
	must(t, errors.Join(err, f.Close()))
	end = s.recording.begin("fault", "a disk has unknown data")
	if err := other.Stage(t.Context()); err == nil {
		t.Error("stage of unknown data succeeded")
	}
	if l := s.fires(t, "CloudblockFormatRefused"); l["reason"] != "CB-FORMAT-NOT-BLANK" {
		t.Errorf("CloudblockFormatRefused has the labels %v", l)
	}
	must(t, other.Delete(t.Context()))
	end()
	s.clears(t, "CloudblockFormatRefused")
}

// image returns the path of a volume's image.
func (s *site) image(t *testing.T, v *programs.Volume) string {
	t.Helper()
	for _, arg := range s.here.Controller.Args() {
		if dir, found := strings.CutPrefix(arg, "--local-pool="); found {
			return filepath.Join(dir, "volumes", path.Base(v.ID)+".img")
		}
	}
	t.Fatal("the controller has no pool")
	return ""
}

func poolAlert(t *testing.T, s *site) {
	end := s.recording.begin("fault", "a pool is nearly full")
	v, err := s.here.Create(t.Context(), programs.Claim{Name: "large", Size: 820 * mib})
	must(t, err)
	s.fires(t, "CloudblockPoolNearlyFull")
	must(t, v.Delete(t.Context()))
	end()
	s.clears(t, "CloudblockPoolNearlyFull")
}

func slotAlert(t *testing.T, s *site) {
	v, err := s.cloud.Create(t.Context(), programs.Claim{Name: "attached", Filesystem: "ext4", Size: s.account.Size()})
	must(t, err)
	end := s.recording.begin("fault", "a machine has no free slot")
	must(t, v.Attach(t.Context()))
	s.fires(t, "CloudblockNoAttachSlot")
	must(t, errors.Join(v.Stage(t.Context()), v.Unstage(t.Context()), v.Detach(t.Context()), v.Delete(t.Context())))
	end()
	s.clears(t, "CloudblockNoAttachSlot")
}

// cloudAlerts: the API fails, then it refuses the token, then it works again. The metrics of the sidecars and the kubelet are
// played, in their words.
func cloudAlerts(t *testing.T, s *site) {
	end := s.recording.begin("fault", "the API answers 503")
	s.account.Arm(faults.Fault{Effect: faults.Effect{Status: http.StatusServiceUnavailable}})
	s.others.fail(true)
	for _, alert := range []string{"CloudblockCallsFail", "CloudblockSidecarCallsFail", "CloudblockKubeletCallsFail", "CloudblockCloudUnreachable"} {
		s.fires(t, alert)
	}
	s.account.Disarm()
	end()
	end = s.recording.begin("fault", "the API answers 401")
	s.account.Arm(faults.Fault{Effect: faults.Effect{Status: http.StatusUnauthorized, Message: "Unable to authenticate you"}})
	s.fires(t, "CloudblockCredentialsRefused")
	s.clears(t, "CloudblockCloudUnreachable")
	s.account.Disarm()
	s.others.fail(false)
	end()
	for _, alert := range []string{"CloudblockCredentialsRefused", "CloudblockCallsFail", "CloudblockSidecarCallsFail", "CloudblockKubeletCallsFail"} {
		s.clears(t, alert)
	}
}

// fileAlert: a file without a token takes the place of the credentials.
func fileAlert(t *testing.T, s *site) {
	file := s.credentials(t)
	held, err := os.ReadFile(file)
	must(t, err)
	end := s.recording.begin("fault", "the credentials file has no token")
	must(t, os.WriteFile(file, []byte("no token"), 0o600))
	s.fires(t, "CloudblockCredentialsUnreadable")
	must(t, os.WriteFile(file, held, 0o600))
	end()
	s.clears(t, "CloudblockCredentialsUnreadable")
}

// limitAlert: others have used up the budget of the token.
func limitAlert(t *testing.T, s *site) {
	end := s.recording.begin("fault", "the API answers 429")
	s.account.Arm(faults.Fault{Effect: faults.Effect{Status: http.StatusTooManyRequests, Message: "API Rate limit exceeded."}})
	s.fires(t, "CloudblockAPIThrottled")
	s.account.Disarm()
	end()
	s.clears(t, "CloudblockAPIThrottled")
}

// absentAlert: the programs of one driver are gone, and those of the other run.
func absentAlert(t *testing.T, s *site) {
	end := s.recording.begin("fault", "one driver does not run")
	s.here.Controller.Stop()
	s.here.Node.Stop()
	if l := s.fires(t, "CloudblockAbsent"); l["driver_name"] != localDriver {
		t.Errorf("CloudblockAbsent has the labels %v", l)
	}
	must(t, errors.Join(s.here.Controller.Start(t.Context()), s.here.Node.Start(t.Context())))
	end()
	s.clears(t, "CloudblockAbsent")
}

// credentials returns the path of the file that the controller of the cloud reads its token from.
func (s *site) credentials(t *testing.T) string {
	t.Helper()
	for _, arg := range s.cloud.Controller.Args() {
		if file, found := strings.CutPrefix(arg, "--credentials-file="); found {
			return file
		}
	}
	t.Fatal("the controller has no credentials file")
	return ""
}

// checkDashboard asks each query of each panel.
func checkDashboard(t *testing.T, p *prometheus) {
	t.Helper()
	queries := 0
	var empty []string
	defer func() {
		for _, query := range empty {
			t.Errorf("no data for %s", query)
		}
	}()
	// A scrape that was too slow leaves a gap of a second.
	eventually(t, "each query of the dashboard has data", func() bool {
		queries, empty = 0, nil
		for _, panel := range dashboard(t) {
			for _, target := range panel.Targets {
				queries++
				if query := ours(target.Expr, everyDriver); p.query(t, query) == 0 {
					empty = append(empty, panel.Title+": "+query)
				}
			}
		}
		return len(empty) == 0
	})
	if queries < 20 {
		t.Errorf("the dashboard has only %d queries", queries)
	}
	for _, driver := range []string{cloudDriver, localDriver} {
		if n := p.query(t, ours(`cloudblock_build_info{driver_name=~"$driver"}`, driver)); n != 2 {
			t.Errorf("%d programs have the driver_name %s, want 2", n, driver)
		}
	}
}

var alert = regexp.MustCompile(`alert(?:name)?: (\w+)`)

// checkEveryAlert: each alert has fired, or has a case for promtool.
func checkEveryAlert(t *testing.T, p *prometheus) {
	t.Helper()
	cases, err := os.ReadFile(filepath.Join("testdata", "rules.yaml"))
	must(t, err)
	for _, found := range alert.FindAllStringSubmatch(rules(t), -1) {
		fired := p.query(t, fmt.Sprintf(`max_over_time(ALERTS{alertname=%q,alertstate="firing"}[1h])`, found[1])) > 0
		if !fired && !strings.Contains(string(cases), "alertname: "+found[1]+"\n") {
			t.Errorf("%s has never fired, and testdata/rules.yaml has no case", found[1])
		}
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
