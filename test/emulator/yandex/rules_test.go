package yandex_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

const key = "11111111-2222-4333-8444-555555555555"

func TestAKnownKeyIsAnsweredWithItsOperation(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	ctx := as(t.Context(), "idempotency-key", key)
	first := must(t, "Create")(a.disks.Create(ctx, request("pvc-1")))
	again := must(t, "Create again")(a.disks.Create(ctx, request("pvc-1")))
	if again.GetId() != first.GetId() || len(c.Disks()) != 1 {
		t.Errorf("operations %s and %s, disks %v, want one", first.GetId(), again.GetId(), c.Disks())
	}
	if _, err := a.disks.Create(as(t.Context()), request("pvc-1")); status.Code(err) != codes.AlreadyExists {
		t.Errorf("Create() without the key = %v, want that the name exists", err)
	}
	if _, err := a.disks.Create(as(t.Context(), "idempotency-key", "pvc-1"), request("pvc-2")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Create() with a key that is no UUID = %v, want it refused", err)
	}
	c.SetRules(func(r *emulator.Rules) { r.NamesRepeat = true })
	if mustCreate(t, a, "pvc-1"); len(c.Disks()) != 2 {
		t.Errorf("disks = %v where names repeat, want two", c.Disks())
	}
}
