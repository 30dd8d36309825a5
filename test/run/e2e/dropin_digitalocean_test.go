//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// What the vendor's driver of DigitalOcean calls itself, what its controller tells of an attach, and the
// attribute that forbids to format.
const (
	doName   = "dobs.csi.digitalocean.com"
	doAttach = doName + "/volume-name"
	doNever  = doName + "/noformat"
)

// digitalOceanVendor is that driver.
type digitalOceanVendor struct {
	accounts.DigitalOcean
	api *godo.Client
}

func openDigitalOceanVendor(t *testing.T, dir string) vendor {
	t.Helper()
	account := emulator.Start(t, emulator.Options{DataDir: dir})
	api, err := godo.New(&http.Client{Transport: bearer(account.Token)}, godo.SetBaseURL(account.URL+"/"))
	noError(t, err)
	return digitalOceanVendor{accounts.DigitalOcean{Cloud: account}, api}
}

func (digitalOceanVendor) driver() string                 { return doName }
func (digitalOceanVendor) link(v *programs.Volume) string { return "scsi-0DO_Volume_" + v.Name }
func (digitalOceanVendor) attributes() map[string]string  { return map[string]string{} }
func (digitalOceanVendor) class() map[string]string       { return map[string]string{"fstype": "xfs"} }
func (digitalOceanVendor) typo() (wrong, right string)    { return "fstyp", "fstype" }

func (digitalOceanVendor) places() (here, there map[string]string) {
	return map[string]string{"region": "fra1"}, map[string]string{"region": "nyc3"}
}

func (digitalOceanVendor) told(v *programs.Volume) map[string]string {
	return map[string]string{doAttach: v.Name}
}

func (d digitalOceanVendor) add(volume string) (string, error) {
	return d.Cloud.AddVolume(emulator.Volume{Name: volume, SizeGiB: 1, Description: "Created by DigitalOcean CSI driver"})
}

func (d digitalOceanVendor) attach(ctx context.Context, id, machine string) error {
	droplet, err := strconv.Atoi(machine)
	if err == nil {
		_, _, err = d.api.StorageActions.Attach(ctx, id, droplet)
	}
	if v := d.after(ctx, id); err != nil || v.DropletID != droplet {
		return fmt.Errorf("attach: %+v, %w", v, err)
	}
	return nil
}

func (d digitalOceanVendor) detach(ctx context.Context, id, machine string) error {
	droplet, err := strconv.Atoi(machine)
	if err == nil {
		_, _, err = d.api.StorageActions.DetachByDropletID(ctx, id, droplet)
	}
	if v := d.after(ctx, id); err != nil || v.DropletID != 0 {
		return fmt.Errorf("detach: %+v, %w", v, err)
	}
	return nil
}

// after returns a volume after the action that was sent for it, which ends before the next request.
func (d digitalOceanVendor) after(ctx context.Context, id string) emulator.Volume {
	_, _, _ = d.api.Storage.GetVolume(ctx, id)
	v, _ := d.Volume(id)
	return v
}

func (d digitalOceanVendor) remove(ctx context.Context, id string) error {
	_, err := d.api.Storage.DeleteVolume(ctx, id)
	return err
}

func (d digitalOceanVendor) tags(id string) ([]string, bool) {
	v, exists := d.Volume(id)
	return v.Tags, exists
}

func (d digitalOceanVendor) more(c takenOver) {
	c.run("never formatted", d.neverFormatted)
	c.run("restored from an old snapshot", d.snapshot)
}

// neverFormatted: the vendor's attribute counts whatever its value is, and does not keep data from being
// used.
func (d digitalOceanVendor) neverFormatted(c takenOver) {
	for _, value := range []string{"", "false", "true"} {
		v := c.blankVolume(strings.TrimSuffix("never-"+value, "-"))
		v.Context[doNever] = value
		c.refused("a blank disk that must not be formatted", v, codes.FailedPrecondition, doNever)
		command(c.T, "mkfs.ext4", "-q", filepath.Join(c.devices, c.link(v)))
		must(c.T, v.Stage, v.Publish, v.Unpublish, v.Unstage, v.Detach, v.Delete)
	}
}

// snapshot: one that the vendor's driver has taken is restored and deleted.
func (d digitalOceanVendor) snapshot(c takenOver) {
	v := c.persistentVolume("source", "ext4")
	snap, _, err := d.api.Storage.CreateSnapshot(c.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "snapshot-1"})
	noError(c, err)
	must(c.T, v.Delete)
	restored := create(c.T, c.pair, programs.Claim{
		Name: "restored", Filesystem: "ext4", Size: gib, Source: (&programs.Snapshot{ID: snap.ID}).Source(),
	})
	must(c.T, restored.Attach, restored.Stage, restored.Publish)
	wantBytes(c.T, data(restored), 7, mib)
	must(c.T, restored.Unpublish, restored.Unstage, restored.Detach, restored.Delete)
	_, err = csi.NewControllerClient(c.pair.Controller.Conn).DeleteSnapshot(c.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snap.ID})
	wantCode(c.T, "deleting the vendor's snapshot", err, codes.OK)
}
