package linode_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// client returns the real SDK, pointed at the emulated account. It never tries again by itself.
func client(t *testing.T, c *emulator.Cloud) *linodego.Client {
	t.Helper()
	next := c.Client()
	if !strings.HasSuffix(c.URL, ".invalid") {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		next = &http.Client{Transport: transport}
	}
	api := linodego.NewClient(next)
	api.SetToken(c.Token)
	api.SetRetryCount(0)
	api.UseCache(false)
	if _, err := api.UseURL(c.URL + "/v4"); err != nil {
		t.Fatal(err)
	}
	return &api
}

// start starts an account with one Linode.
func start(t *testing.T, opts emulator.Options) (*emulator.Cloud, *linodego.Client, int) {
	t.Helper()
	opts.Linodes = max(opts.Linodes, 1)
	c := emulator.Start(t, opts)
	return c, client(t, c), c.Linodes()[0]
}

// simulated runs f in simulated time with an account in memory.
func simulated(t *testing.T, opts emulator.Options, f func(t *testing.T, c *emulator.Cloud, api *linodego.Client, linode int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.InMemory = true
		c, api, linode := start(t, opts)
		f(t, c, api, linode)
	})
}

func mustCreate(t *testing.T, api *linodego.Client, label string, change ...func(*linodego.VolumeCreateOptions)) *linodego.Volume {
	t.Helper()
	ask := linodego.VolumeCreateOptions{Label: label, Region: emulator.DefaultRegion, Size: 10}
	for _, f := range change {
		f(&ask)
	}
	v, err := api.CreateVolume(t.Context(), ask)
	if err != nil {
		t.Fatalf("CreateVolume(%s) = %v", label, err)
	}
	return v
}

func attach(ctx context.Context, api *linodego.Client, volume, linode int) (*linodego.Volume, error) {
	persist := false
	return api.AttachVolume(ctx, volume, &linodego.VolumeAttachOptions{LinodeID: linode, PersistAcrossBoots: &persist})
}

func mustAttach(t *testing.T, api *linodego.Client, volume, linode int) *linodego.Volume {
	t.Helper()
	v, err := attach(t.Context(), api, volume, linode)
	if err != nil {
		t.Fatalf("AttachVolume(%d, %d) = %v", volume, linode, err)
	}
	return v
}

// mustSee returns what the API says of a volume.
func mustSee(t *testing.T, api *linodego.Client, id int) *linodego.Volume {
	t.Helper()
	v, err := api.GetVolume(t.Context(), id)
	if err != nil {
		t.Fatalf("GetVolume(%d) = %v", id, err)
	}
	return v
}

// stands says how a volume stands, in a word for a table.
func stands(v *linodego.Volume) string {
	words := string(v.Status)
	if v.LinodeID != nil {
		words += " attached"
	}
	if v.IOReady {
		words += " ready"
	}
	return words
}

func TestEachChangeHasItsHalfState(t *testing.T) {
	const lasts = 10 * time.Second
	simulated(t, emulator.Options{Durations: emulator.Each(clock.Fixed(lasts))}, func(t *testing.T, c *emulator.Cloud, api *linodego.Client, linode int) {
		ctx := t.Context()
		v := mustCreate(t, api, "pvc-1", func(o *linodego.VolumeCreateOptions) { o.Tags = []string{"tag"} })
		if v.LinodeID != nil || v.Size != 10 || v.FilesystemPath != "/dev/disk/by-id/scsi-0Linode_Volume_pvc-1" || v.Created == nil {
			t.Errorf("CreateVolume() = %+v", v)
		}
		expect := func(when, want string, got *linodego.Volume) {
			t.Helper()
			if stands(got) != want {
				t.Errorf("%s: %q, want %q", when, stands(got), want)
			}
		}
		expect("created", "creating", v)
		time.Sleep(lasts / 2)
		expect("attached while it is being created", "creating attached", mustAttach(t, api, v.ID, linode))
		time.Sleep(lasts/2 + time.Millisecond)
		expect("made", "active attached", mustSee(t, api, v.ID))
		time.Sleep(lasts / 2)
		expect("its time to be attached began when it was made", "active attached", mustSee(t, api, v.ID))
		time.Sleep(lasts / 2)
		expect("the device is there", "active attached ready", mustSee(t, api, v.ID))

		must(t, api.ResizeVolume(ctx, v.ID, 20))
		now := mustSee(t, api, v.ID)
		expect("resizing", "resizing attached ready", now)
		time.Sleep(lasts + time.Millisecond)
		if own, _ := c.Volume(v.ID); now.Size != 20 || own.DeviceGiB != 10 {
			t.Errorf("size %d and %d on the machine, want 20 at once and 10 until the next attach", now.Size, own.DeviceGiB)
		}
		must(t, api.DetachVolume(ctx, v.ID))
		expect("detaching", "active attached", mustSee(t, api, v.ID))
		time.Sleep(lasts + time.Millisecond)
		expect("detached", "active", mustSee(t, api, v.ID))
		mustAttach(t, api, v.ID, linode)
		time.Sleep(lasts + time.Millisecond)
		if own, _ := c.Volume(v.ID); own.DeviceGiB != 20 {
			t.Errorf("the machine sees %d GiB after it was attached again, want 20", own.DeviceGiB)
		}

		copied, err := api.CloneVolume(ctx, v.ID, "pvc-2")
		must(t, err)
		expect("cloned", "creating", copied)
		if copied.Size != 20 || len(copied.Tags) != 0 {
			t.Errorf("CloneVolume() = %+v, want the size of its source and no tags", copied)
		}
		time.Sleep(lasts + time.Millisecond)
		expect("the clone is made", "active", mustSee(t, api, copied.ID))
		must(t, api.DeleteVolume(ctx, copied.ID))
		if _, err := api.GetVolume(ctx, copied.ID); !linodego.IsNotFound(err) {
			t.Errorf("GetVolume() of a deleted one = %v, want not found", err)
		}
		var kinds []string
		for _, op := range c.Operations() {
			kinds = append(kinds, strings.TrimPrefix(op.Kind, "volume_"))
			if op.Status != "finished" || op.Finished.Before(op.Accepted) {
				t.Errorf("operation %+v, want it finished", op)
			}
		}
		if got := strings.Join(kinds, " "); got != "create attach resize detach attach clone delete" {
			t.Errorf("operations = %s", got)
		}
	})
}

func TestADetachEndsTheAttachThatIsRunning(t *testing.T) {
	lasts := emulator.Durations{Attach: clock.Fixed(20 * time.Second), Detach: clock.Fixed(10 * time.Second)}
	simulated(t, emulator.Options{Durations: lasts}, func(t *testing.T, c *emulator.Cloud, api *linodego.Client, linode int) {
		v := mustCreate(t, api, "pvc-1")
		mustAttach(t, api, v.ID, linode)
		must(t, errors.Join(api.DetachVolume(t.Context(), v.ID), api.DetachVolume(t.Context(), v.ID)))
		if running := c.Running(); len(running) != 1 || running[0].Kind != "volume_detach" {
			t.Errorf("Running() = %+v, want one detach", running)
		}
		time.Sleep(30 * time.Second)
		if got := stands(mustSee(t, api, v.ID)); got != "active" {
			t.Errorf("volume is %q, want it free", got)
		}
	})
}

// The real API answers 200: package recorded, TestVolume_WaitForLinodeID_volume.
func TestAnAttachedVolumeIsDeletedUnderWhatUsesIt(t *testing.T) {
	c, api, linode := start(t, emulator.Options{})
	v, used := mustCreate(t, api, "pvc-1"), mustCreate(t, api, "pvc-2")
	mustAttach(t, api, v.ID, linode)
	mustAttach(t, api, used.ID, linode)
	c.Hold(used.ID)
	must(t, errors.Join(api.DeleteVolume(t.Context(), v.ID), api.DeleteVolume(t.Context(), used.ID)))
	if left := c.Volumes(); len(left) != 0 {
		t.Errorf("Volumes() = %+v, want none", left)
	}
	if bad := c.Violations(); len(bad) != 1 || bad[0].What != "deleted while in use" || bad[0].Volume != used.ID || bad[0].Linode != linode {
		t.Errorf("Violations() = %+v, want one, of volume %d", bad, used.ID)
	}
}

func TestListsAreFilteredAndPaged(t *testing.T) {
	c, api, linode := start(t, emulator.Options{})
	for _, label := range []string{"b-1", "a-1", "c-1"} {
		mustCreate(t, api, label)
	}
	for filter, want := range map[string]string{
		"":                             "b-1 a-1 c-1",
		`{"label":"a-1"}`:              "a-1",
		`{"label":{"+contains":"-1"}}`: "b-1 a-1 c-1",
		`{"+or":[{"label":"a-1"},{"label":"b-1"}]}`:               "b-1 a-1",
		`{"label":"a-1","+or":[{"label":"c-1"},{"label":"b-1"}]}`: "",
	} {
		all, err := api.ListVolumes(t.Context(), &linodego.ListOptions{Filter: filter})
		var labels []string
		for _, v := range all {
			labels = append(labels, v.Label)
		}
		if got := strings.Join(labels, " "); err != nil || got != want {
			t.Errorf("ListVolumes(%s) = %q, %v, want %q", filter, got, err, want)
		}
	}
	for range 60 {
		if _, err := c.AddVolume(emulator.Volume{Label: "more"}); err != nil {
			t.Fatal(err)
		}
	}
	options := linodego.NewListOptions(3, "")
	options.PageSize = 25
	last, err := api.ListVolumes(t.Context(), options)
	if err != nil || len(last) != 13 || options.Pages != 3 || options.Results != 63 {
		t.Errorf("the third page has %d of %d volumes on %d pages, %v, want 13 of 63 on 3", len(last), options.Results, options.Pages, err)
	}
	if all, err := api.ListVolumes(t.Context(), &linodego.ListOptions{PageSize: 25}); err != nil || len(all) != 63 {
		t.Errorf("ListVolumes() = %d volumes, %v, want all 63", len(all), err)
	}
	mustAttach(t, api, c.Volumes()[0].ID, linode)
	if on, err := api.ListInstanceVolumes(t.Context(), linode, nil); err != nil || len(on) != 1 || on[0].LinodeLabel != "linode-20001" {
		t.Errorf("ListInstanceVolumes() = %+v, %v, want the one volume", on, err)
	}
}

// reason returns what the SDK understood of a refusal.
func reason(t *testing.T, err error) (int, string) {
	t.Helper()
	var refused *linodego.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error = %v, want the API's refusal", err)
	}
	return refused.Code, refused.Message
}
