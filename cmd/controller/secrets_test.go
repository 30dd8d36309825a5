package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

const (
	tokenCanary = "dop_v1_canary5e"
	callCanary  = "canary-of-calls-91"
)

// Every secret of the controller (failure P3 of the catalogue): the credentials, in the file or in the vendor's variable, the
// tokens that they are exchanged for, and each secret of each RPC. With the most verbose log, whether calls succeed or fail, the
// log, the errors, the metrics and the command line have none of them, and no other program can inherit one.
func TestTheControllerShowsNoSecret(t *testing.T) {
	for _, cloud := range accounts.Names() {
		for _, place := range []string{"in the file", "in the variable"} {
			t.Run(cloud+" "+place, func(t *testing.T) {
				t.Parallel()
				account := startAccount(t, cloud, accounts.Options{Token: tokenCanary, Machines: 1})
				showNoSecret(t, account, place == "in the variable")
			})
		}
	}
}

func showNoSecret(t *testing.T, account accounts.Account, variable bool) {
	dir, address, log := t.TempDir(), drivertest.FreeAddress(t), &drivertest.Log{}
	flags, err := account.Controller(dir)
	ok(t, err)
	file, env := credentialsOf(t, account, flags)
	secrets := secretsIn(t, file)
	if variable {
		flags = slices.DeleteFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--credentials-file=") })
	}
	endpoint := "unix://" + filepath.Join(dir, "c.sock")
	cmd := program(t, append(flags, "--cloud="+account.Name(), "--endpoint="+endpoint, "--http-endpoint="+address, "--log-level=debug")...)
	cmd.Stdout, cmd.Stderr = log, log
	if variable {
		cmd.Env = append(cmd.Env, env)
	}
	ok(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn := drivertest.Dial(t, endpoint)
	drivertest.Ready(t, conn)

	seen := map[string]string{"the errors": strings.Join(callAll(t, conn, account), "\n")}
	for _, page := range []string{"/metrics", "/readyz"} {
		_, seen[page] = drivertest.Page(t, "http://"+address+page)
	}
	for _, name := range []string{"cmdline", "children"} {
		texts, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", cmd.Process.Pid, name))
		if err != nil || len(texts) == 0 {
			t.Fatalf("no %s of the program: %v", name, err)
		}
		for _, path := range texts {
			text, _ := os.ReadFile(path) // a thread may have ended
			seen[name] += string(text)
		}
	}
	if seen["children"] != "" {
		t.Errorf("the controller runs other programs, which inherit its environment: %s", seen["children"])
	}
	_, _ = cmd.Process.Kill(), cmd.Wait() // now log holds every line that the program has written
	seen["the log"] = log.String()
	for where, text := range seen {
		for _, secret := range append(secrets, callCanary, "eyJ") { // the prefix of each JWT
			if strings.Contains(text, secret) {
				t.Errorf("%q is in %s:\n%s", secret, where, text)
			}
		}
	}
	if strings.Count(seen["the errors"], "\n") < 20 || !strings.Contains(seen["the log"], `"api request"`) || !strings.Contains(seen["cmdline"], "--cloud") {
		t.Errorf("the test does not see what it should: %d errors, the command line %q, and the log\n%s",
			strings.Count(seen["the errors"], "\n"), seen["cmdline"], seen["the log"])
	}
}

// credentialsOf returns the content of the credentials file, and the vendor's variable with the same content.
func credentialsOf(t *testing.T, account accounts.Account, flags []string) (text, variable string) {
	t.Helper()
	for _, flag := range flags {
		if path, is := strings.CutPrefix(flag, "--credentials-file="); is {
			held, err := os.ReadFile(path)
			ok(t, err)
			return string(held), backends[account.Name()].tokenVariable + "=" + strings.TrimSpace(string(held))
		}
	}
	t.Fatal("there is no --credentials-file")
	return "", ""
}

// secretsIn returns the parts of the credentials that must not be shown: the token, or lines of the private key.
func secretsIn(t *testing.T, text string) []string {
	t.Helper()
	_, key, is := strings.Cut(text, `"private_key"`)
	if !is {
		return []string{strings.TrimSpace(text)}
	}
	lines := strings.Split(key, `\n`) // the first two and the last are not secret
	if len(lines) < 10 {
		t.Fatalf("the key has %d lines", len(lines))
	}
	return lines[3:6]
}

// callAll makes calls of every kind, while the cloud works and while it fails, and returns the errors.
func callAll(t *testing.T, conn *grpc.ClientConn, account accounts.Account) (said []string) {
	t.Helper()
	note := func(err error) {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	secrets := map[string]string{"token": callCanary, callCanary: "x"}
	live := func(name string) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		client := csi.NewControllerClient(conn)
		req := createRequest(name)
		req.Secrets = secrets
		made, err := client.CreateVolume(ctx, req)
		note(err)
		id, node, capability := made.GetVolume().GetVolumeId(), account.Machines()[0], req.GetVolumeCapabilities()[0]
		_, err = client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: capability, Secrets: secrets})
		note(err)
		_, err = client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node, Secrets: secrets})
		note(err)
		_, err = client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id, Secrets: secrets})
		note(err)
	}
	live("pvc-1")
	if len(said) > 0 {
		t.Errorf("a life ends with %q", said)
	}
	for _, method := range drivertest.Methods(t, "csi.v1.Controller") {
		for _, text := range []string{"", "x", "../x"} {
			req := drivertest.Message(t, method.Input())
			drivertest.Fill(req.ProtoReflect(), text, callCanary)
			note(drivertest.Call(t, conn, method, req))
		}
	}
	status := http.StatusUnauthorized
	if account.Name() == "yandex" {
		status = 16 // Unauthenticated
	}
	account.Arm(faults.Fault{Effect: faults.Effect{Status: status, Message: "no"}})
	live("pvc-2")
	return said
}
