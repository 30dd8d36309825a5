package linode_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// keepClones makes a controller keep clones as snapshots.
func keepClones(cfg *linode.Config) { cfg.Snapshots = true }

// detached demands that the volume is detached.
var detached = []cloud.Parameter{{Name: linode.ParamConsistency, Value: linode.ConsistencyDetached}}

func snapshot(t *testing.T, c cloud.Cloud, name string, of cloud.VolumeID) cloud.Snapshot {
	t.Helper()
	return cloudtest.CreateSnapshot(t, c, cloud.CreateSnapshotRequest{Name: name, Volume: of})
}

// behind returns the id of the volume of a snapshot.
func behind(snap cloud.Snapshot) cloud.VolumeID {
	return cloud.VolumeID(strings.TrimPrefix(string(snap.ID), "snap-"))
}

// edit changes a volume as a person can.
func edit(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, account.URL+"/v4/volumes/"+string(id), strings.NewReader(body))
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+account.Token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := account.Client().Do(r)
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("PUT %s = %s", body, answer.Status)
	}
}

// restore asks for a volume with 20 GiB.
func restore(name string, from cloud.SnapshotID) cloud.CreateVolumeRequest {
	req := request(name)
	req.Source.Snapshot, req.Size = from, 20*cloud.GiB
	return req
}

// C2: a restore to a larger size has the size, the content and the encryption of the snapshot.
func TestASnapshotIsRestoredToALargerSizeWithItsEncryption(t *testing.T) {
	for _, value := range []string{"true", "false"} {
		t.Run("encrypted "+value, func(t *testing.T) {
			account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond)), Rules: emulator.Rules{CopiesHaveTags: true}})
			c := stack(open(t, account, keepClones))
			req := request("source")
			req.Parameters = []cloud.Parameter{{Name: linode.ParamEncrypted, Value: value}}
			source := create(t, c, req)
			account.SetContent(number(t, source.ID), "the data")
			snap := snapshot(t, c, "snap", source.ID)
			account.SetContent(number(t, source.ID), "later data")
			kept, _ := account.Volume(number(t, behind(snap)))
			slices.Sort(kept.Tags)
			want := "cloudblock-cluster:one cloudblock-name-hash:" + cloud.FullHash("snap") + " cloudblock-snapshot-of:" + string(source.ID)
			if !snap.Ready || kept.SizeGiB != 10 || kept.Linode != 0 || strings.Join(kept.Tags, " ") != want {
				t.Errorf("CreateSnapshot = %+v, and the account has %+v with the tags %q, want %q", snap, kept, kept.Tags, want)
			}
			must(t, c.DeleteVolume(t.Context(), source.ID))
			made := create(t, c, restore("restored", snap.ID))
			got, _ := account.Volume(number(t, made.ID))
			if made.Size != 20*cloud.GiB || got.SizeGiB != 20 || got.Content != "the data" || made.Source.Snapshot != snap.ID || got.Encrypted != (value == "true") {
				t.Errorf("CreateVolume = %+v, and the account has %+v", made, got)
			}
			if tags := fmt.Sprint(got.Tags); strings.Contains(tags, "snapshot-of") || !strings.Contains(tags, "cloudblock-source-snapshot:"+string(snap.ID)) {
				t.Errorf("the restored volume has the tags %s", tags)
			}
		})
	}
}

// C12: to everything that is about volumes a snapshot is no volume, and the other way round, also when a person has
// changed its label or its tags.
func TestASnapshotIsNoVolumeAndAVolumeIsNoSnapshot(t *testing.T) {
	for name, change := range map[string]string{
		"as it was made": `{}`, "with a new label": `{"label": "mine"}`, "without its tags": `{"tags": []}`,
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account, keepClones))
			source := volume(t, c, "source")
			snap := snapshot(t, c, "snap", source.ID)
			id, ofVolume := behind(snap), cloud.SnapshotID("snap-"+string(source.ID))
			edit(t, account, id, change)
			attach := func(id cloud.VolumeID) error { return second(c.Attach(t.Context(), id, node1)) }
			for what, err := range map[string]error{
				"GetVolume":                  second(c.GetVolume(t.Context(), id)),
				"Attach with a label":        attach(id + "-snap"),
				"ExpandVolume":               second(c.ExpandVolume(t.Context(), id, 20*cloud.GiB)),
				"ModifyVolume":               c.ModifyVolume(t.Context(), id, []cloud.Tag{{Key: "team", Value: "a"}}),
				"a clone":                    second(c.CreateVolume(t.Context(), copyOf("copy", id))),
				"a snapshot":                 second(c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "b", Volume: id})),
				"GetSnapshot of a volume":    second(c.GetSnapshot(t.Context(), ofVolume)),
				"a restore of a volume":      second(c.CreateVolume(t.Context(), restore("restored", ofVolume))),
				"GetSnapshot of a volume's":  second(c.GetSnapshot(t.Context(), cloud.SnapshotID(source.ID))),
				"a restore of a bare number": second(c.CreateVolume(t.Context(), restore("restored", cloud.SnapshotID(id)))),
			} {
				if fault.Of(err) != fault.NotFound {
					t.Errorf("%s = %v, want %v", what, err, fault.NotFound)
				}
			}
			want(t, attach(id), fault.NotFound, "it is the snapshot "+string(snap.ID))
			if n := account.Stats().Routes["POST "+attachRoute]; n != 0 {
				t.Errorf("%d attaches were sent", n)
			}
			must(t, c.DeleteVolume(t.Context(), id))
			must(t, c.DeleteSnapshot(t.Context(), ofVolume))
			must(t, c.DeleteSnapshot(t.Context(), cloud.SnapshotID(source.ID)))
			list, err := c.ListVolumes(t.Context(), cloud.Page{})
			must(t, err)
			if len(list.Volumes) != 1 || list.Volumes[0].ID != source.ID || len(account.Volumes()) != 2 {
				t.Errorf("ListVolumes = %+v, and the account has %+v", list.Volumes, account.Volumes())
			}
			listed, err := c.ListSnapshots(t.Context(), "", cloud.Page{})
			must(t, err)
			if len(listed.Snapshots) != 1 || listed.Snapshots[0].ID != snap.ID || listed.Snapshots[0].Mark != (cloud.Mark{Driver: true, Cluster: "one"}) {
				t.Errorf("ListSnapshots = %+v", listed.Snapshots)
			}
			off, err := open(t, account).ListVolumes(t.Context(), cloud.Page{})
			must(t, err)
			if len(off.Volumes) != 1 {
				t.Errorf("without snapshots ListVolumes = %+v", off.Volumes)
			}
			must(t, c.DeleteSnapshot(t.Context(), snap.ID))
			if left := account.Volumes(); len(left) != 1 {
				t.Errorf("left are %+v, want the source", left)
			}
		})
	}
}

// A snapshot of an attached volume is made, unless its class demands otherwise: then nothing is sent and nothing is left.
func TestASnapshotMayDemandADetachedVolume(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account, keepClones))
	source := volume(t, c, "source")
	must(t, second(c.Attach(t.Context(), source.ID, node1)))
	snapshot(t, c, "any", source.ID)
	req := cloud.CreateSnapshotRequest{Name: "strict", Volume: source.ID, Parameters: detached}
	_, err := c.CreateSnapshot(t.Context(), req)
	want(t, err, fault.Precondition, "is attached to Linode 101", "scale the workload to zero")
	expect.Reason(t, "CreateSnapshot", err, fault.VolumeInUse)
	if n := len(account.Volumes()); n != 2 {
		t.Errorf("there are %d volumes, want the source and one snapshot", n)
	}
	must(t, c.Detach(t.Context(), source.ID, node1))
	must(t, second(c.CreateSnapshot(t.Context(), req)))
	for _, wrong := range []cloud.Parameter{{Name: linode.ParamConsistency, Value: "crash"}, {Name: "other", Value: linode.ConsistencyDetached}} {
		_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "wrong", Volume: source.ID, Parameters: []cloud.Parameter{wrong}})
		want(t, err, fault.InvalidArgument, wrong.Name)
	}
}

// A request that is repeated is decided by a new read.
func TestADetachedVolumeIsReadRightBeforeItsCopyBegins(t *testing.T) {
	account := start(t, emulator.Options{})
	source := volume(t, stack(open(t, account)), "source")
	account.Arm(emulator.Fault{Method: "POST", Route: cloneRoute, Times: 1, Effect: faults.Effect{Status: 400, Message: "Linode busy."}})
	c := stack(open(t, account, keepClones, func(cfg *linode.Config) {
		base := cfg.Transport
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := base.RoundTrip(r)
			if strings.HasSuffix(r.URL.Path, "/clone") {
				account.Attached(number(t, source.ID), linode1)
			}
			return answer, err
		})
	}))
	_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "strict", Volume: source.ID, Parameters: detached})
	want(t, err, fault.Precondition, "is attached to Linode 101")
	if n := len(account.Volumes()); n != 1 {
		t.Errorf("there are %d volumes, want the source", n)
	}
}

// A schedule that never deletes ends; what is under way or exists already is not counted twice.
func TestAVolumeHasAtMost32Snapshots(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account, keepClones))
	source, other := volume(t, c, "source"), volume(t, c, "other")
	for n := range 32 {
		snapshot(t, c, fmt.Sprint("snap-", n), source.ID)
	}
	_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "one more", Volume: source.ID})
	want(t, err, fault.Exhausted, "has 32 snapshots", "delete some")
	expect.Reason(t, "CreateSnapshot", err, fault.Quota)
	first := snapshot(t, c, "snap-0", source.ID) // again
	snapshot(t, c, "of the other", other.ID)
	must(t, c.DeleteSnapshot(t.Context(), first.ID))
	snapshot(t, c, "one more", source.ID)
	if n := len(account.Volumes()); n != 2+32+1 {
		t.Errorf("there are %d volumes", n)
	}
}

// P1, P5: a snapshot is made though another goes, and with it the last page, while the list of all is read.
func TestASnapshotIsMadeWhileTheListOfAllBecomesShorter(t *testing.T) {
	account := start(t, emulator.Options{})
	var last int
	c := stack(open(t, account, keepClones, func(cfg *linode.Config) {
		cfg.Transport = cloudtest.Before(cfg.Transport, func(r *http.Request) {
			if r.URL.Query().Get("page") == "2" {
				must(t, account.Rename(last, "other"))
			}
		})
	}))
	source := volume(t, c, "source")
	for n := range 501 {
		var err error
		last, err = account.AddVolume(emulator.Volume{Label: fmt.Sprintf("snap_%s_%016d", cloud.FullHash("one")[:8], n)})
		must(t, err)
	}
	account.ResetStats()
	snapshot(t, c, "snap", source.ID)
	if s := account.Stats(); s.Reads > 20 {
		t.Errorf("%d reads: %v", s.Reads, s.Routes)
	}
}

// C12: a sweep removes what an interrupted snapshot has left, and no snapshot, however old. The unfinished copies of a
// clone and of a snapshot with one name are two.
func TestASweepTakesNoSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account, keepClones)
		other := open(t, account, keepClones, inCluster("two"))
		source := volume(t, c, "source")
		snap := snapshot(t, c, "snap", source.ID)
		theirs := snapshot(t, other, "snap", source.ID)
		account.Arm(emulator.Fault{Method: "PUT", Times: 2, Effect: faults.Effect{Lost: faults.LostBefore}})
		_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "one", Volume: source.ID})
		want(t, err, fault.Uncertain)
		_, err = c.CreateVolume(t.Context(), copyOf("one", source.ID))
		want(t, err, fault.Uncertain)
		if n := len(account.Volumes()); n != 5 {
			t.Errorf("there are %d volumes, want the source, 2 snapshots and 2 unfinished copies", n)
		}
		listed, err := c.ListSnapshots(t.Context(), "", cloud.Page{})
		must(t, err)
		if len(listed.Snapshots) != 2 {
			t.Errorf("ListSnapshots = %+v, want the two that are complete", listed.Snapshots)
		}
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		var left []string
		for _, v := range account.Volumes() {
			left = append(left, fmt.Sprint(v.ID))
		}
		if want := []string{string(source.ID), string(behind(snap)), string(behind(theirs))}; !slices.Equal(left, want) {
			t.Errorf("left are %q, want %q", left, want)
		}
	})
}

// C8: two controllers are asked for one name, of two volumes: one of them has it, and nothing is left of the other.
func TestOneNameIsOneSnapshot(t *testing.T) {
	for seed := range uint64(20) {
		account := start(t, emulator.Options{Seed: seed, Durations: emulator.Each(clock.Span{Least: time.Millisecond, Spread: 3 * time.Millisecond})})
		both := []cloud.Cloud{stack(open(t, account, keepClones)), stack(open(t, account, keepClones))}
		var asking sync.WaitGroup
		errs := make([]error, 2)
		for n, c := range both {
			of := volume(t, c, fmt.Sprint("volume-", n)).ID
			asking.Go(func() {
				_, errs[n] = c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "snap", Volume: of})
			})
		}
		asking.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !slices.ContainsFunc(errs, func(err error) bool { return fault.Of(err) == fault.Conflict }) {
			t.Errorf("CreateSnapshot = %v and %v, want one of them, and %v", errs[0], errs[1], fault.Conflict)
		}
		if n := len(account.Volumes()); n != 3 {
			t.Errorf("there are %d volumes, want 3", n)
		}
	}
}

// A volume with the label of a snapshot that was made for another request, or for another cluster, is never answered.
func TestASnapshotIsNeverAnotherRequests(t *testing.T) {
	for name, tags := range map[string]string{
		"another name's hash":    `["cloudblock-cluster:one", "cloudblock-snapshot-of:1", "cloudblock-name-hash:` + cloud.FullHash("other") + `"]`,
		"another cluster's mark": `["cloudblock-cluster:two", "cloudblock-snapshot-of:1", "cloudblock-name-hash:` + cloud.FullHash("snap") + `"]`,
		"no tags":                `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account, keepClones))
			source := volume(t, c, "source")
			edit(t, account, behind(snapshot(t, c, "snap", source.ID)), `{"tags": `+tags+`}`)
			_, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "snap", Volume: source.ID})
			want(t, err, fault.Conflict, "see its tags")
			if n := len(account.Volumes()); n != 2 {
				t.Errorf("there are %d volumes, want 2", n)
			}
		})
	}
}

// A snapshot that the cloud has broken is not ready, and is deleted like any other.
func TestABrokenSnapshotIsNotReady(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account, keepClones))
	snap := snapshot(t, c, "snap", volume(t, c, "source").ID)
	account.SetStatus(number(t, behind(snap)), "contact_support")
	got, err := c.GetSnapshot(t.Context(), snap.ID)
	if err != nil || got.Ready {
		t.Errorf("GetSnapshot = %+v, %v, want one that is not ready", got, err)
	}
	_, err = c.CreateVolume(t.Context(), restore("restored", snap.ID))
	expect.Reason(t, "the restore", err, fault.VolumeDamaged)
	must(t, c.DeleteSnapshot(t.Context(), snap.ID))
}
