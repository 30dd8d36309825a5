package local_test

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/snapshots"
)

var must, wantKind, wantReason = expect.NoError, expect.Kind, expect.Reason

const size = 16 * cloud.MiB

// unnamed are the parameters of volumes of a class without a pool.
var unnamed = []cloud.Parameter{{Name: local.ParamPool, Value: "default"}}

func create(t *testing.T, l *local.Local, name string) cloud.Volume {
	t.Helper()
	vol, err := l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: name, Size: size})
	must(t, err)
	return vol
}

func TestVolumeIsWholeAfterARestart(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	tags := []cloud.Tag{{Key: "cloudblock-pvc", Value: "data"}}
	made, err := l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size, Zones: []string{"elsewhere", node}, Tags: tags})
	must(t, err)
	hex := path.Base(string(made.ID))
	if age := time.Since(made.Created); age < 0 || age > time.Minute {
		t.Errorf("CreateVolume says that the volume was created at %s, %s ago", made.Created, age)
	}
	want := cloud.Volume{ID: made.ID, Name: "a", Size: size, Created: made.Created, Zone: node, Parameters: unnamed, Device: cloud.Device{Name: hex + ".img"}, Tags: tags}
	if !reflect.DeepEqual(made, want) {
		t.Errorf("CreateVolume = %+v, want %+v", made, want)
	}
	again := open(t, dir)
	if got, err := again.GetVolume(t.Context(), made.ID); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("GetVolume after a restart = %+v, %v, want %+v", got, err, want)
	}
	if got, err := again.FindVolume(t.Context(), "a"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("FindVolume after a restart = %+v, %v, want %+v", got, err, want)
	}
}

// C12: a node neither finds nor deletes another node's volumes.
func TestVolumesOfOtherNodes(t *testing.T) {
	l := open(t, t.TempDir())
	vol := create(t, l, "a")
	other := cloud.VolumeID("n2/default/" + path.Base(string(vol.ID)))

	err := l.DeleteVolume(t.Context(), other)
	wantKind(t, "DeleteVolume of another node's volume", err, fault.Precondition)
	if err == nil || !strings.Contains(err.Error(), "node n2") {
		t.Errorf("DeleteVolume = %v, want the node's name in it", err)
	}
	_, err = l.GetVolume(t.Context(), other)
	wantKind(t, "GetVolume of another node's volume", err, fault.NotFound)
	if _, err := l.GetVolume(t.Context(), vol.ID); err != nil {
		t.Errorf("GetVolume of our own = %v", err)
	}
}

// The blocks of a snapshot are known to its node, and two of different pools are of different volumes.
func TestBlocksOfOtherSnapshots(t *testing.T) {
	l := open(t, t.TempDir())
	id := func(node, pool, digit string) cloud.SnapshotID {
		return cloud.SnapshotID(node + "/" + pool + "/snap-" + strings.Repeat(digit, 32))
	}
	here, there := id(node, "default", "1"), id("n2", "default", "1")
	for name, tc := range map[string]struct {
		req  cloud.BlocksRequest
		want fault.Kind
	}{
		"of another node":                     {cloud.BlocksRequest{Target: there}, fault.Precondition},
		"two of another node":                 {cloud.BlocksRequest{Target: there, Base: id("n2", "default", "2")}, fault.Precondition},
		"of a pool that is not here":          {cloud.BlocksRequest{Target: id(node, "fast", "1")}, fault.Precondition},
		"of two nodes":                        {cloud.BlocksRequest{Target: here, Base: there}, fault.InvalidArgument},
		"of two pools":                        {cloud.BlocksRequest{Target: here, Base: id(node, "fast", "1")}, fault.InvalidArgument},
		"an id that no pool has made":         {cloud.BlocksRequest{Target: "snap-1"}, fault.NotFound},
		"a base with such an id":              {cloud.BlocksRequest{Target: here, Base: "snap-1"}, fault.NotFound},
		"the id of a volume":                  {cloud.BlocksRequest{Target: cloud.SnapshotID(create(t, l, "a").ID)}, fault.NotFound},
		"of a pool that does not know blocks": {cloud.BlocksRequest{Target: here}, fault.Precondition},
	} {
		err := l.ReadBlocks(t.Context(), tc.req, nil)
		wantKind(t, "ReadBlocks "+name, err, tc.want)
		if strings.Contains(name, "another node") && (fault.ReasonOf(err) != fault.SourceElsewhere || !strings.Contains(err.Error(), "node n2")) {
			t.Errorf("ReadBlocks %s = %v, want the node and the reason %s", name, err, fault.SourceElsewhere)
		}
	}
}

// C14: with an empty disk in place of the pool's, a program that starts creates a new pool: a delete of a volume on the
// other disk succeeds and removes nothing (docs/contributing/decisions/pools.md, 47).
func TestDeleteWithAnEmptyDiskInPlaceOfThePool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pool")
	swap := func(from, to string) {
		t.Helper()
		must(t, errors.Join(os.Rename(dir, from), os.Rename(to, dir)))
	}
	must(t, errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(dir+".empty", 0o700)))
	running := open(t, dir)
	vol := create(t, running, "a")
	swap(dir+".own", dir+".empty")
	wantKind(t, "DeleteVolume before a restart", running.DeleteVolume(t.Context(), vol.ID), fault.Precondition)
	l := open(t, dir)
	_, err := l.GetVolume(t.Context(), vol.ID)
	wantKind(t, "GetVolume", err, fault.NotFound)
	wantKind(t, "DeleteVolume", l.DeleteVolume(t.Context(), vol.ID), fault.None)
	swap(dir+".empty", dir+".own")
	if got, err := open(t, dir).GetVolume(t.Context(), vol.ID); err != nil || got.Name != "a" || got.Health.Kind != cloud.Healthy {
		t.Errorf("GetVolume with the pool's own disk = %+v, %v", got, err)
	}
}

func TestCreateRefusesWhatItCannotServe(t *testing.T) {
	l := open(t, t.TempDir())
	for name, tc := range map[string]struct {
		req  cloud.CreateVolumeRequest
		want fault.Kind
	}{
		"two sources":            {cloud.CreateVolumeRequest{Name: "a", Size: size, Source: cloud.Source{Volume: "v", Snapshot: "s"}}, fault.InvalidArgument},
		"a limit below the size": {cloud.CreateVolumeRequest{Name: "a", Size: size, Limit: size - 1}, fault.OutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.CreateVolume(t.Context(), tc.req)
			wantKind(t, "CreateVolume", err, tc.want)
			_, err = l.FindVolume(t.Context(), "a")
			wantKind(t, "FindVolume", err, fault.NotFound)
		})
	}
}

// C14: a volume whose record is lost keeps its data, is still listed, and is removed only by its own id.
func TestVolumeWithoutItsRecordIsKeptAndListed(t *testing.T) {
	dir := t.TempDir()
	vol := create(t, open(t, dir), "a")
	hex := path.Base(string(vol.ID))
	image := filepath.Join(dir, "volumes", hex+".img")
	must(t, os.WriteFile(image, append([]byte("precious"), make([]byte, size-8)...), 0o600))
	must(t, os.Remove(filepath.Join(dir, "volumes", hex+".json")))

	l := open(t, dir)
	want := cloud.Volume{ID: vol.ID, Name: hex, Size: size, Zone: node, Parameters: unnamed, Device: cloud.Device{Name: hex + ".img"}, Health: cloud.Health{
		Kind: cloud.Inaccessible, Reason: "RecordMissing",
		Message: "its record " + hex + ".json is missing; the data is there, put the record back to use it",
	}}
	if list, err := l.ListVolumes(t.Context(), cloud.Page{}); err != nil || len(list.Volumes) != 1 || !reflect.DeepEqual(list.Volumes[0], want) {
		t.Errorf("ListVolumes = %+v, %v, want %+v", list, err, want)
	}
	create(t, l, "a") // the name is free again, and that is another volume
	if data, err := os.ReadFile(image); err != nil || string(data[:8]) != "precious" {
		t.Errorf("the data is gone: %v", err)
	}
	release := use(t, dir, vol.ID)
	wantKind(t, "DeleteVolume in use", l.DeleteVolume(t.Context(), vol.ID), fault.Precondition)
	release()
	wantKind(t, "DeleteVolume of its id", l.DeleteVolume(t.Context(), vol.ID), fault.None)
	if _, err := os.Stat(image); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image is still there: %v", err)
	}
}

func TestVolumeWhoseImageIsGone(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	vol := create(t, l, "a")
	must(t, os.Remove(filepath.Join(dir, "volumes", vol.Device.Name)))
	_, err := l.GetVolume(t.Context(), vol.ID)
	wantKind(t, "GetVolume", err, fault.NotFound)
	// A new blank volume with the name of a lost one would present an empty filesystem to the pod.
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size})
	wantKind(t, "CreateVolume", err, fault.Conflict)
	_, err = l.FindVolume(t.Context(), "a")
	wantKind(t, "FindVolume", err, fault.Precondition)
	wantKind(t, "DeleteVolume", l.DeleteVolume(t.Context(), vol.ID), fault.None)
}

// C14: a snapshot whose data is there is not reported as gone, and one that is damaged or of a newer version is not deleted.
func TestSnapshotThatCannotBeRead(t *testing.T) {
	record := func(text string) func(file string) error {
		return func(file string) error { return os.WriteFile(file+".json", []byte(text), 0o600) }
	}
	for name, tc := range map[string]struct {
		spoil       func(file string) error
		get, delete fault.Kind
	}{
		"a record of a newer version": {record(`{"format":2}`), fault.Precondition, fault.Precondition},
		"a damaged record":            {record(`{`), fault.Precondition, fault.Precondition},
		"no record":                   {func(file string) error { return os.Remove(file + ".json") }, fault.Precondition, fault.None},
		"no image":                    {func(file string) error { return os.Remove(file + ".img") }, fault.NotFound, fault.None},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir)
			digits, err := snapshots.Add(dir, pool.ID(path.Base(string(create(t, l, "a").ID))), "s")
			must(t, err)
			must(t, tc.spoil(filepath.Join(dir, "snapshots", string(digits))))
			id := cloud.SnapshotID(node + "/default/snap-" + string(digits))
			_, err = l.GetSnapshot(t.Context(), id)
			wantKind(t, "GetSnapshot", err, tc.get)
			wantKind(t, "DeleteSnapshot", l.DeleteSnapshot(t.Context(), id), tc.delete)
		})
	}
}

func TestCapacityIsWhatCanBeMade(t *testing.T) {
	l := open(t, t.TempDir())
	for _, zone := range []string{"", node} {
		free, err := l.Capacity(t.Context(), zone, nil)
		if err != nil || free < 0 || free%l.Capabilities().SizeStep != 0 {
			t.Errorf("Capacity(%q) = %s, %v, want a multiple of the step", zone, free, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Capacity(ctx, "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Capacity after the end = %v, want %v", err, context.Canceled)
	}
}
