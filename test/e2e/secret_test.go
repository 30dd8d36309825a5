//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// canary is the token of the account whose token must show nowhere.
const canary = "dop_v1_canary7f3a"

// listening is a cloud whose programs also serve their metrics.
type listening struct {
	programs.Emulated
	controller, node string
}

func (l listening) Controller(dir string) ([]string, error) {
	flags, err := l.Emulated.Controller(dir)
	return append(flags, "--http-endpoint="+l.controller), err
}

func (l listening) Machine(dir string) ([]string, error) {
	flags, err := l.Emulated.Machine(dir)
	return append(flags, "--http-endpoint="+l.node), err
}

// TestTokenShowsNowhere (failure P3 of the catalogue): at the highest verbosity, through a whole life and
// through every way in which the cloud fails, the token of the credentials file is in no error, log,
// metric, command line or environment, and in no file but its own.
func TestTokenShowsNowhere(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, dir string) *emulated{
		"DigitalOcean": func(t *testing.T, dir string) *emulated {
			return ofDigitalOcean(digitalocean.Start(t, digitalocean.Options{Token: canary, DataDir: dir}))
		},
		"Linode": func(t *testing.T, dir string) *emulated {
			return ofLinode(linode.Start(t, linode.Options{Token: canary, DataDir: dir}), linode.Linode{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			showNowhere(t, dir, open(t, filepath.Join(dir, "account")))
		})
	}
}

func showNowhere(t *testing.T, dir string, account *emulated) {
	cloud := listening{account.Emulated, drivertest.FreeAddress(t), drivertest.FreeAddress(t)}
	pair := start(t, programs.Options{Dir: dir, Cloud: cloud})

	seen := map[string]string{}
	for what, effect := range map[string]faults.Effect{
		"no fault":          {StaleChanges: 0},
		"a refused token":   {Status: http.StatusUnauthorized, ID: "unauthorized", Message: "Unable to authenticate you"},
		"a forbidden call":  {Status: http.StatusForbidden, ID: "forbidden", Message: "You are not authorized to perform this operation"},
		"a bad request":     {Status: http.StatusUnprocessableEntity, ID: "unprocessable_entity", Message: "no"},
		"a server error":    {Status: http.StatusInternalServerError, ID: "server_error", Message: "Server Error"},
		"a rate limit":      {Status: http.StatusTooManyRequests},
		"a lost request":    {Lost: faults.LostBefore},
		"a lost answer":     {Lost: faults.LostAfter},
		"an errored change": {Errored: true},
	} {
		failingLife(t, account, pair, seen, what, effect)
	}
	for _, p := range []*programs.Program{pair.Controller, pair.Node} {
		whatIsKnownOf(t, seen, p)
	}
	for _, address := range []string{cloud.controller, cloud.node} {
		for _, path := range []string{"/metrics", "/readyz"} {
			seen[address+path] = scrape(t, "http://"+address+path)
		}
	}
	for where, text := range seen {
		if strings.Contains(text, canary) {
			t.Errorf("the token is in %s:\n%s", where, text)
		}
	}
	for where, want := range map[string]string{
		cloud.controller + "/metrics": "cloudblock_api_requests_total", cloud.node + "/metrics": "cloudblock_dead_mounts_found_total",
		"the controller's log": `"level":"debug"`, "the node program's log": `"level":"debug"`,
	} {
		if !strings.Contains(seen[where], want) {
			t.Errorf("%s lacks %s, so it proves nothing", where, want)
		}
	}
	if files := filesWith(t, dir, canary); len(files) != 1 || files[0] != filepath.Join(dir, "token") {
		t.Errorf("the token is in the files %v, want the credentials file alone", files)
	}
}

// failingLife takes a volume through the controller's calls while the cloud fails, and notes each error.
func failingLife(t *testing.T, account *emulated, pair *programs.Pair, seen map[string]string, what string, effect faults.Effect) {
	t.Helper()
	suffix := strings.ReplaceAll(what, " ", "-")
	v := create(t, pair, programs.Claim{Name: "of-" + suffix, Filesystem: "ext4", Size: gib})
	account.api.Arm(faults.Fault{Effect: effect})
	defer func() {
		account.api.Disarm()
		// A slow machine formats on when the stage has been given up.
		eventually(t, "the node is done with "+v.Name, func() bool { return v.Unstage(t.Context()) == nil })
	}()
	for _, call := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"create", func(ctx context.Context) error {
			return second(pair.Create(ctx, programs.Claim{Name: "new-" + suffix, Filesystem: "ext4", Size: gib}))
		}},
		{"attach", v.Attach},
		{"expand", func(ctx context.Context) error { return second(v.Expand(ctx, 2*v.Size)) }},
		{"snapshot", func(ctx context.Context) error { return second(v.Snapshot(ctx, "snap-"+suffix)) }},
		{"stage", v.Stage},
		{"unstage", v.Unstage},
		{"detach", v.Detach},
		{"delete", v.Delete},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		seen["the answer to "+call.name+" with "+what] = fmt.Sprint(call.do(ctx))
		cancel()
	}
}

// whatIsKnownOf notes what everybody on the machine can read of a program.
func whatIsKnownOf(t *testing.T, seen map[string]string, p *programs.Program) {
	t.Helper()
	name := "the controller's "
	if strings.Contains(p.Args()[0], "node") {
		name = "the node program's "
	}
	log, err := p.Log()
	if err != nil {
		t.Fatal(err)
	}
	seen[name+"log"] = log
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
		if err != nil {
			t.Fatal(err)
		}
		seen[name+file] = string(text)
	}
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// filesWith returns the files below dir that hold a text. The volumes' data is left out.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path == filepath.Join(dir, "account"):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
