package linode_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// answering replaces the answers to requests with a method; "": to all.
func answering(method string, status int, kind, body string) func(*linode.Config) {
	return func(cfg *linode.Config) {
		cfg.Transport = cloudtest.Answering(cfg.Transport, method, status, kind, body)
	}
}

// A list of null is no empty list, and neither is another page than the one that was asked for.
func TestAListOfNullIsUnavailable(t *testing.T) {
	for _, body := range []string{`{"data":null,"page":1,"pages":1}`, `{"data":[],"page":2,"pages":2}`} {
		c := open(t, start(t, emulator.Options{}), answering("GET", 200, "application/json", body))
		_, err := c.ListVolumes(t.Context(), cloud.Page{})
		want(t, err, fault.Unavailable)
		_, err = c.FindVolume(t.Context(), "a")
		want(t, err, fault.Unavailable)
	}
}

// C1: a volume that is being deleted has its label until it is gone, and is not found.
func TestAVolumeThatIsBeingDeletedIsNotFound(t *testing.T) {
	account := start(t, emulator.Options{})
	label := volume(t, open(t, account), "ab").Name
	for status, kind := range map[string]fault.Kind{"active": fault.Conflict, "deleting": fault.NotFound} {
		body := fmt.Sprintf(`{"data":[{"id":45,"label":%q,"status":%q}],"page":1,"pages":1,"results":1}`, label, status)
		_, err := open(t, account, answering("GET", 200, "application/json", body)).FindVolume(t.Context(), "ab")
		want(t, err, kind)
	}
}

// A lock, or a key that is being rotated, is named, and the request is not sent time and again.
func TestWhatForbidsAChangeIsNamed(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	account.SetLocks(number(t, vol.ID), "cannot_delete")
	account.ResetStats()
	want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Precondition, "cannot_delete")
	account.SetLocks(number(t, vol.ID))
	account.SetStatus(number(t, vol.ID), "key_rotating")
	want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Precondition, "key_rotating")
	_, err := c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
	want(t, err, fault.Precondition, "key_rotating")
	_, err = c.CreateVolume(t.Context(), copyOf("copy", vol.ID))
	want(t, err, fault.Unavailable, "key_rotating")
	if n := account.Stats().Writes; n != 4 {
		t.Errorf("%d writes for 4 calls", n)
	}
	account.SetStatus(number(t, vol.ID), "active")
	must(t, c.DeleteVolume(t.Context(), vol.ID))
}

// A quota of the account is named in the cloud's words, and nothing is left of what it refused but a copy that only
// has to grow.
func TestAQuotaIsNamed(t *testing.T) {
	const words = "Account limit reached"
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "a")
	account.SetRules(func(r *emulator.Rules) { r.VolumeLimit = 1 })
	want(t, second(c.CreateVolume(t.Context(), request("b"))), fault.Exhausted, words)
	want(t, second(c.CreateVolume(t.Context(), copyOf("copy", vol.ID))), fault.Exhausted, words)
	account.SetRules(func(r *emulator.Rules) { r.VolumeLimit, r.CapacityLimit = 0, 2*int(vol.Size/cloud.GiB) })
	want(t, second(c.ExpandVolume(t.Context(), vol.ID, 3*vol.Size)), fault.Exhausted, words)
	if n := len(account.Volumes()); n != 1 {
		t.Errorf("there are %d volumes, want 1", n)
	}
	larger := copyOf("copy", vol.ID)
	larger.Size = vol.Size + cloud.GiB
	want(t, second(c.CreateVolume(t.Context(), larger)), fault.Uncertain, words, "goes on from there")
}

func FuzzAnswers(f *testing.F) {
	good := `{"data":[{"id":7,"label":"new","status":"active","size":20,"region":"us-ord","linode_id":null}],"page":1,"pages":1,"results":1,"id":7,"label":"new","status":"active","size":20,"region":"us-ord","linode_id":101,"filesystem_path":"/dev/disk/by-id/scsi-0Linode_Volume_new"}`
	objects := cloudtest.Objects{Volume: "7", Snapshot: "8", Node: node1, Zone: emulator.DefaultRegion}
	cloudtest.FuzzHTTPAnswers(f, objects, good, func(t *testing.T, through http.RoundTripper) cloud.Cloud {
		return open(t, start(t, emulator.Options{}), func(cfg *linode.Config) {
			cfg.Endpoint, cfg.Token = "https://"+cloudtest.FuzzedHost, func() (string, error) { return cloudtest.FuzzedToken, nil }
			cfg.Transport = through
		})
	})
}
