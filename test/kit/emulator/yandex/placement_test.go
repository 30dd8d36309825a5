package yandex_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// made posts to the owner's side and returns the id in the answer.
func made(t *testing.T, c *emulator.Cloud, what, body string) string {
	t.Helper()
	got := expect.Fetch(t, http.MethodPost, c.URL+"/_emulator/"+what, body)
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(got.Body), &answer); got.Status != http.StatusOK || err != nil || answer.ID == "" {
		t.Fatalf("POST %s = %+v, want an id", what, got)
	}
	return answer.ID
}

func TestDisksAreMadeInPlacementGroups(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	group := made(t, c, "placement_groups", `{"zone": "ru-central1-b"}`)
	ask := func(n int, edit func(*compute.CreateDiskRequest)) error {
		req := &compute.CreateDiskRequest{
			FolderId: c.Folder, Name: fmt.Sprintf("disk-%d", n), ZoneId: "ru-central1-b", TypeId: "network-ssd-nonreplicated", Size: 93 << 30,
			DiskPlacementPolicy: &compute.DiskPlacementPolicy{PlacementGroupId: group},
		}
		edit(req)
		_, err := a.disks.Create(as(t.Context()), req)
		return err
	}
	for n, row := range []struct {
		name string
		edit func(*compute.CreateDiskRequest)
		want codes.Code
	}{
		{"as it should be", func(*compute.CreateDiskRequest) {}, codes.OK},
		{"in another zone", func(r *compute.CreateDiskRequest) { r.ZoneId = "ru-central1-a" }, codes.InvalidArgument},
		{"of another type", func(r *compute.CreateDiskRequest) { r.TypeId = "network-ssd-io-m3" }, codes.InvalidArgument},
		{"in a group that there is not", func(r *compute.CreateDiskRequest) { r.DiskPlacementPolicy.PlacementGroupId = "x" }, codes.NotFound},
	} {
		if err := ask(n, row.edit); status.Code(err) != row.want {
			t.Errorf("a disk %s: %v, want %s", row.name, err, row.want)
		}
	}
	disks := c.Disks()
	if len(disks) != 1 || disks[0].PlacementGroup != group {
		t.Errorf("the disks are %+v, want one in %s", disks, group)
	}
}
