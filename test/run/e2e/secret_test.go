//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// canary is the token of the account whose token must show nowhere.
const canary = "dop_v1_canary7f3a"

// listening is a cloud whose programs also serve their metrics.
type listening struct {
	accounts.Account
	controller, node string
}

func (l listening) Controller(dir string) ([]string, error) {
	flags, err := l.Account.Controller(dir)
	return append(flags, "--http-endpoint="+l.controller), err
}

func (l listening) Machine(dir string) ([]string, error) {
	flags, err := l.Account.Machine(dir)
	return append(flags, "--http-endpoint="+l.node), err
}

// keeper is an account with credentials that must show nowhere.
type keeper struct {
	accounts.Account
	// file in the programs' folder has them.
	file string
	// secrets are texts that only that file may hold, and the account.
	secrets func(t *testing.T, file string) []string
	// status is what the account's faults call one of HTTP's.
	status func(http int) int
}

// tokenKeeper is an account whose token the canary is.
func tokenKeeper(account accounts.Account) keeper {
	return keeper{
		Account: account, file: "token", status: func(http int) int { return http },
		secrets: func(*testing.T, string) []string { return []string{canary} },
	}
}

// keyKeeper is a folder of Yandex Cloud: a key signs what is exchanged for tokens, and none of them may show.
func keyKeeper(account *yandex.Cloud) keeper {
	const signed = "eyJ" // how each JWT begins, with its header
	return keeper{
		Account: &accounts.Yandex{Cloud: account}, file: "key.json",
		secrets: func(t *testing.T, file string) []string {
			text, err := os.ReadFile(file)
			noError(t, err)
			_, key, _ := strings.Cut(string(text), `"private_key"`)
			lines := strings.Split(key, `\n`) // of the key in PEM, the first two and the last are no secret
			tokens := account.Tokens()
			if len(lines) < 10 || len(tokens) == 0 {
				t.Fatalf("the key has %d lines and brought %d tokens, so nothing can show", len(lines), len(tokens))
			}
			return append(tokens, lines[4], signed)
		},
		status: func(status int) int {
			return int(map[int]codes.Code{
				http.StatusUnauthorized: codes.Unauthenticated, http.StatusForbidden: codes.PermissionDenied,
				http.StatusUnprocessableEntity: codes.InvalidArgument, http.StatusInternalServerError: codes.Internal,
				http.StatusTooManyRequests: codes.ResourceExhausted,
			}[status])
		},
	}
}

// P3: at the highest verbosity, through a whole life and through every way in which the cloud fails, what the
// credentials file holds and what it was exchanged for are in no error, log, metric, command line or environment, and in
// no file but that one.
func TestTokenShowsNowhere(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, dir string) keeper{
		"DigitalOcean": func(t *testing.T, dir string) keeper {
			return tokenKeeper(accounts.DigitalOcean{Cloud: digitalocean.Start(t, digitalocean.Options{Token: canary, DataDir: dir})})
		},
		"Linode": func(t *testing.T, dir string) keeper {
			return tokenKeeper(&accounts.Linode{Cloud: linode.Start(t, linode.Options{Token: canary, DataDir: dir})})
		},
		"Yandex Cloud": func(t *testing.T, dir string) keeper {
			return keyKeeper(yandex.Start(t, yandex.Options{DataDir: dir}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			showNowhere(t, dir, open(t, filepath.Join(dir, "account")))
		})
	}
}

func showNowhere(t *testing.T, dir string, account keeper) {
	cloud := listening{account.Account, drivertest.FreeAddress(t), drivertest.FreeAddress(t)}
	pair := start(t, programs.Options{Dir: dir, Cloud: cloud})

	seen := map[string]string{}
	for what, effect := range map[string]faults.Effect{
		"no fault":          {StaleChanges: 0},
		"a refused token":   {Status: account.status(http.StatusUnauthorized), ID: "unauthorized", Message: "Unable to authenticate you"},
		"a forbidden call":  {Status: account.status(http.StatusForbidden), ID: "forbidden", Message: "You are not authorized to perform this operation"},
		"a bad request":     {Status: account.status(http.StatusUnprocessableEntity), ID: "unprocessable_entity", Message: "no"},
		"a server error":    {Status: account.status(http.StatusInternalServerError), ID: "server_error", Message: "Server Error"},
		"a rate limit":      {Status: account.status(http.StatusTooManyRequests)},
		"a lost request":    {Lost: faults.LostBefore},
		"a lost answer":     {Lost: faults.LostAfter},
		"an errored change": {Errored: true},
	} {
		failingLife(t, account.Account, pair, seen, what, effect)
	}
	for _, p := range []*programs.Program{pair.Controller, pair.Node} {
		whatIsKnownOf(t, seen, p)
	}
	for _, address := range []string{cloud.controller, cloud.node} {
		for _, path := range []string{"/metrics", "/readyz"} {
			_, seen[address+path] = drivertest.Page(t, "http://"+address+path)
		}
	}
	file := filepath.Join(dir, account.file)
	secrets := account.secrets(t, file)
	for where, text := range seen {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the secret %q is in %s:\n%s", secret, where, text)
			}
		}
	}
	var holders []string
	for _, secret := range secrets {
		holders = append(holders, drivertest.FilesWith(t, dir, secret, filepath.Join(dir, "account"))...)
	}
	if !slices.Equal(slices.Compact(holders), []string{file}) {
		t.Errorf("the secrets are in the files %v, want the credentials file alone", holders)
	}
	for where, want := range map[string]string{
		cloud.controller + "/metrics": "cloudblock_api_requests_total", cloud.node + "/metrics": "cloudblock_dead_mounts_found_total",
		"the controller's log": `"level":"debug"`, "the node program's log": `"level":"debug"`,
	} {
		if !strings.Contains(seen[where], want) {
			t.Errorf("%s lacks %s, so it proves nothing", where, want)
		}
	}
}

// failingLife takes a volume through the controller's calls while the cloud fails, and notes each error.
func failingLife(t *testing.T, account accounts.Account, pair *programs.Pair, seen map[string]string, what string, effect faults.Effect) {
	t.Helper()
	suffix := strings.ReplaceAll(what, " ", "-")
	v := create(t, pair, programs.Claim{Name: "of-" + suffix, Filesystem: "ext4", Size: gib})
	account.Arm(faults.Fault{Effect: effect})
	defer account.Disarm()
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
		{"unstage", func(ctx context.Context) error {
			err := v.Unstage(ctx)
			// A slow machine formats on when the stage has been given up, and nothing is detached before the node is done.
			eventually(t, "the node is done with "+v.Name, func() bool { return v.Unstage(t.Context()) == nil })
			return err
		}},
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
	noError(t, err)
	seen[name+"log"] = log
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
		noError(t, err)
		seen[name+file] = string(text)
	}
}
