package main

import (
	"context"
	"encoding/json"
	"errors"
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
			flags, err := account.Controller(t.TempDir())
			ok(t, err)
			log := &drivertest.Log{}
			conn, end := serving(t, log, append(flags, "--cloud="+cloud, "--log-level=debug")...)
			calls := sidecars{csi.NewControllerClient(conn), account.Machines()[0]}
			vol := calls.leaveWhileItAttaches(t, account)
			eventually(t, "the program reads how the attach stands after its caller has gone", func() bool {
				lines := logLines(t, log.String())
				at := slices.IndexFunc(lines, func(l logLine) bool { return l.Msg == "rpc" && l.Method == "ControllerPublishVolume" })
				return at >= 0 && slices.ContainsFunc(lines[at:], func(l logLine) bool {
					return l.Msg == "api request" && l.Request == lines[at].Request
				})
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := errors.Join(calls.unpublish(ctx, vol), calls.remove(ctx, vol)); err != nil {
				t.Error(err)
			}
			end()                                                        // now log holds every line that the program has written
			checkJoined(t, logLines(t, log.String()), cloud != "linode") // Linode's API has no ids of requests
		})
	}
}

// leaveWhileItAttaches creates a volume, begins to attach it, and cancels the call when the cloud has begun.
func (s sidecars) leaveWhileItAttaches(t *testing.T, account accounts.Account) *csi.Volume {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	made, err := s.controller.CreateVolume(ctx, createRequest("pvc-1"), grpc.WaitForReady(true))
	ok(t, err)
	vol := made.GetVolume()
	calling, leave := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() { answered <- s.publish(calling, vol) }()
	eventually(t, "the cloud attaches", func() bool { return account.Busy(vol.GetVolumeId()) })
	leave()
	if err := <-answered; err == nil {
		t.Error("ControllerPublishVolume ended well before its caller went, so the test proves nothing")
	}
	return vol
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
