package world

import (
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	folders "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

var yandexTraits = traits{
	name: "yandex", start: startYandex, sort: yandexSort, odds: yandexOdds, refusal: yandexRefusal, duplicate: yandexDuplicate,
}

func startYandex(o accounts.Options) (accounts.Account, error) {
	a, err := accounts.StartYandex(o)
	if err != nil {
		return nil, err
	}
	a.SetRules(func(r *folders.Rules) { *r = yandexRules(o.Seed) })
	return a, nil
}

// yandexRules lets different seeds meet what is not documented: names that repeat, idempotency keys that are
// forgotten, growth that is refused while a disk is attached.
func yandexRules(seed uint64) folders.Rules {
	r := folders.Rules{
		NamesRepeat: seed%3 == 1, ResizeRefused: seed%2 == 1, ChangeOnAccept: seed%4 == 1, ArrivesDone: seed%5 < 2,
		FreshNotFound: int(seed % 3), ChangeHalfway: seed%4 == 3, OperationsApart: seed%6 >= 3,
		PagesByNumber: seed%5 == 3, FailedCreateVanishes: seed%4 < 2, BootDisksElsewhere: seed%7 < 3,
	}
	if seed%3 == 2 {
		// Where a snapshot that failed leaves nothing either, a program that was started again cannot know that there was one.
		r.KeysForgottenAfter, r.FailedCreateVanishes = clock.Fixed(time.Minute), false
	}
	return r
}

func yandexOdds(real bool) odds {
	if real { // it looks at its own pace, which is slow in this cluster's time
		return odds{stale: .18, full: .13, pending: .2}
	}
	return odds{stale: .04, full: .13, pending: .2}
}

func yandexSort(r accounts.Call) sort {
	service, method, _ := strings.Cut(r.Route, "/")
	switch {
	case method == "Get":
		return toReadOne
	case strings.HasPrefix(method, "List") && (service == "DiskService" || service == "SnapshotService"):
		return toReadMany
	case strings.HasPrefix(method, "List"):
		return toReadOne // of operations, and of the services' addresses
	case method == "AttachDisk", method == "DetachDisk":
		return toMove
	case method == "Create" && service != "IamTokenService":
		return toBuildLater
	case method == "Delete":
		return toRemoveLater
	case method == "Update":
		return toChangeLater
	}
	return toChange
}

func yandexRefusal(kind trouble.Kind, rng *rand.Rand) faults.Effect {
	switch kind {
	case trouble.Full:
		return faults.Effect{Status: int(codes.ResourceExhausted), Message: "Quota limit compute.disks.count exceeded"}
	case trouble.Pending:
		return faults.Effect{Status: int(codes.FailedPrecondition), Message: "Instance has an invalid state for this operation: has a running operation"}
	case trouble.Throttled:
		return faults.Effect{Status: int(codes.ResourceExhausted), Message: "The limit on maximum number of active operations has exceeded."}
	}
	return faults.Effect{Status: int([]codes.Code{codes.Unavailable, codes.Internal, codes.DeadlineExceeded}[rng.IntN(3)]), Message: "try again"}
}

func yandexDuplicate(a accounts.Account, seed uint64, of string) string {
	folder := a.(*accounts.Yandex)
	d, there := folder.Disk(of)
	if !there || !yandexRules(seed).NamesRepeat {
		return ""
	}
	id, err := folder.AddDisk(folders.Disk{
		Name: d.Name, Labels: d.Labels, Zone: d.Zone, Type: d.Type, Size: d.Size, Description: duplicateMark, Created: d.Created.Add(-time.Hour),
	})
	if err != nil {
		return ""
	}
	return id
}
