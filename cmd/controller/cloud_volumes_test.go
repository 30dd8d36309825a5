package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// inCloud is an account of a cloud and the program's flags for it.
type inCloud struct {
	t       *testing.T
	account accounts.Account
	flags   []string
}

func newInCloud(t *testing.T, name string) *inCloud {
	t.Helper()
	return startInCloud(t, name, 1)
}

func startInCloud(t *testing.T, name string, machines int) *inCloud {
	t.Helper()
	account := startAccount(t, name, accounts.Options{Machines: machines})
	flags, err := account.Controller(t.TempDir())
	ok(t, err)
	flags = append(flags, "--cloud="+name)
	if name == "linode" {
		flags = append(flags, "--linode-kubernetes-tags")
	}
	return &inCloud{t: t, account: account, flags: flags}
}

// volumes runs the sub-command and returns what it printed.
func (a *inCloud) volumes(args ...string) (string, error) {
	a.t.Helper()
	var out, stderr bytes.Buffer
	err := run(a.t.Context(), slices.Concat([]string{"volumes"}, a.flags, []string{"--cluster-id=prod"}, args), noEnvironment, &out, &stderr)
	return out.String(), err
}

// open returns the backend of a cluster's controller.
func (a *inCloud) open(cluster string) (cloud.Cloud, []cloud.Tag) {
	a.t.Helper()
	flags := append(slices.Clone(a.flags), "--cluster-id="+cluster)
	if a.account.Name() == "linode" {
		flags = append(flags, "--linode-snapshots=clones") // the sub-command shows them without it
	}
	cfg, err := parse(flags, noEnvironment, nil)
	ok(a.t, err)
	c, end, err := cfg.backend.open(a.t.Context(), cfg, surroundings{log: zap.NewNop(), registry: prometheus.NewRegistry()})
	ok(a.t, err)
	a.t.Cleanup(func() { _ = end(context.Background()) })
	return c, cfg.tags
}

// create creates a volume for a PersistentVolumeClaim of a cluster.
func (a *inCloud) create(cluster, name string) cloud.Volume {
	a.t.Helper()
	c, tags := a.open(cluster)
	vol, err := c.CreateVolume(a.t.Context(), cloud.CreateVolumeRequest{
		Name: name, Size: cloud.Bytes(a.account.Size()),
		Tags: append(tags, cloud.Tag{Key: "cloudblock-pvc-namespace", Value: "shop"}, cloud.Tag{Key: "cloudblock-pvc", Value: "data-" + name}),
	})
	ok(a.t, err)
	return vol
}

func (a *inCloud) deletes(id, why string, args ...string) {
	a.t.Helper()
	_, err := a.volumes(append(args, "--delete="+id)...)
	if why == "" && err != nil || why != "" && (fault.Of(err) != fault.Precondition || !strings.Contains(err.Error(), why)) {
		a.t.Errorf("--delete %s: %v, want that it says %q", id, err, why)
	}
	there := accounts.Find(a.account, id).ID == id || slices.ContainsFunc(a.account.Snapshots(), func(s accounts.Snapshot) bool { return s.ID == id })
	if there != (why != "") {
		a.t.Errorf("after --delete %s the account has it: %v", id, there)
	}
}

// The objects of a cluster in a cloud are listed, and only one that is certainly unused can be deleted, by its id.
func TestVolumesOfACloud(t *testing.T) {
	for _, name := range accounts.Names() {
		t.Run(name, func(t *testing.T) {
			a := newInCloud(t, name)
			account := a.account
			used, unused, theirs := a.create("prod", "used"), a.create("prod", "unused"), a.create("test", "theirs")
			foreign, err := account.AddVolume(accounts.Volume{Name: "foreign"})
			ok(t, err)
			c, _ := a.open("prod")
			machine := cloud.NodeID(account.Machines()[0])
			if _, err := c.Attach(t.Context(), unused.ID, machine); err != nil {
				t.Fatal(err)
			}
			claimed := filepath.Join(t.TempDir(), "handles")
			ok(t, os.WriteFile(claimed, []byte("\n"+string(used.ID)+"\n"), 0o600))

			checkInventory(t, a, claimed, map[string]row{
				string(used.ID):   {Claim: "data-used", Claimed: new(true), Ours: true},
				string(unused.ID): {Claim: "data-unused", Claimed: new(false), Ours: true, AttachedTo: []cloud.NodeID{machine}},
			})
			if table, err := a.volumes("--all"); err != nil || !strings.Contains(table, foreign) || !strings.Contains(table, string(theirs.ID)) {
				t.Errorf("--all: %v\n%s", err, table)
			}

			a.deletes(string(used.ID), "claims it", "--claimed="+claimed)
			a.deletes(string(theirs.ID), `--cluster-id "test"`, "--all")
			a.deletes(foreign, "--unowned", "--all")
			a.deletes(string(theirs.ID), `--cluster-id "test"`, "--unowned")
			a.deletes(string(unused.ID), "attached to")
			ok(t, c.Detach(t.Context(), unused.ID, machine))
			a.deletes(string(unused.ID), "", "--claimed="+claimed)
			a.deletes(foreign, "", "--unowned")
			if _, err := a.volumes("--delete=" + string(unused.ID)); fault.Of(err) != fault.NotFound {
				t.Errorf("--delete of what is gone: %v, want that there is none", err)
			}
			a.showsTemporary(used.ID)
			if c.Capabilities().Snapshots {
				a.deletesSnapshots(c, used.ID)
			}
			if wrong := accounts.Wrong(account); len(wrong) > 0 {
				t.Errorf("the account objects: %q", wrong)
			}
		})
	}
}

// deletesSnapshots deletes a snapshot of this cluster, even if its volume is gone, and none that another cluster or a user has made
// of this cluster's volume.
func (a *inCloud) deletesSnapshots(c cloud.Cloud, used cloud.VolumeID) {
	a.t.Helper()
	take := func(c cloud.Cloud, name string) string {
		a.t.Helper()
		s, err := c.CreateSnapshot(a.t.Context(), cloud.CreateSnapshotRequest{Name: name, Volume: used})
		ok(a.t, err)
		return string(s.ID)
	}
	beta, _ := a.open("beta")
	ours, other := take(c, "snapshot-0c6ccf4a-7c54-4f3c-9e0e-8c5a12b3d4e5"), take(beta, "of-another-cluster")
	byHand, err := a.account.AddSnapshot(accounts.Snapshot{Name: "by-hand", Source: string(used)})
	ok(a.t, err)
	table, err := a.volumes()
	if err != nil || !strings.Contains(table, ours) || strings.Contains(table, other) || strings.Contains(table, byHand) {
		a.t.Errorf("the list without --all: %v, want the snapshot %s of the cluster and neither %s nor %s\n%s", err, ours, other, byHand, table)
	}
	for _, flags := range [][]string{nil, {"--all"}, {"--unowned"}} {
		a.deletes(other, `--cluster-id "beta"`, flags...)
	}
	a.deletes(byHand, "--unowned", "--all")
	a.deletes(byHand, "", "--unowned")
	ok(a.t, c.DeleteVolume(a.t.Context(), used))
	if table, err = a.volumes(); err != nil || !strings.Contains(table, ours) {
		a.t.Errorf("the list without --all: %v, want the snapshot %s, whose volume is gone\n%s", err, ours, table)
	}
	a.deletes(other, `--cluster-id "beta"`, "--unowned")
	a.deletes(ours, "")
}

// brokenClones are faults that leave the intermediate object of a clone, by the cloud.
var brokenClones = map[string]faults.Fault{
	"digitalocean": {Method: "POST", Route: "/v2/volumes", Times: 1, Effect: faults.Effect{Status: 500}},
	"linode":       {Method: "PUT", Times: 1, Effect: faults.Effect{Status: 500}},
	"yandex":       {Route: "DiskService/Create", Times: 1, Effect: faults.Effect{Status: int(codes.Unavailable)}},
}

// The intermediate object of a clone is listed after the clone was interrupted. Linode's copy, which a controller may be about to
// return, cannot be deleted by hand.
func (a *inCloud) showsTemporary(source cloud.VolumeID) {
	a.t.Helper()
	c, tags := a.open("prod")
	a.account.Arm(brokenClones[a.account.Name()])
	_, err := c.CreateVolume(a.t.Context(), cloud.CreateVolumeRequest{
		Name: "copy", Size: cloud.Bytes(a.account.Size()), Source: cloud.Source{Volume: source}, Tags: tags,
	})
	if fault.Of(err) != fault.Uncertain {
		a.t.Fatalf("CreateVolume = %v, want that its outcome is not known", err)
	}
	table, err := a.volumes("--output=json")
	rows := listed[row](a.t, table, err)
	at := slices.IndexFunc(rows, func(it row) bool { return it.Temporary })
	if at < 0 {
		a.t.Fatalf("the list has nothing temporary:\n%s", table)
	}
	if it := rows[at]; it.Kind == kindVolume {
		a.deletes(it.ID, "unfinished copy", "--unowned")
	} else {
		a.deletes(it.ID, "")
	}
}

func checkInventory(t *testing.T, a *inCloud, claimed string, want map[string]row) {
	t.Helper()
	out, err := a.volumes("--output=json", "--claimed="+claimed)
	rows := listed[row](t, out, err)
	if len(rows) != len(want) {
		t.Errorf("listed are %s, want only %v", out, want)
	}
	for _, got := range rows {
		w, known := want[got.ID]
		if !known || got.Claim != w.Claim || got.Namespace != "shop" || *got.Claimed != *w.Claimed || got.Ours != w.Ours || got.Cluster != "prod" ||
			!slices.Equal(got.AttachedTo, w.AttachedTo) || got.Size != a.account.Size() || got.Kind != kindVolume {
			t.Errorf("listed is %+v, want %+v", got, w)
		}
	}
}

// A handle belongs to a row if it is the row's id, alone or with the addition of a vendor's driver.
func TestHasHandle(t *testing.T) {
	for handle, want := range map[string]bool{"45": true, "45-pvc0123": true, "455": false, "4": false, "": false} {
		if it := (row{ID: "45"}); it.hasHandle(handle) != want {
			t.Errorf("%q is of 45: %v, want %v", handle, !want, want)
		}
	}
}
