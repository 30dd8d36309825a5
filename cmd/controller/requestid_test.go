package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var eventually = expect.Eventually

// logLine has the fields of a log line that the test reads.
type logLine struct {
	Msg, Request, Method, Code, Verb, Route string
	CloudRequest                            string `json:"cloud_request"`
}

func logLines(t *testing.T, text string) (lines []logLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var l logLine
		if !strings.HasSuffix(line, "\n") { // the line is being written
			continue
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// One id connects the line of an RPC with those of its requests to the cloud's API, which also have the cloud's own ids. A change
// that continues without its caller keeps the id of that call.
func TestOneIDJoinsTheLinesOfARequest(t *testing.T) {
	for _, cloud := range accounts.Names() {
		t.Run(cloud, func(t *testing.T) {
			t.Parallel()
			account := startAccount(t, cloud, accounts.Options{Machines: 1, Takes: clock.Fixed(1500 * time.Millisecond)})
			dir, log := t.TempDir(), &drivertest.Log{}
			flags, err := account.Controller(dir)
			if err != nil {
				t.Fatal(err)
			}
			endpoint := "unix://" + filepath.Join(dir, "c.sock")
			cmd := program(t, append(flags, "--cloud="+cloud, "--endpoint="+endpoint, "--log-level=debug")...)
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			client := csi.NewControllerClient(drivertest.Dial(t, endpoint))
			id := leaveWhileItAttaches(t, client, account)
			eventually(t, "the program reads how the attach stands after its caller has gone", func() bool {
				lines := logLines(t, log.String())
				at := slices.IndexFunc(lines, func(l logLine) bool { return l.Msg == "rpc" && l.Method == "ControllerPublishVolume" })
				return at >= 0 && slices.ContainsFunc(lines[at:], func(l logLine) bool {
					return l.Msg == "api request" && l.Request == lines[at].Request
				})
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: account.Machines()[0]}); err != nil {
				t.Error(err)
			}
			if _, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
				t.Error(err)
			}
			_, _ = cmd.Process.Kill(), cmd.Wait()                        // now log holds every line that the program has written
			checkJoined(t, logLines(t, log.String()), cloud != "linode") // Linode's API has no ids of requests
		})
	}
}

// leaveWhileItAttaches creates a volume, begins to attach it, and cancels the call when the cloud has begun. It returns the
// volume's id.
func leaveWhileItAttaches(t *testing.T, client csi.ControllerClient, account accounts.Account) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := createRequest("pvc-1")
	made, err := client.CreateVolume(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	vol := made.GetVolume()
	calling, leave := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() {
		_, err := client.ControllerPublishVolume(calling, &csi.ControllerPublishVolumeRequest{
			VolumeId: vol.GetVolumeId(), NodeId: account.Machines()[0], VolumeContext: vol.GetVolumeContext(),
			VolumeCapability: req.GetVolumeCapabilities()[0],
		})
		answered <- err
	}()
	eventually(t, "the cloud attaches", func() bool { return account.Busy(vol.GetVolumeId()) })
	leave()
	if err := <-answered; err == nil {
		t.Error("ControllerPublishVolume ended well before its caller went, so the test proves nothing")
	}
	return vol.GetVolumeId()
}

// checkJoined checks the lines of each call.
func checkJoined(t *testing.T, lines []logLine, named bool) {
	t.Helper()
	seen := map[string]string{}
	for _, rpc := range lines {
		if rpc.Msg != "rpc" {
			continue
		}
		if other, twice := seen[rpc.Request]; twice || rpc.Request == "" {
			t.Errorf("%s has the id %q of %s", rpc.Method, rpc.Request, other)
		}
		seen[rpc.Request] = rpc.Method
		if !slices.Contains([]string{"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume"}, rpc.Method) {
			continue
		}
		requests := 0
		for _, l := range lines {
			switch {
			case l.Request != rpc.Request:
			case l.Msg == "api request":
				requests++
				if l.Verb == "" || l.Route == "" || l.Code == "" || named && l.CloudRequest == "" {
					t.Errorf("a request of %s is logged as %+v", rpc.Method, l)
				}
			}
		}
		if requests == 0 {
			t.Errorf("%s (%s) has no line of a request to the API", rpc.Method, rpc.Request)
		}
	}
	for _, l := range lines {
		if l.Msg == "api request" && (l.Verb == "POST" || l.Verb == "DELETE") && seen[l.Request] == "" {
			t.Errorf("%+v belongs to no call", l)
		}
	}
}
