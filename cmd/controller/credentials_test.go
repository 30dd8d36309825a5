package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// A credentials file that becomes unusable is logged once for each change, and shown by the metric as long as it is: the program
// continues with credentials that may have been revoked with the file.
func TestCredentialsThatCannotBeReadAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		ok(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("first-canary")
	cfg, err := parse([]string{"--cloud=linode", "--cluster-id=prod", "--credentials-file=" + path}, noEnvironment, &strings.Builder{})
	ok(t, err)
	var text drivertest.Log
	log, err := driver.NewLogger("debug", "json", &text)
	ok(t, err)
	registry := prometheus.NewRegistry()
	ok(t, cfg.file.watch(surroundings{log: log, registry: registry}, newAccount(cfg, log)))
	const series, lost, back = "cloudblock_credentials_unreadable", "cannot be used", "can be used again"
	for _, step := range []struct {
		name               string
		change             func()
		token              string
		value              float64
		warnings, comeback int
	}{
		{"as it was at the start", func() {}, "first-canary", 0, 0, 0},
		{"what it holds is no token", func() { write("second canary") }, "first-canary", 1, 1, 0},
		{"the file is gone", func() { _ = os.Remove(path) }, "first-canary", 1, 1, 0},
		{"a new token", func() { write("third-canary") }, "third-canary", 0, 1, 1},
		{"it is empty", func() { write("") }, "third-canary", 1, 2, 1},
	} {
		step.change()
		for range 3 {
			if got, err := cfg.token(); err != nil || got != step.token {
				t.Errorf("%s: the token is %q, %v, want %q", step.name, got, err, step.token)
			}
		}
		metrics.Of(t, registry).Want(t, metrics.Samples{series: step.value})
		if w, b := strings.Count(text.String(), lost), strings.Count(text.String(), back); w != step.warnings || b != step.comeback {
			t.Errorf("%s: %d warnings and %d returns are logged, want %d and %d:\n%s", step.name, w, b, step.warnings, step.comeback, &text)
		}
	}
	if !strings.Contains(text.String(), path) || strings.Contains(text.String(), "canary") {
		t.Errorf("the log does not name the file, or repeats what it holds:\n%s", &text)
	}
}

// C15: the Secret gets a valid token of another account while a volume is attached.
func TestCredentialsOfAnotherAccount(t *testing.T) {
	for _, name := range accounts.Names() {
		if backends[name].checkSecret != nil {
			continue // its credentials are no token
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCredentialsOfAnotherAccount(t, startAccount(t, name, accounts.Options{Token: "ours", Machines: 1}), startAccount(t, name, accounts.Options{Token: "theirs", Machines: 1}))
		})
	}
}

// startAccount starts an account of a cloud, and serves its API until the test ends.
func startAccount(t *testing.T, name string, options accounts.Options) accounts.Account {
	t.Helper()
	account, err := accounts.Start(name, options)
	ok(t, err)
	t.Cleanup(func() { _ = account.Close() })
	ok(t, account.Listen(t.Context(), "127.0.0.1:0"))
	return account
}

func testCredentialsOfAnotherAccount(t *testing.T, ours, theirs accounts.Account) {
	// A cloud has one address for all accounts, and an account can have several tokens.
	const newer = "newer"
	var revoked atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + theirs.Token():
			theirs.Handler().ServeHTTP(w, r)
			return
		case "Bearer " + newer:
			r.Header.Set("Authorization", "Bearer "+ours.Token())
		default:
			if revoked.Load() {
				r.Header.Set("Authorization", "Bearer revoked")
			}
		}
		ours.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	file, address := filepath.Join(t.TempDir(), "token"), drivertest.FreeAddress(t)
	use := func(token string) {
		ok(t, os.WriteFile(file, []byte(token), 0o600))
	}
	use(ours.Token())
	flags := append(ours.Flags(), "--cloud="+ours.Name(), "--credentials-file="+file, "--api-endpoint="+api.URL, "--cluster-id=prod")
	conn, _ := serving(t, nil, append(flags, "--http-endpoint="+address)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	calls := sidecars{csi.NewControllerClient(conn), ours.Machines()[0]}
	if _, err := calls.controller.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	wantPage(t, address, "readyz", http.StatusOK, unknownAccount)
	doctorSays(t, flags, "it has no volume of the cluster prod")
	unreadable := fmt.Sprintf("\ncloudblock_credentials_unreadable{driver_name=%q}", ours.Name()+".csi.cloudblock.io")

	create := func(name string) *csi.Volume {
		t.Helper()
		made, err := calls.controller.CreateVolume(ctx, createRequest(name))
		ok(t, err)
		return made.GetVolume()
	}
	first, second := create("pvc-1"), create("pvc-2")
	ok(t, errors.Join(calls.publish(ctx, first), calls.publish(ctx, second)))
	wantPage(t, address, "readyz", http.StatusOK, "ok\n")
	doctorSays(t, flags, "it has volumes of the cluster prod")

	use(theirs.Token())
	if err := errors.Join(calls.unpublish(ctx, first), calls.remove(ctx, first)); err != nil {
		t.Errorf("with the token of another account in the file, the earlier one is not used: %v", err)
	}
	create("pvc-3")
	if made := theirs.Volumes(); len(made) != 0 || len(ours.Volumes()) != 2 {
		t.Errorf("with the token of another account in the file, that account has %+v, and ours %+v", made, ours.Volumes())
	}
	wantPage(t, address, "metrics", http.StatusOK, unreadable+" 1\n")
	wantPage(t, address, "readyz", http.StatusServiceUnavailable, "another account")

	revoked.Store(true)
	for call, do := range map[string]func(context.Context, *csi.Volume) error{"DeleteVolume": calls.remove, "ControllerUnpublishVolume": calls.unpublish} {
		if err := do(ctx, second); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "CB-ACCESS-DENIED") {
			t.Errorf("%s with a revoked token, and that of another account in the file: %v, want PermissionDenied", call, err)
		}
	}
	if there := accounts.Find(ours, second.GetVolumeId()); there.Machine != calls.node {
		t.Errorf("the volume is now %+v", there)
	}

	use(newer)
	if err := errors.Join(calls.unpublish(ctx, second), calls.remove(ctx, second)); err != nil {
		t.Errorf("with another token of this account: %v", err)
	}
	if left := ours.Volumes(); len(left) != 1 {
		t.Errorf("left are %+v, want pvc-3", left)
	}
	wantPage(t, address, "metrics", http.StatusOK, unreadable+" 0\n")
	wantPage(t, address, "readyz", http.StatusOK, "ok\n")

	// Another program finds the volumes itself.
	other := drivertest.FreeAddress(t)
	conn, _ = serving(t, nil, append(flags, "--http-endpoint="+other)...)
	drivertest.Ready(t, conn)
	eventually(t, "a program that was started with a volume in the account says that it is ready", func() bool {
		_, text := drivertest.Page(t, "http://"+other+"/readyz")
		return text == "ok\n"
	})
}

// wantPage fails the test unless a page of the program has this status and these words.
func wantPage(t *testing.T, address, page string, code int, says string) {
	t.Helper()
	if got, text := drivertest.Page(t, "http://"+address+"/"+page); got != code || !strings.Contains(text, says) {
		t.Errorf("/%s answers %d, want %d and %q:\n%s", page, got, code, says, text)
	}
}

// doctorSays fails the test unless doctor reports this about the account.
func doctorSays(t *testing.T, flags []string, says string) {
	t.Helper()
	report, exit := findings(t, flags...)
	for _, f := range report {
		if f.Check == "account" && strings.Contains(f.Message, says) && exit == 0 {
			return
		}
	}
	t.Errorf("doctor exits with %d and finds %+v, want of the account: %q", exit, report, says)
}
