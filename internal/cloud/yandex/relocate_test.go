package yandex_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

const (
	relocateDisk = "DiskService/Relocate"
	zoneB, zoneD = "ru-central1-b", "ru-central1-d"
)

// moved checks in which zone a disk is, alone, and how many moves the cloud has accepted.
func moved(t *testing.T, folder *emulator.Cloud, zone string, moves int) {
	t.Helper()
	if disks := folder.Disks(); len(disks) != 1 || disks[0].Zone != zone {
		t.Errorf("the disks are %+v, want one in %s", disks, zone)
	}
	begun := 0
	for _, op := range folder.Operations() {
		if op.Kind == "relocate" {
			begun++
		}
	}
	if begun != moves {
		t.Errorf("%d moves were begun, want %d", begun, moves)
	}
}

func relocate(t *testing.T, c *yandex.Cloud, id cloud.VolumeID, zone string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	return c.Relocate(ctx, yandex.Relocation{Disk: id, Zone: zone})
}

// Whatever happens to the request or to its operation, a move is made once, or the error says why it is not.
func TestAMoveIsMadeOnceWhateverHappens(t *testing.T) {
	for name, tc := range map[string]struct {
		fault faults.Effect
		rules emulator.Rules
		route string
		moves int
		kind  fault.Kind
		says  string
	}{
		"nothing":                         {moves: 1},
		"the answer is lost":              {fault: faults.Effect{Lost: faults.LostAfter}, moves: 1},
		"the request is lost":             {fault: faults.Effect{Lost: faults.LostBefore}, moves: 1},
		"the cloud is away for a moment":  {fault: faults.Effect{Status: int(codes.Unavailable)}, moves: 1},
		"a first read fails":              {route: "DiskService/Get", fault: faults.Effect{Status: int(codes.Unavailable)}, moves: 1},
		"what runs cannot be read":        {route: "DiskService/ListOperations", fault: faults.Effect{Status: int(codes.Internal)}, moves: 1},
		"the zone shows early":            {rules: emulator.Rules{ChangeOnAccept: true}, moves: 1},
		"the zone shows early and not":    {rules: emulator.Rules{ChangeHalfway: true}, fault: faults.Effect{Errored: true}, moves: 1, kind: fault.Unavailable, says: "has failed"},
		"the operation fails":             {fault: faults.Effect{Errored: true}, moves: 1, kind: fault.Unavailable, says: "has failed"},
		"the operation is not found soon": {rules: emulator.Rules{FreshNotFound: 2}, moves: 1},
		"a quota refuses it": {
			fault: faults.Effect{Status: int(codes.ResourceExhausted), Message: "Quota limit compute.ssdDisks.size exceeded"}, kind: fault.Exhausted, says: "compute.ssdDisks.size",
		},
		"the zone refuses it": {
			fault: faults.Effect{Status: int(codes.InvalidArgument), Message: "relocation to this zone is not possible"}, kind: fault.Precondition, says: "to this zone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{Durations: emulator.Durations{Relocate: clock.Fixed(20 * time.Minute)}, Rules: tc.rules})
				c := open(t, folder)
				id := origin(t, c)
				if tc.route == "" {
					tc.route = relocateDisk
				}
				folder.Arm(emulator.Fault{Route: tc.route, Times: 1, Effect: tc.fault})
				err := relocate(t, c, id, zoneB)
				zone := zoneB
				if tc.kind != fault.None {
					zone = emulator.DefaultZone
				}
				if tc.kind == fault.None {
					must(t, err)
				} else {
					want(t, err, tc.kind, tc.says)
				}
				moved(t, folder, zone, tc.moves)
			})
		})
	}
}

// A move that is under way is waited for, also one that another command has begun, and one that is done is a success without a request.
func TestAMoveThatIsUnderWayIsContinued(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Durations{Relocate: clock.Fixed(20 * time.Minute)}})
		killed, c := open(t, folder), open(t, folder)
		id := origin(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var before sync.WaitGroup
		before.Go(func() { want(t, killed.Relocate(ctx, yandex.Relocation{Disk: id, Zone: zoneB}), fault.Uncertain) })
		time.Sleep(5 * time.Minute)
		cancel()
		before.Wait()
		var steps []string
		must(t, c.Relocate(t.Context(), yandex.Relocation{Disk: id, Zone: zoneB, Step: func(what string) { steps = append(steps, what) }}))
		moved(t, folder, zoneB, 1)
		if last := steps[len(steps)-1]; !strings.Contains(last, "under way with disk "+string(id)) {
			t.Errorf("it waits for %q, want the move that is under way last", steps)
		}
		must(t, relocate(t, c, id, zoneB))
		moved(t, folder, zoneB, 1)
	})
}

// A zone that shows before the end of a move, which then fails, is not taken for the end.
func TestAZoneThatShowsEarlyIsNotBelieved(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{
			Durations: emulator.Durations{Relocate: clock.Fixed(20 * time.Minute)}, Rules: emulator.Rules{ChangeHalfway: true},
		})
		c := open(t, folder)
		id := origin(t, c)
		folder.Arm(emulator.Fault{Route: relocateDisk, Times: 1, Effect: faults.Effect{Errored: true}})
		var before sync.WaitGroup
		before.Go(func() { want(t, relocate(t, open(t, folder), id, zoneB), fault.Unavailable, "has failed") })
		time.Sleep(15 * time.Minute)
		if d, _ := folder.Disk(string(id)); d.Zone != zoneB {
			t.Fatalf("the disk shows %s before the end, so this shows nothing", d.Zone)
		}
		must(t, relocate(t, c, id, zoneB))
		before.Wait()
		moved(t, folder, zoneB, 2)
	})
}

// Of two calls at once to one zone both succeed, and of two to different zones the second one is refused.
func TestTwoMovesAtOnce(t *testing.T) {
	for name, zones := range map[string][2]string{"to one zone": {zoneB, zoneB}, "to two zones": {zoneB, zoneD}} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{Durations: emulator.Durations{Relocate: clock.Fixed(20 * time.Minute)}})
				id := origin(t, open(t, folder))
				var both sync.WaitGroup
				var failed [2]error
				for n, zone := range zones {
					c := open(t, folder)
					both.Go(func() { failed[n] = relocate(t, c, id, zone) })
				}
				both.Wait()
				d, _ := folder.Disk(string(id))
				moved(t, folder, d.Zone, 1)
				for n, zone := range zones {
					if zone == d.Zone {
						must(t, failed[n])
					} else {
						want(t, failed[n], fault.Precondition, "another call has moved it to "+d.Zone)
					}
				}
			})
		})
	}
}

// What cannot be moved is refused before a request is sent.
func TestWhatCannotBeMoved(t *testing.T) {
	folder := start(t, emulator.Options{Zones: map[string]emulator.Zone{
		emulator.DefaultZone: {}, zoneB: {}, zoneD: {DiskTypes: []string{"network-ssd"}},
	}})
	c := open(t, folder)
	group := func(zone string) string { return folder.AddPlacementGroup(emulator.PlacementGroup{Zone: zone}) }
	here, there := group(emulator.DefaultZone), group(zoneB)
	grouped := create(t, c, placed("grouped", here))
	inUse, free := attached(t, c), volume(t, c, "free")
	folder.ResetStats()
	for name, tc := range map[string]struct {
		move yandex.Relocation
		kind fault.Kind
		says string
	}{
		"it is attached":              {yandex.Relocation{Disk: inUse, Zone: zoneB}, fault.Precondition, machine1},
		"there is no such zone":       {yandex.Relocation{Disk: free.ID, Zone: "ru-central1-x"}, fault.Exhausted, "does not exist"},
		"the zone lacks the type":     {yandex.Relocation{Disk: free.ID, Zone: zoneD}, fault.Exhausted, "no disks of the type"},
		"this is no name of a zone":   {yandex.Relocation{Disk: free.ID, Zone: "../b"}, fault.InvalidArgument, "no zone"},
		"there is no such disk":       {yandex.Relocation{Disk: "epd00000000000000000", Zone: zoneB}, fault.NotFound, "not found"},
		"this is no id":               {yandex.Relocation{Disk: "../disk", Zone: zoneB}, fault.NotFound, "no disk"},
		"it is in a placement group":  {yandex.Relocation{Disk: grouped.ID, Zone: zoneB}, fault.Precondition, here},
		"it is in no placement group": {yandex.Relocation{Disk: free.ID, Zone: zoneB, Group: there}, fault.Precondition, "no placement group"},
		"this is no id of a group":    {yandex.Relocation{Disk: grouped.ID, Zone: zoneB, Group: "x/y"}, fault.InvalidArgument, "x/y"},
	} {
		t.Run(name, func(t *testing.T) { want(t, c.Relocate(t.Context(), tc.move), tc.kind, tc.says) })
	}
	if n := folder.Stats().Writes; n != 0 {
		t.Errorf("%d writes, want none", n)
	}
	must(t, c.Relocate(t.Context(), yandex.Relocation{Disk: grouped.ID, Zone: zoneB, Group: there}))
	if d, _ := folder.Disk(string(grouped.ID)); d.Zone != zoneB || d.PlacementGroup != there {
		t.Errorf("the disk is %+v, want it in the group of %s", d, zoneB)
	}
}
