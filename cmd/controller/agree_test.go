package main

import (
	"context"
	"fmt"
	"maps"
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
			address := drivertest.FreeAddress(t)
			flags, err := account.Controller(t.TempDir())
			ok(t, err)
			conn, end := serving(t, t.Output(), append(flags, "--cloud="+cloud, "--http-endpoint="+address)...)
			defer end()
			calls := sidecars{csi.NewControllerClient(conn), account.Machines()[0]}
			lost := account.Arm(faults.Fault{Times: 2, Effect: faults.Effect{Lost: faults.LostAfter}})
			// After the first requests a fault would break connections that were used before, on which the transport repeats reads
			// by itself.
			never := account.Arm(faults.Fault{Skip: 9, Times: 3, Effect: faults.Effect{Lost: faults.LostBefore}})
			var group sync.WaitGroup
			for n := range 3 {
				group.Go(func() { calls.liveAnyway(t, fmt.Sprint("pvc-", n)) })
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

// sidecars make calls for volumes on a machine.
type sidecars struct {
	controller csi.ControllerClient
	node       string
}

func (s sidecars) publish(ctx context.Context, vol *csi.Volume) error {
	_, err := s.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: vol.GetVolumeId(), NodeId: s.node, VolumeContext: vol.GetVolumeContext(), VolumeCapability: createRequest("").GetVolumeCapabilities()[0],
	})
	return err
}

func (s sidecars) unpublish(ctx context.Context, vol *csi.Volume) error {
	_, err := s.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: vol.GetVolumeId(), NodeId: s.node})
	return err
}

func (s sidecars) remove(ctx context.Context, vol *csi.Volume) error {
	_, err := s.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()})
	return err
}

// liveAnyway runs the life of a volume, and repeats calls that fail, as the sidecars do.
func (s sidecars) liveAnyway(t *testing.T, name string) {
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
	var vol *csi.Volume
	again("CreateVolume", func() error {
		made, err := s.controller.CreateVolume(ctx, createRequest(name), grpc.WaitForReady(true))
		vol = made.GetVolume()
		return err
	})
	again("ControllerPublishVolume", func() error { return s.publish(ctx, vol) })
	again("ControllerUnpublishVolume", func() error { return s.unpublish(ctx, vol) })
	again("DeleteVolume", func() error { return s.remove(ctx, vol) })
}
