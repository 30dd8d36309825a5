//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/linode/linodego"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// linodeName is what the vendor's driver of Linode calls itself.
const linodeName = "linodebs.csi.linode.com"

// linodeVendor is that driver.
type linodeVendor struct {
	*accounts.Linode
	api *linodego.Client
}

func openLinodeVendor(t *testing.T, dir string) vendor {
	t.Helper()
	account := emulator.Start(t, emulator.Options{DataDir: dir})
	api := linodego.NewClient(&http.Client{Transport: bearer(account.Token)})
	if _, err := api.UseURL(account.URL + "/v4"); err != nil {
		t.Fatal(err)
	}
	return linodeVendor{&accounts.Linode{Cloud: account}, &api}
}

func (linodeVendor) driver() string { return linodeName }
func (linodeVendor) places() (here, there map[string]string) {
	const key = "topology.linode.com/region"
	return map[string]string{key: "us-ord"}, map[string]string{key: "us-east"}
}
func (linodeVendor) link(v *programs.Volume) string { return "scsi-0Linode_Volume_" + v.Name }

func (linodeVendor) attributes() map[string]string {
	return map[string]string{"topology.linode.com/region": "us-ord"}
}

func (v linodeVendor) told(vol *programs.Volume) map[string]string {
	return map[string]string{"devicePath": "/dev/disk/by-id/" + v.link(vol)}
}

func (linodeVendor) class() map[string]string {
	return map[string]string{linodeName + "/volumeTags": "foo, env:prod", linodeName + "/encrypted": "true"}
}

func (linodeVendor) typo() (wrong, right string) {
	return linodeName + "/volumeTag", linodeName + "/volumeTags"
}

func (v linodeVendor) add(volume string) (string, error) {
	id, err := v.Cloud.AddVolume(emulator.Volume{Label: volume, SizeGiB: 10})
	return fmt.Sprintf("%d-%s", id, volume), err
}

// number is the id in a handle, as the vendor's driver reads it.
func number(handle string) (int, error) {
	id, _, found := strings.Cut(handle, "-")
	if !found {
		return 0, fmt.Errorf("the handle %s has no label, which the vendor's driver needs", handle)
	}
	return strconv.Atoi(id)
}

func (v linodeVendor) attach(ctx context.Context, handle, machine string) error {
	id, err := number(handle)
	linode, machineErr := strconv.Atoi(machine)
	if err := errors.Join(err, machineErr); err != nil {
		return err
	}
	persists := false
	if _, err := v.api.AttachVolume(ctx, id, &linodego.VolumeAttachOptions{LinodeID: linode, PersistAcrossBoots: &persists}); err != nil {
		return err
	}
	return v.until(ctx, id, func(v linodego.Volume) bool { return v.LinodeID != nil && *v.LinodeID == linode && v.IOReady })
}

func (v linodeVendor) detach(ctx context.Context, handle, _ string) error {
	id, err := number(handle)
	if err != nil {
		return err
	}
	if err := v.api.DetachVolume(ctx, id); err != nil {
		return err
	}
	return v.until(ctx, id, func(v linodego.Volume) bool { return v.LinodeID == nil })
}

// until looks at a volume until a change that was sent for it is through. Here it takes no time.
func (v linodeVendor) until(ctx context.Context, id int, through func(linodego.Volume) bool) error {
	for range 1000 {
		vol, err := v.api.GetVolume(ctx, id)
		if err != nil {
			return err
		}
		if through(*vol) {
			return nil
		}
	}
	return errors.New("the account does not come to an end with the change")
}

func (v linodeVendor) remove(ctx context.Context, handle string) error {
	id, err := number(handle)
	if err != nil {
		return err
	}
	return v.api.DeleteVolume(ctx, id)
}

func (v linodeVendor) tags(handle string) ([]string, bool) {
	id, _ := number(handle) // there is no volume 0
	vol, exists := v.Volume(id)
	return vol.Tags, exists
}

func (v linodeVendor) more(c takenOver) {
	c.run("a volume that was renamed", v.renamed)
	c.run("a clone of an old volume", v.clone)
	c.run("tags and encryption of an old class", v.parameters)
	c.run("encrypted with LUKS", v.luks)
	c.run("data in a partition", v.partition)
}

// renamed: the handle has the label that the volume had when it was made.
func (v linodeVendor) renamed(c takenOver) {
	vol := c.persistentVolume("before", "ext4")
	id, err := number(vol.ID)
	noError(c, err)
	noError(c, v.Rename(id, "after"))
	must(c.T, vol.Attach, vol.Stage, vol.Publish)
	if got, want := vol.Published["devicePath"], "/dev/disk/by-id/scsi-0Linode_Volume_after"; got != want {
		c.Errorf("the publish context says %s, want %s", got, want)
	}
	c.useAndDelete(vol)
}

// clone: the source is named by its old handle, the copy is larger, and the call is repeated.
func (v linodeVendor) clone(c takenOver) {
	source := c.persistentVolume("source", "ext4")
	claim := programs.Claim{Name: "copy", Filesystem: "ext4", Size: 2 * c.Size(), Source: source.Source()}
	copied := create(c.T, c.pair, claim)
	if again := create(c.T, c.pair, claim); again.ID != copied.ID {
		c.Errorf("the same call makes %s, and %s again", copied.ID, again.ID)
	}
	if id, err := number(copied.ID); err != nil || !strings.HasSuffix(copied.ID, "-copy") {
		c.Errorf("the clone's handle is %s (%d, %v), want an id and the label", copied.ID, id, err)
	}
	must(c.T, copied.Attach, copied.Stage, copied.Publish)
	wantBytes(c.T, data(copied), 7, mib)
	if size := filesystemSize(c.T, copied.Target); seesGrowth(c.T, "ext4") && size < 2*c.Size()*85/100 {
		c.Errorf("the clone's filesystem has %d bytes, want nearly %d", size, 2*c.Size())
	}
	must(c.T, copied.Unpublish, copied.Unstage, copied.Detach, copied.Delete, source.Delete)
}

func (v linodeVendor) parameters(c takenOver) {
	vol := create(c.T, c.pair, programs.Claim{Name: "tagged", Filesystem: "ext4", Size: c.Size(), Parameters: c.class()})
	id, err := number(vol.ID)
	noError(c, err)
	made, _ := v.Volume(id)
	if !made.Encrypted || !slices.Contains(made.Tags, "foo") || !slices.Contains(made.Tags, "env:prod") {
		c.Errorf("the volume is %+v, want it encrypted and with the tags foo and env:prod", made)
	}
	must(c.T, vol.Delete)
	plain := create(c.T, c.pair, programs.Claim{Name: "plain", Filesystem: "ext4", Size: c.Size(), Parameters: map[string]string{linodeName + "/luks-encrypted": "false"}})
	if id, err = number(plain.ID); err != nil {
		c.Fatal(err)
	}
	if made, _ = v.Volume(id); !made.Encrypted {
		c.Errorf("the volume is %+v, want it encrypted, which is the cloud's default", made)
	}
	must(c.T, plain.Delete)
}

// luks: without its key a volume whose data the class wants encrypted is left alone, a blank one too; and what is made
// here says to both programs that it is encrypted. test/run/e2e/vm/luks opens such volumes.
func (v linodeVendor) luks(c takenOver) {
	const key = linodeName + "/luks-encrypted"
	vol := c.blankVolume("secret")
	vol.Context[key], vol.Context[linodeName+"/luks-cipher"], vol.Context[linodeName+"/luks-key-size"] = "true", "aes-xts-plain64", "512"
	vol.Context[linodeName+"/volume-name"] = "secret"
	c.refused("a volume of LUKS without its secret", vol, codes.InvalidArgument, "luksKey") // the vendor's node program may still run here
	must(c.T, vol.Detach, vol.Delete)
	class := map[string]string{key: "true", linodeName + "/luks-cipher": "aes-xts-plain64", linodeName + "/luks-key-size": "512"}
	made := create(c.T, c.pair, programs.Claim{Name: "secret", Filesystem: "ext4", Size: c.Size(), Parameters: class})
	for name, want := range class {
		if made.Context[name] != want {
			c.Errorf("the volume's attributes are %v, want %s: %s", made.Context, name, want)
		}
	}
	must(c.T, made.Delete)
	class[linodeName+"/luks-cipher"] = "serpent-xts-plain64"
	_, err := c.pair.Create(c.Context(), programs.Claim{Name: "serpent", Filesystem: "ext4", Size: c.Size(), Parameters: class})
	wantCode(c.T, "creating a volume with another cipher", err, codes.InvalidArgument)
}

// partition: the attribute of volumes that were made by hand.
func (v linodeVendor) partition(c takenOver) {
	vol := c.blankVolume("parted")
	vol.Context["partition"] = "1"
	c.refused("a partition", vol, codes.FailedPrecondition, "partition")
	must(c.T, vol.Detach, vol.Delete)
}
