package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	folders "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

// yandexSite is an emulated folder of Yandex Cloud.
type yandexSite struct {
	*folders.Cloud
	chance func() float64
	rules  folders.Rules
}

const yandexZone = folders.DefaultZone

// theirLabels are those of what another cluster made.
var theirLabels = map[string]string{"cloudblock-cluster": "theirs", "cloudblock-name-hash": "0123456789abcdef0123"}

func newYandex(o siteOptions) (site, error) {
	rules := yandexRules(o.seed)
	c, err := folders.New(folders.Options{
		InMemory: true, Speed: o.speed, Seed: o.seed, Instances: machines, Zone: yandexZone,
		Decide:    func(c folders.Call) faults.Effect { return o.decide(request{Route: c.Route, Volume: c.Disk}) },
		Durations: folders.Each(lasting), Rules: rules,
	})
	return yandexSite{c, o.chance, rules}, err
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
		// Where a snapshot that failed leaves nothing either, nobody who was started anew could tell that there was one.
		r.KeysForgottenAfter, r.FailedCreateVanishes = clock.Fixed(time.Minute), false
	}
	return r
}

func (a yandexSite) region() string            { return yandexZone }
func (a yandexSite) least() cloud.Bytes        { return 0 }
func (a yandexSite) flags() []string           { return []string{"--yandex-folder-id=" + a.Folder} }
func (a yandexSite) token() string             { return a.Token }
func (a yandexSite) client() http.RoundTripper { return nil } // it has none of HTTP
func (a yandexSite) handler() http.Handler     { return a.Handler() }
func (a yandexSite) close() error              { return a.Close() }

// settle is as on the other cloud whose clones go through temporary snapshots.
func (a yandexSite) settle(real bool) time.Duration { return digitalOcean{}.settle(real) }

func (a yandexSite) nodes() (nodes []cloud.NodeID) {
	for _, id := range a.Instances() {
		nodes = append(nodes, cloud.NodeID(id))
	}
	return nodes
}

func (a yandexSite) open(ctx context.Context, by way) (cloud.Cloud, func(context.Context) error, error) {
	c, err := yandex.New(ctx, yandex.Config{
		Credentials: func() (string, error) { return a.Token, nil },
		Endpoint:    "http://127.0.0.1:1", Dial: by.dial, // no socket
		Folder: a.Folder, Zone: yandexZone, ClusterID: ourCluster, Rand: a.chance, LeftOverAge: leftOver,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

func (a yandexSite) truth(real bool) Truth {
	t := Truth{Volumes: map[cloud.VolumeID]Disk{}, Snapshots: map[cloud.SnapshotID]Image{}}
	for _, d := range a.Disks() {
		t.Volumes[cloud.VolumeID(d.ID)] = Disk{
			Name: d.Name, Foreign: d.Labels["cloudblock-cluster"] == "theirs" || d.Description == twinMark, Size: cloud.Bytes(d.Size), Stamp: d.Content,
			On: nodesOf(cloud.NodeID(d.Instance)), Dying: d.Status == "DELETING" || d.Status == "ERROR",
		}
	}
	for _, s := range a.Snapshots() {
		_, temporary := s.Labels["cloudblock-temporary"]
		t.Snapshots[cloud.SnapshotID(s.ID)] = Image{
			Name: s.Name, Foreign: s.Labels["cloudblock-cluster"] == "theirs", Of: cloud.VolumeID(s.Disk), Stamp: s.Content,
			Later: real && temporary, Dying: s.Status == "DELETING" || s.Status == "ERROR",
		}
	}
	return t
}

func (a yandexSite) where(id cloud.VolumeID) (on cloud.NodeID, ready bool) {
	d, _ := a.Disk(string(id))
	return cloud.NodeID(d.Instance), d.Instance != ""
}

func (a yandexSite) changing(id cloud.VolumeID) bool {
	return slices.ContainsFunc(a.Running(), func(op folders.Operation) bool { return op.Disk == string(id) })
}

func (a yandexSite) put(id cloud.VolumeID, on cloud.NodeID) { a.Attached(string(id), string(on)) }
func (a yandexSite) stamp(id cloud.VolumeID, text string)   { a.SetContent(string(id), text) }
func (a yandexSite) hold(id cloud.VolumeID) func()          { return a.Hold(string(id)) }

// foreign also makes a temporary snapshot of another cluster, which is that cluster's to remove.
func (a yandexSite) foreign(volume, snapshot string) (cloud.VolumeID, error) {
	id, err := a.AddDisk(folders.Disk{Name: volume, Zone: yandexZone, Labels: theirLabels, Content: theirStamp})
	if err != nil {
		return "", err
	}
	_, err = a.AddSnapshot(folders.Snapshot{Name: snapshot, Disk: id, Labels: theirLabels, Content: theirStamp})
	_, err2 := a.AddSnapshot(folders.Snapshot{
		Name: "clone-of-" + volume, Disk: id, Content: theirStamp,
		Labels: map[string]string{"cloudblock-temporary": "clone", "cloudblock-cluster": "theirs"},
	})
	return cloud.VolumeID(id), errors.Join(err, err2)
}

// tend deletes disks whose create failed in the cloud. Only the call that saw it knows that nobody has ever
// used them.
func (a yandexSite) tend() []string {
	var done []string
	for _, d := range a.Disks() {
		if d.Status == "ERROR" && d.Instance == "" && a.remove(cloud.VolumeID(d.ID)) {
			done = append(done, d.Name)
		}
	}
	return done
}

// twinMark is the description of a disk that was made as a twin.
const twinMark = "an older twin"

func (a yandexSite) twin(of cloud.VolumeID) cloud.VolumeID {
	d, there := a.Disk(string(of))
	if !there || !a.rules.NamesRepeat {
		return ""
	}
	id, err := a.AddDisk(folders.Disk{
		Name: d.Name, Labels: d.Labels, Zone: d.Zone, Type: d.Type, Size: d.Size, Description: twinMark, Created: d.Created.Add(-time.Hour),
	})
	if err != nil {
		return ""
	}
	return cloud.VolumeID(id)
}

func (a yandexSite) remove(id cloud.VolumeID) bool {
	conn, err := grpc.NewClient("passthrough:///folder", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(a.Dial))
	if err != nil {
		return false
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+a.Token)
	// The answer may get lost, and what was begun may fail: what is there counts.
	_, _ = compute.NewDiskServiceClient(conn).Delete(ctx, &compute.DeleteDiskRequest{DiskId: string(id)})
	_, there := a.Disk(string(id))
	return conn.Close() == nil && !there
}

func (a yandexSite) complaints() []string {
	var texts []string
	for _, v := range a.Violations() {
		texts = append(texts, fmt.Sprintf("%s: %s instance %s", v.What, v.DiskName, v.Instance))
	}
	return texts
}

func (a yandexSite) odds(real bool) odds {
	if real { // it looks at its own pace, which is slow in this cluster's time
		return odds{stale: .18, full: .13, pending: .2}
	}
	return odds{stale: .04, full: .13, pending: .2}
}

func (a yandexSite) sort(r request) sort {
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

func (a yandexSite) refusal(kind Kind, rng *rand.Rand) faults.Effect {
	switch kind {
	case Full:
		return faults.Effect{Status: int(codes.ResourceExhausted), Message: "Quota limit compute.disks.count exceeded"}
	case Pending:
		return faults.Effect{Status: int(codes.FailedPrecondition), Message: "Instance has an invalid state for this operation: has a running operation"}
	case Throttled:
		return faults.Effect{Status: int(codes.ResourceExhausted), Message: "The limit on maximum number of active operations has exceeded."}
	}
	return faults.Effect{Status: int([]codes.Code{codes.Unavailable, codes.Internal, codes.DeadlineExceeded}[rng.IntN(3)]), Message: "try again"}
}
