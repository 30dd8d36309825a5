package yandex

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// history is a disk's list of operations.
type history struct {
	compute.DiskServiceClient

	all   []*operation.Operation
	pages int
}

func (h *history) ListOperations(
	_ context.Context, ask *compute.ListDiskOperationsRequest, _ ...grpc.CallOption,
) (*compute.ListDiskOperationsResponse, error) {
	h.pages++
	from, _ := strconv.Atoi(ask.GetPageToken())
	to := min(from+int(ask.GetPageSize()), len(h.all))
	list := &compute.ListDiskOperationsResponse{Operations: h.all[from:to]}
	if to < len(h.all) {
		list.NextPageToken = strconv.Itoa(to)
	}
	return list, nil
}

// A1: in which order the cloud lists operations is not documented. One that is running is found in any; with the newest first that
// takes one page.
func TestARunningOperationIsFoundInAnyOrder(t *testing.T) {
	newest := &operation.Operation{Id: "now", CreatedAt: timestamppb.Now()}
	all := []*operation.Operation{newest}
	for n := range 300 {
		began := timestamppb.New(time.Now().Add(-time.Duration(n+2) * time.Hour))
		all = append(all, &operation.Operation{Id: fmt.Sprint(n), Done: true, CreatedAt: began})
	}
	oldest, mixed := slices.Clone(all), slices.Clone(all)
	slices.Reverse(oldest)
	shuffle := rand.New(rand.NewPCG(1, 2))
	shuffle.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	for name, tc := range map[string]struct {
		all   []*operation.Operation
		pages int
	}{"the newest first": {all, 1}, "the oldest first": {oldest, 7}, "in no order": {mixed, 7}} {
		disk := &history{all: tc.all}
		running, err := tracker{&Cloud{disks: disk}}.Running(t.Context(), prefixDisk+"fhm")
		if err != nil || len(running) != 1 || running[0].ID != newest.GetId() || disk.pages != tc.pages {
			t.Errorf("%s: %+v, %v on %d pages, want the one that is running, on %d", name, running, err, disk.pages, tc.pages)
		}
	}
}
