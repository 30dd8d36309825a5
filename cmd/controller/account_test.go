package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/accounts"
)

// TestCredentialsOfAnotherAccount: the Secret gets a good token of another account while a volume is attached.
func TestCredentialsOfAnotherAccount(t *testing.T) {
	for _, name := range []string{"digitalocean", "linode"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCredentialsOfAnotherAccount(t, startAccount(t, name, "ours"), startAccount(t, name, "theirs"))
		})
	}
}

func startAccount(t *testing.T, name, token string) accounts.Account {
	t.Helper()
	account, err := accounts.Start(name, accounts.Options{Token: token, Machines: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = account.Close() })
	return account
}

func testCredentialsOfAnotherAccount(t *testing.T, ours, theirs accounts.Account) {
	// A cloud has one address for all accounts.
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of := ours
		if r.Header.Get("Authorization") == "Bearer "+theirs.Token() {
			of = theirs
		}
		of.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	file, endpoint, address := filepath.Join(dir, "token"), "unix://"+filepath.Join(dir, "c.sock"), drivertest.FreeAddress(t)
	use := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	use(ours.Token())
	flags := append(ours.Flags(), "--cloud="+ours.Name(), "--credentials-file="+file, "--api-endpoint="+api.URL, "--cluster-id=prod")
	cmd := program(t, append(flags, "--endpoint="+endpoint, "--http-endpoint="+address)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := csi.NewControllerClient(drivertest.Dial(t, endpoint))
	if _, err := client.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	wantReady(t, address, http.StatusOK, unknownAccount)
	doctorSays(t, flags, "it has no volume of the cluster prod")

	req, node := createRequest("pvc-1"), ours.Machines()[0]
	made, err := client.CreateVolume(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	vol := made.GetVolume()
	publish := &csi.ControllerPublishVolumeRequest{VolumeId: vol.GetVolumeId(), NodeId: node, VolumeContext: vol.GetVolumeContext(), VolumeCapability: req.GetVolumeCapabilities()[0]}
	if _, err := client.ControllerPublishVolume(ctx, publish); err != nil {
		t.Fatal(err)
	}
	wantReady(t, address, http.StatusOK, "ok\n")
	doctorSays(t, flags, "it has volumes of the cluster prod")

	remove := func() error {
		_, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()})
		return err
	}
	detach := func() error {
		_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: vol.GetVolumeId(), NodeId: node})
		return err
	}
	use(theirs.Token())
	for call, do := range map[string]func() error{"DeleteVolume": remove, "ControllerUnpublishVolume": detach} {
		if err := do(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "CB-ACCESS-DENIED") || !strings.Contains(err.Error(), "another account") {
			t.Errorf("%s with the token of another account: %v, want PermissionDenied and why", call, err)
		}
	}
	if _, err := client.CreateVolume(ctx, createRequest("pvc-2")); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "CB-ACCESS-DENIED") {
		t.Errorf("CreateVolume with the token of another account: %v, want Unavailable and why", err)
	}
	if there := accounts.Find(ours, vol.GetVolumeId()); there.Machine != node || len(theirs.Volumes()) != 0 {
		t.Errorf("after the token of another account the volume is %+v, and the other account has %+v", there, theirs.Volumes())
	}

	use(ours.Token())
	if err := detach(); err != nil {
		t.Error(err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if left := ours.Volumes(); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

// wantReady fails the test unless /readyz answers with this status and these words.
func wantReady(t *testing.T, address string, code int, says string) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != code || !strings.Contains(string(text), says) {
		t.Errorf("/readyz answers %d %q, %v, want %d and %q", resp.StatusCode, text, err, code, says)
	}
}

// doctorSays fails the test unless doctor says this of the account.
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
