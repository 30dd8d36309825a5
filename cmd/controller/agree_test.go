package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

var (
	requestSeries = regexp.MustCompile(`^cloudblock_api_requests_total\{code="([^"]*)",method="([^"]*)",route="([^"]*)"\}$`)
	pathParameter = regexp.MustCompile(`\{[^}]*\}`)
)

// The metrics count exactly the requests that the API has counted, by route, method and code, including repeated, refused and lost
// ones.
func TestTheMetricsCountTheRequestsThatTheAPIGets(t *testing.T) {
	for _, cloud := range accounts.Names() {
		t.Run(cloud, func(t *testing.T) {
			t.Parallel()
			account := startAccount(t, cloud, accounts.Options{Machines: 1, Takes: clock.Fixed(20 * time.Millisecond)})
			dir, address := t.TempDir(), drivertest.FreeAddress(t)
			flags, err := account.Controller(dir)
			if err != nil {
				t.Fatal(err)
			}
			endpoint := "unix://" + filepath.Join(dir, "c.sock")
			cmd := program(t, append(flags, "--cloud="+cloud, "--endpoint="+endpoint, "--http-endpoint="+address)...)
			cmd.Stderr = t.Output()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
			client := csi.NewControllerClient(drivertest.Dial(t, endpoint))
			lost := account.Arm(faults.Fault{Times: 2, Effect: faults.Effect{Lost: faults.LostAfter}})
			// After the first requests a fault would break connections that were used before, on which the transport repeats reads
			// by itself.
			never := account.Arm(faults.Fault{Skip: 9, Times: 3, Effect: faults.Effect{Lost: faults.LostBefore}})
			var group sync.WaitGroup
			for n := range 3 {
				group.Go(func() { liveAnyway(t, client, fmt.Sprint("pvc-", n), account.Machines()[0]) })
			}
			group.Wait()
			if left := account.Volumes(); len(left) > 0 || lost.Hits() != 2 || never.Hits() != 3 {
				t.Errorf("left are %v, after %d lost answers and %d lost requests", left, lost.Hits(), never.Hits())
			}
			counted := map[string]int{}
			_, page := drivertest.Page(t, "http://"+address+"/metrics")
			for series, n := range metrics.Parse(t, page) {
				if l := requestSeries.FindStringSubmatch(series); l != nil {
					counted[l[2]+" "+l[3]+" "+l[1]] = int(n)
				}
			}
			got := map[string]int{}
			for _, e := range account.Exchanges() {
				got[exchangeKey(e)]++
			}
			if len(got) < 5 || !maps.Equal(counted, got) {
				t.Errorf("the metrics count\n%v\nand the API\n%v", counted, got)
			}
		})
	}
}

// exchangeKey returns the method, route and code of an exchange in the form of the metrics.
func exchangeKey(e rest.Exchange) string {
	if service, call, _ := strings.Cut(e.Route, "/"); service != "" {
		if e.Status == rpc.NoAnswer {
			e.Status = int(codes.Unavailable)
		}
		return "grpc " + service + "/" + call + " " + codes.Code(e.Status).String()
	}
	code := fmt.Sprint(e.Status)
	if e.Status == 0 {
		code = "error"
	}
	route := strings.Replace(e.Route, "/{apiVersion}/", "/v4/", 1)
	return e.Method + " " + pathParameter.ReplaceAllString(route, "{id}") + " " + code
}

// liveAnyway runs the life of a volume, and repeats calls that fail, as the sidecars do.
func liveAnyway(t *testing.T, client csi.ControllerClient, name, node string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := func(what string, call func() error) {
		for err := call(); err != nil; err = call() {
			if ctx.Err() != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
		}
	}
	req := createRequest(name)
	var vol *csi.Volume
	again("CreateVolume", func() error {
		made, err := client.CreateVolume(ctx, req, grpc.WaitForReady(true))
		vol = made.GetVolume()
		return err
	})
	again("ControllerPublishVolume", func() error {
		_, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: vol.GetVolumeId(), NodeId: node, VolumeContext: vol.GetVolumeContext(), VolumeCapability: req.GetVolumeCapabilities()[0],
		})
		return err
	})
	again("ControllerUnpublishVolume", func() error {
		_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: vol.GetVolumeId(), NodeId: node})
		return err
	})
	again("DeleteVolume", func() error {
		_, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()})
		return err
	})
}
