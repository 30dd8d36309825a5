package linode_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
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
)

// C7: the first acceptable region that has volumes is taken. One that refuses a volume is full, or closed to the account.
func TestARegionThatCannotServeIsPassedOver(t *testing.T) {
	tests := map[string]struct {
		zones     []string
		encrypted string
		full      string // what the first region that has volumes answers
		want      string // empty: none can
		says      []string
	}{
		"without volumes":          {zones: []string{"us-den-edge-1", "us-nowhere-9", "us-east", "us-ord"}, want: "us-east"},
		"no region at all":         {zones: []string{"../us-ord", "us-east"}, want: "us-east"},
		"without encryption":       {zones: []string{"us-west", "us-east"}, encrypted: "true", want: "us-east"},
		"none with volumes":        {zones: []string{"us-den-edge-1"}, says: []string{"us-den-edge-1"}},
		"none with the encryption": {zones: []string{"us-west"}, encrypted: "true", says: []string{"Block Storage Encryption"}},
		"full":                     {zones: []string{"us-ord", "us-east"}, full: "capacity exceeded", want: "us-east"},
		"all full":                 {zones: []string{"us-ord"}, full: "capacity exceeded", says: []string{"us-ord", "capacity exceeded"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			if tc.full != "" {
				post(account, volumesRoute, faults.Effect{Status: 400, ID: "region", Message: tc.full})
			}
			req := request("a")
			req.Zones = tc.zones
			if tc.encrypted != "" {
				req.Parameters = []cloud.Parameter{{Name: linode.ParamEncrypted, Value: tc.encrypted}}
			}
			vol, err := open(t, account).CreateVolume(t.Context(), req)
			if tc.want == "" {
				want(t, err, fault.Exhausted, tc.says...)
				if n := len(account.Volumes()); n != 0 {
					t.Errorf("%d volumes are left", n)
				}
			} else if err != nil || vol.Zone != tc.want {
				t.Errorf("CreateVolume = %+v, %v, want it in %s", vol, err, tc.want)
			}
		})
	}
}

// A class that says nothing follows the cloud's default, and the repeat of its request gets the same volume.
func TestEncryptionFollowsTheCloudUnlessTheClassSaysOtherwise(t *testing.T) {
	asked := func(value string) []cloud.Parameter {
		if value == "" {
			return nil
		}
		return []cloud.Parameter{{Name: linode.ParamEncrypted, Value: value}}
	}
	const on, off = `"encryption":"enabled"`, `"encryption":"disabled"`
	tests := map[string]struct {
		region, value string // "": the parameter is not given
		rules         emulator.Rules
		sends         string
		want          bool
		kind          fault.Kind
	}{
		"asked for":                             {region: "us-ord", value: "true", sends: on, want: true},
		"asked for where it is not the default": {region: "us-ord", value: "true", rules: emulator.Rules{PlainByDefault: true}, sends: on, want: true},
		"asked not to be":                       {region: "us-ord", value: "false", sends: off},
		"left to the cloud":                     {region: "us-ord", want: true},
		"left to a cloud of another default":    {region: "us-ord", rules: emulator.Rules{PlainByDefault: true}},
		"left to a region without":              {region: "us-west"},
		"asked not to be in a region without":   {region: "us-west", value: "false", sends: off},
		"asked for in other words":              {region: "us-ord", value: "yes", kind: fault.InvalidArgument},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{Rules: tc.rules})
			var sent string
			c := stack(open(t, account, recordBodies(http.MethodPost, &sent)))
			req := request("a")
			req.Zones, req.Parameters = []string{tc.region}, asked(tc.value)
			first, err := c.CreateVolume(t.Context(), req)
			if tc.kind != "" {
				want(t, err, tc.kind, "neither true nor false")
				return
			}
			must(t, err)
			again, err := c.CreateVolume(t.Context(), req)
			if err != nil || fmt.Sprint(first) != fmt.Sprint(again) {
				t.Errorf("CreateVolume = %+v, then %+v, %v", first, again, err)
			}
			if all := account.Volumes(); len(all) != 1 || all[0].Encrypted != tc.want {
				t.Errorf("the account holds %+v, want one that is encrypted: %v", all, tc.want)
			}
			if strings.Contains(sent, "encryption") != (tc.sends != "") || !strings.Contains(sent, tc.sends) {
				t.Errorf("the requests are %s, want %q and nothing else about encryption", sent, tc.sends)
			}
			req.Parameters = asked(strconv.FormatBool(!tc.want))
			_, err = c.CreateVolume(t.Context(), req)
			want(t, err, fault.Conflict, "its parameters differ")
		})
	}
}

// recordBodies adds the bodies of the requests with a method to sent.
func recordBodies(method string, sent *string) func(*linode.Config) {
	return func(cfg *linode.Config) {
		cfg.Transport = cloudtest.Before(cfg.Transport, func(r *http.Request) {
			if r.Method == method && r.Body != nil {
				body, _ := io.ReadAll(r.Body) // it is in memory
				*sent += string(body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
		})
	}
}

// A volume that came to an end with the cloud keeps its label. Only an operator can know that it was never used.
func TestAVolumeThatIsBrokenTellsTheOperatorWhatToDo(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "ab")
	account.SetStatus(number(t, vol.ID), "contact_support")
	_, err := c.CreateVolume(t.Context(), request("ab"))
	want(t, err, fault.Uncertain, string(vol.ID), "contact_support", "open a ticket", "when it is deleted")
	_, err = c.ExpandVolume(t.Context(), vol.ID, vol.Size)
	want(t, err, fault.Unavailable, string(vol.ID), "contact_support")
	account.Arm(emulator.Fault{Method: "DELETE", Times: 5, Effect: faults.Effect{Status: 400, Message: "the moon is full"}})
	want(t, open(t, account).DeleteVolume(t.Context(), vol.ID), fault.Unavailable, "contact_support", "open a ticket", "the moon is full")
	must(t, c.DeleteVolume(t.Context(), vol.ID))
	must(t, cloudtest.Repeat(func() error { _, err := c.CreateVolume(t.Context(), request("ab")); return err }))
}

// C13: nothing but the id is needed after a volume was made.
func TestARenamedVolumeIsFoundByItsID(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "pvc-1")
	n := number(t, vol.ID)
	must(t, account.Rename(n, "renamed-by-hand"))
	dev, err := c.Attach(t.Context(), vol.ID, node1)
	if err != nil || dev != (cloud.Device{Name: "scsi-0Linode_Volume_renamed-by-hand", Serial: "renamed-by-hand"}) {
		t.Errorf("Attach = %+v, %v", dev, err)
	}
	got, err := c.GetVolume(t.Context(), vol.ID)
	if err != nil || got.ID != vol.ID {
		t.Errorf("GetVolume = %+v, %v", got, err)
	}
	must(t, c.Detach(t.Context(), vol.ID, node1))
	at(t, account, vol.ID, 0)
	exp, err := c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
	if err != nil || exp.Size != 20*cloud.GiB {
		t.Errorf("ExpandVolume = %+v, %v", exp, err)
	}
	must(t, c.DeleteVolume(t.Context(), vol.ID))
	if left := account.Volumes(); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}

// A6, A7: a Linode that is full is Exhausted, so that the pod goes elsewhere; its local disks count.
func TestAFullLinodeIsExhausted(t *testing.T) {
	for name, tc := range map[string]struct {
		shape emulator.Linode
		fits  int
	}{
		"8 GiB with two local disks":  {emulator.Linode{MemoryMB: 8 << 10, Disks: 2}, 6},
		"16 GiB with two local disks": {emulator.Linode{MemoryMB: 16 << 10, Disks: 2}, 14},
		"1 GiB with 8 local disks":    {emulator.Linode{MemoryMB: 1 << 10, Disks: 8}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			node := cloud.NodeID(fmt.Sprint(account.AddLinode(tc.shape)))
			c := open(t, account)
			for n := range tc.fits {
				attach(t, c, volume(t, c, fmt.Sprintf("v%d", n)).ID, node)
			}
			one := volume(t, c, "one-more")
			_, err := c.Attach(t.Context(), one.ID, node)
			want(t, err, fault.Exhausted, "no free slot")
			at(t, account, one.ID, 0)
		})
	}
}

func TestAnAttachSaysWhyItCannotBe(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account, persisting(linode.PersistNever))
	vol := volume(t, c, "ab")
	elsewhere := account.AddLinode(emulator.Linode{Region: "us-east"})
	off := account.AddLinode(emulator.Linode{Status: "offline"})
	for node, words := range map[int]string{elsewhere: "in us-ord and the Linode in us-east", off: "powered off"} {
		_, err := c.Attach(t.Context(), vol.ID, cloud.NodeID(fmt.Sprint(node)))
		want(t, err, fault.Precondition, words)
	}
	for _, state := range []string{"cloning", "restoring", "stopped", "billing_suspension"} {
		account.ResetStats()
		_, err := c.Attach(t.Context(), vol.ID, cloud.NodeID(fmt.Sprint(account.AddLinode(emulator.Linode{Status: state}))))
		want(t, err, fault.Unavailable, state, "Cloud Manager")
		if writes := account.Stats().Writes; writes != 1 {
			t.Errorf("%d attaches to a Linode in the state %s were sent, want 1", writes, state)
		}
	}
	_, err := c.Attach(t.Context(), vol.ID, "999")
	want(t, err, fault.NotFound, "no such Linode")
	_, err = c.Attach(t.Context(), "999", node1)
	want(t, err, fault.NotFound, "no such volume")
}

// P1: the real limits of lists and creates delay, and nothing fails.
func TestTheLimitsOfListsAndCreatesDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Limits: emulator.RealLimits(), Durations: emulator.Each(clock.Fixed(time.Second))})
		c := open(t, account, func(cfg *linode.Config) { cfg.Limits, cfg.Classes, cfg.Tick = nil, nil, 0 })
		began := time.Now()
		cloudtest.AtOnce(t, 150, func(n int) error { return second(c.CreateVolume(t.Context(), request(fmt.Sprint("v", n)))) })
		if took := time.Since(began); took < time.Minute || took > 75*time.Second {
			t.Errorf("150 creates took %s, want a little more than a minute", took)
		}
		for range 250 {
			_, err := c.ListVolumes(t.Context(), cloud.Page{})
			must(t, err)
		}
		if s := account.Stats(); s.Refused > 0 {
			t.Errorf("%d requests were refused: %v", s.Refused, s.Statuses)
		}
	})
}
