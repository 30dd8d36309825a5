package linode_test

import (
	"strings"
	"testing"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// account is what a row of the table of refusals has: a volume and a Linode.
type account struct {
	t             *testing.T
	cloud         *emulator.Cloud
	api           *linodego.Client
	volume, first int
}

func (a account) create(change func(*linodego.VolumeCreateOptions)) error {
	ask := linodego.VolumeCreateOptions{Label: "other", Region: emulator.DefaultRegion, Size: 10}
	change(&ask)
	_, err := a.api.CreateVolume(a.t.Context(), ask)
	return err
}

func (a account) label(label string) error {
	return a.create(func(o *linodego.VolumeCreateOptions) { o.Label = label })
}

func (a account) size(size int) error {
	return a.create(func(o *linodego.VolumeCreateOptions) { o.Size = size })
}

func (a account) attach(volume, linode int) error {
	_, err := attach(a.t.Context(), a.api, volume, linode)
	return err
}

func (a account) detach() error          { return a.api.DetachVolume(a.t.Context(), a.volume) }
func (a account) delete() error          { return a.api.DeleteVolume(a.t.Context(), a.volume) }
func (a account) resize(size int) error  { return a.api.ResizeVolume(a.t.Context(), a.volume, size) }
func (a account) get(volume int) error   { _, err := a.api.GetVolume(a.t.Context(), volume); return err }
func (a account) list(text string) error { return a.listed(&linodego.ListOptions{Filter: text}) }

func (a account) listed(options *linodego.ListOptions) error {
	_, err := a.api.ListVolumes(a.t.Context(), options)
	return err
}

func (a account) clone(label string) error {
	_, err := a.api.CloneVolume(a.t.Context(), a.volume, label)
	return err
}

type refusalRow struct {
	name   string
	rules  emulator.Rules
	act    func(a account) error
	status int
	text   string
}

// TestRefusals has a row for each of the real API's errors that the tests of the backend do not meet, or pass without.
func TestRefusals(t *testing.T) {
	for _, row := range append(append(volumeRefusals(), createRefusals()...), attachRefusals()...) {
		t.Run(row.name, func(t *testing.T) {
			c, api, linode := start(t, emulator.Options{Rules: row.rules})
			a := account{t: t, cloud: c, api: api, first: linode}
			a.volume = mustCreate(t, a.api, "pvc-1", func(o *linodego.VolumeCreateOptions) { o.Size = 20 }).ID
			status, text := reason(t, row.act(a))
			if status != row.status || !strings.Contains(text, row.text) {
				t.Errorf("refused with %d %q, want %d %q", status, text, row.status, row.text)
			}
		})
	}
}

func volumeRefusals() []refusalRow {
	none := emulator.Rules{}
	return []refusalRow{
		{"deleting twice is not found", none, func(a account) error {
			expect.NoError(a.t, a.delete())
			return a.delete()
		}, 404, "Not found"},
		{"a volume does not shrink", none, func(a account) error { return a.resize(10) }, 400, "[size]"},
		{"a volume does not grow beyond the limit", none, func(a account) error { return a.resize(16385) }, 400, "[size] Must be 10-"},
		{"the same size can be refused", emulator.Rules{ResizeToSameRefused: true}, func(a account) error { return a.resize(20) }, 400, "[size]"},
		{"a clone's label is taken", none, func(a account) error { return a.clone("pvc-1") }, 400, "[label] Label must be unique"},
		{"lists cannot be filtered by size", none, func(a account) error { return a.list(`{"size":10}`) }, 400, "Cannot filter on size"},
		{"lists cannot be ordered by size", none, func(a account) error { return a.list(`{"+order_by":"size"}`) }, 400, "Cannot filter on size"},
		{"a page has at least 25", none, func(a account) error {
			return a.listed(&linodego.ListOptions{PageSize: 24})
		}, 400, "Must be 25-500"},
		{"a page beyond the last is not found", none, func(a account) error {
			return a.listed(linodego.NewListOptions(2, ""))
		}, 404, "Not found"},
		{"a Linode that is not there is not found", none, func(a account) error {
			_, err := a.api.GetInstance(a.t.Context(), 7)
			return err
		}, 404, "Not found"},
	}
}

func createRefusals() []refusalRow {
	none := emulator.Rules{}
	in := func(region, encryption string) func(account) error {
		return func(a account) error {
			return a.create(func(o *linodego.VolumeCreateOptions) { o.Region, o.Encryption = region, encryption })
		}
	}
	return []refusalRow{
		{"a wrong token", none, func(a account) error {
			a.api.SetToken("wrong")
			return a.get(a.volume)
		}, 401, "Invalid Token"},
		{"no label", none, func(a account) error { return a.label("") }, 400, "[label] label is required"},
		{"a label with a bad first letter", none, func(a account) error { return a.label("1-a") }, 400, "[label] Must begin with a letter"},
		{"a label with two dashes in a row", none, func(a account) error { return a.label("a--b") }, 400, "[label]"},
		{"a label with two underscores in a row", none, func(a account) error { return a.label("a__b") }, 400, "[label]"},
		{"a label with a dot", none, func(a account) error { return a.label("a.b") }, 400, "[label]"},
		{"a long label", none, func(a account) error { return a.label(strings.Repeat("a", 33)) }, 400, "[label]"},
		{"the size is too small", none, func(a account) error { return a.size(9) }, 400, "[size] Must be 10-"},
		{"the size is too large", none, func(a account) error { return a.size(16385) }, 400, "[size] Must be 10-"},
		{"no region", none, in("", ""), 400, "Must provide a region or a Linode ID"},
		{"an unknown region", none, in("moon", ""), 400, "[region] region is not valid"},
		{"a short tag", none, func(a account) error {
			return a.create(func(o *linodego.VolumeCreateOptions) { o.Tags = []string{"ab"} })
		}, 400, "[tags]"},
		{"the account has all its volumes", emulator.Rules{VolumeLimit: 1}, func(a account) error { return a.size(10) }, 400, "limit"},
	}
}

func attachRefusals() []refusalRow {
	none := emulator.Rules{}
	return []refusalRow{
		{"to a Linode that is not there", none, func(a account) error { return a.attach(a.volume, 7) }, 404, "Not found"},
		{"to a booting Linode", none, func(a account) error {
			return a.attach(a.volume, a.cloud.AddLinode(emulator.Linode{Status: "booting"}))
		}, 400, "Linode busy."},
		{"two at once can be refused", emulator.Rules{OneChangePerLinode: true}, func(a account) error {
			other := mustCreate(a.t, a.api, "pvc-2")
			a.cloud.SetDurations(emulator.Each(clock.Fixed(time.Hour)))
			expect.NoError(a.t, a.attach(a.volume, a.first))
			return a.attach(other.ID, a.first)
		}, 400, "Linode busy."},
		{"of a volume that is not active can be refused", emulator.Rules{AttachWhileCreatingRefused: true}, func(a account) error {
			a.cloud.SetDurations(emulator.Each(clock.Fixed(time.Hour)))
			return a.attach(mustCreate(a.t, a.api, "pvc-2").ID, a.first)
		}, 400, "must be active"},
		{"a detach of a free volume can be refused", emulator.Rules{DetachOfFreeRefused: true}, account.detach, 400, "is not attached"},
	}
}

func TestWhatIsNotRefused(t *testing.T) {
	_, api, _ := start(t, emulator.Options{})
	v := mustCreate(t, api, "pvc-1")
	if err := api.DetachVolume(t.Context(), v.ID); err != nil {
		t.Errorf("DetachVolume() of a free volume = %v", err)
	}
	if err := api.ResizeVolume(t.Context(), v.ID, 10); err != nil {
		t.Errorf("ResizeVolume() to the same size = %v", err)
	}
}
