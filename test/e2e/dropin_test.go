//go:build e2e

package e2e

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// What the vendor's driver of DigitalOcean calls itself, and what its controller tells of an attach.
const (
	vendorName    = "dobs.csi.digitalocean.com"
	vendorAttach  = vendorName + "/volume-name"
	vendorNever   = vendorName + "/noformat"
	vendorAddress = "storage.kubernetes.io/csiProvisionerIdentity"
)

// takenOver is a machine in a cluster that has come from the vendor's driver to ours.
type takenOver struct {
	*testing.T
	pair    *programs.Pair
	account *emulator.Cloud
	api     *godo.Client
	droplet int
	devices string // the folder of the links that udev would make
}

// TestDropIn: under the vendor's driver name both programs serve what the vendor's driver made, at
// whatever point of a volume's life the cluster changes over.
func TestDropIn(t *testing.T) {
	c := takeOver(t)
	info, err := csi.NewNodeClient(c.pair.Node.Conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if got := info.GetAccessibleTopology().GetSegments(); err != nil || !maps.Equal(got, map[string]string{"region": "fra1"}) {
		t.Errorf("the node states the topology %v, %v, want the vendor's key and no other", got, err)
	}
	for _, kind := range []string{"ext4", "xfs", ""} {
		t.Run(kindName(kind)+" that is free", func(t *testing.T) { c.at(t).free(kind) })
		t.Run(kindName(kind)+" attached by the vendor", func(t *testing.T) { c.at(t).attached(kind) })
		t.Run(kindName(kind)+" in use by a pod", func(t *testing.T) { c.at(t).inUse(kind) })
	}
	t.Run("never formatted", func(t *testing.T) { c.at(t).neverFormatted() })
	t.Run("half made by the vendor", func(t *testing.T) { c.at(t).half() })
	t.Run("restored from an old snapshot", func(t *testing.T) { c.at(t).snapshot() })
	t.Run("a new volume of an old class", func(t *testing.T) { c.at(t).newVolume() })
}

func takeOver(t *testing.T) takenOver {
	t.Helper()
	dir := folder(t)
	account := emulator.Start(t, emulator.Options{DataDir: filepath.Join(dir, "account")})
	cloud := programs.DigitalOcean{Account: account}
	c := takenOver{T: t, account: account, devices: filepath.Join(dir, "by-id")}
	c.pair = start(t, programs.Options{Dir: dir, Cloud: cloud, Flags: []string{"--driver-name=" + vendorName}})
	t.Cleanup(func() {
		for _, what := range append(cloud.Troubles(), cloud.Left()...) {
			t.Errorf("left or wrong in the account: %s", what)
		}
	})
	var err error
	if c.droplet, err = strconv.Atoi(c.pair.NodeID()); err != nil || !slices.Contains(account.Droplets(), c.droplet) {
		t.Fatalf("the node registers as %q, want the droplet's id", c.pair.NodeID())
	}
	if c.api, err = godo.New(&http.Client{Transport: bearer(account.Token)}, godo.SetBaseURL(account.URL+"/")); err != nil {
		t.Fatal(err)
	}
	return c
}

// bearer puts the vendor's token into each request.
type bearer string

func (token bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

func (c takenOver) at(t *testing.T) takenOver { c.T = t; return c }

// persistentVolume makes a volume as the vendor's driver does, with data on it, and returns what the
// sidecars and the kubelet know of it: everything is from the PersistentVolume, and none of it is ours.
func (c takenOver) persistentVolume(name, kind string) *programs.Volume {
	c.Helper()
	id, err := c.account.AddVolume(emulator.Volume{Name: name, SizeGiB: 1, Description: "Created by DigitalOcean CSI driver"})
	if err != nil {
		c.Fatal(err)
	}
	link := c.attach(id, name)
	if kind == "" {
		write(c.T, link, 7, mib)
	} else {
		command(c.T, "mkfs."+kind, "-q", link)
		at := c.TempDir()
		command(c.T, "mount", link, at)
		write(c.T, filepath.Join(at, "data"), 7, mib)
		command(c.T, "umount", at)
	}
	c.detach(id)
	return (&programs.Volume{
		Claim: programs.Claim{Name: name, Filesystem: kind}, ID: id,
		Context: map[string]string{vendorAddress: "1763712000000-8081-" + vendorName},
	}).On(c.pair)
}

// attach does what the vendor's controller does, and returns the link to the disk.
func (c takenOver) attach(id, name string) string {
	c.Helper()
	_, _, err := c.api.StorageActions.Attach(c.Context(), id, c.droplet)
	if v := c.volume(id); err != nil || v.DropletID != c.droplet {
		c.Fatalf("attach: %+v, %v", v, err)
	}
	return filepath.Join(c.devices, "scsi-0DO_Volume_"+name)
}

func (c takenOver) detach(id string) {
	c.Helper()
	_, _, err := c.api.StorageActions.DetachByDropletID(c.Context(), id, c.droplet)
	if v := c.volume(id); err != nil || v.DropletID != 0 {
		c.Fatalf("detach: %+v, %v", v, err)
	}
}

// volume returns a volume after the action that was sent for it, which ends before the next request.
func (c takenOver) volume(id string) emulator.Volume {
	c.Helper()
	if _, _, err := c.api.Storage.GetVolume(c.Context(), id); err != nil {
		c.Fatal(err)
	}
	v, _ := c.account.Volume(id)
	return v
}

// free: nothing is attached when our driver takes over.
func (c takenOver) free(kind string) {
	v := c.persistentVolume("free-"+kindName(kind), kind)
	must(c.T, v.Attach, v.Attach)
	if got := v.Published[vendorAttach]; got != v.Name {
		c.Errorf("the vendor's node program is told the volume's name %q, want %q: it may still run here", got, v.Name)
	}
	must(c.T, v.Stage, v.Stage, v.Publish, v.Publish)
	c.useAndDelete(v)
}

// attached: the VolumeAttachment is the vendor's, and its context is never written anew.
func (c takenOver) attached(kind string) {
	v := c.persistentVolume("attached-"+kindName(kind), kind)
	c.attach(v.ID, v.Name)
	v.Published = map[string]string{vendorAttach: v.Name}
	must(c.T, v.Stage, v.Publish)
	c.useAndDelete(v)
}

// inUse: the vendor's node program has mounted it for a pod that runs on.
func (c takenOver) inUse(kind string) {
	v := c.persistentVolume("used-"+kindName(kind), kind)
	link := c.attach(v.ID, v.Name)
	v.Published = map[string]string{vendorAttach: v.Name}
	for _, dir := range []string{v.Staging, filepath.Dir(v.Target)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			c.Fatal(err)
		}
	}
	if kind == "" { // the vendor's program binds the device straight to the target
		if err := os.WriteFile(v.Target, nil, 0o600); err != nil {
			c.Fatal(err)
		}
		device, err := os.Readlink(link)
		if err != nil {
			c.Fatal(err)
		}
		command(c.T, "mount", "--bind", device, v.Target)
	} else {
		if err := os.Mkdir(v.Target, 0o750); err != nil {
			c.Fatal(err)
		}
		command(c.T, "mount", "-t", kind, link, v.Staging)
		command(c.T, "mount", "--bind", v.Staging, v.Target)
		// A kubelet that is restarted asks for both again.
		must(c.T, v.Stage, v.Publish)
	}
	c.useAndDelete(v)
}

// useAndDelete reads the data and takes a published volume to the end of its life.
func (c takenOver) useAndDelete(v *programs.Volume) {
	c.Helper()
	wantBytes(c.T, data(v), 7, mib)
	size, err := v.Expand(c.Context(), 2*gib)
	if v.Filesystem == "ext4" && !canGrowMountedExt4(c.T) {
		c.Log("this machine's root lacks CAP_SYS_RESOURCE: a mounted ext4 grows at the next stage")
		wantCode(c.T, "growing a mounted ext4 without the capability", err, codes.FailedPrecondition)
	} else if err != nil || v.Filesystem != "" && size != 2*gib {
		c.Errorf("Expand = %d, %v, want 2 GiB", size, err)
	}
	usage, err := v.Stats(c.Context())
	if err != nil || len(usage) == 0 {
		c.Errorf("Stats = %v, %v", usage, err)
	}
	must(c.T, v.Unpublish, v.Unpublish, v.Unstage, v.Unstage, v.Detach, v.Detach)
	must(c.T, v.Attach, v.Stage, v.Publish)
	wantBytes(c.T, data(v), 7, mib)
	if v.Filesystem != "" && filesystemSize(c.T, v.Target) < 2*gib*85/100 {
		c.Errorf("the filesystem has %d bytes, want nearly 2 GiB", filesystemSize(c.T, v.Target))
	}
	must(c.T, v.Unpublish, v.Unstage, v.Detach, v.Delete, v.Delete)
	if left, there := c.account.Volume(v.ID); there {
		c.Errorf("after DeleteVolume there is still %+v", left)
	}
}

// neverFormatted: the vendor's attribute counts whatever its value is, and does not keep data from being
// used. Without it a blank disk of the vendor's is formatted, as the vendor would.
func (c takenOver) neverFormatted() {
	for _, value := range []string{"", "false", "true"} {
		v := c.blankVolume("never-" + value)
		v.Context[vendorNever] = value
		must(c.T, v.Attach)
		err := v.Stage(c.Context())
		wantCode(c.T, "staging a blank disk that must not be formatted", err, codes.FailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), vendorNever) {
			c.Errorf("Stage = %v, want an error that names the attribute", err)
		}
		link := filepath.Join(c.devices, "scsi-0DO_Volume_"+v.Name)
		if first := readStart(c.T, link); strings.Trim(first, "\x00") != "" {
			c.Errorf("the disk was written to: %q", first)
		}
		command(c.T, "mkfs.ext4", "-q", link)
		must(c.T, v.Stage, v.Publish, v.Unpublish, v.Unstage, v.Detach, v.Delete)
	}
	v := c.blankVolume("blank")
	must(c.T, v.Attach, v.Stage, v.Publish, v.Unpublish, v.Unstage, v.Detach, v.Delete)
}

// blankVolume is one that the vendor's driver has made and that no pod has used yet.
func (c takenOver) blankVolume(name string) *programs.Volume {
	c.Helper()
	name = strings.TrimSuffix(name, "-")
	id, err := c.account.AddVolume(emulator.Volume{Name: name, SizeGiB: 1})
	if err != nil {
		c.Fatal(err)
	}
	v := &programs.Volume{Claim: programs.Claim{Name: name, Filesystem: "ext4"}, ID: id, Context: map[string]string{}}
	return v.On(c.pair)
}

func readStart(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start := make([]byte, mib)
	if n, err := unix.Pread(int(f.Fd()), start, 0); err != nil || n != len(start) {
		t.Fatalf("read %s: %d bytes, %v", path, n, err)
	}
	return string(start)
}

// newVolume: the vendor's classes make volumes on, which a vendor's driver that comes back can serve.
func (c takenOver) newVolume() {
	v := create(c.T, c.pair, programs.Claim{Name: "new", Filesystem: "xfs", Size: gib, Parameters: map[string]string{"fstype": "xfs"}})
	must(c.T, v.Attach)
	if got := v.Published[vendorAttach]; got != "new" {
		c.Errorf("the vendor's node program is told the volume's name %q, want new", got)
	}
	for key := range v.Context {
		if strings.HasSuffix(key, "noformat") {
			c.Errorf("the new volume has the attribute %s", key)
		}
	}
	must(c.T, v.Stage, v.Publish)
	write(c.T, data(v), 3, mib)
	must(c.T, v.Unpublish, v.Unstage, v.Detach, v.Delete)

	answer, err := csi.NewControllerClient(c.pair.Controller.Conn).CreateVolume(c.Context(), &csi.CreateVolumeRequest{
		Name: "placed", CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: []*csi.VolumeCapability{v.Capability()},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"region": "nyc3"}}}},
	})
	placed := answer.GetVolume()
	if err != nil || len(placed.GetAccessibleTopology()) != 1 || !maps.Equal(placed.GetAccessibleTopology()[0].GetSegments(), map[string]string{"region": "nyc3"}) {
		c.Errorf("CreateVolume = %v, %v, want a volume in the vendor's topology", placed, err)
	}
	_, err = csi.NewControllerClient(c.pair.Controller.Conn).DeleteVolume(context.WithoutCancel(c.Context()), &csi.DeleteVolumeRequest{VolumeId: placed.GetVolumeId()})
	wantCode(c.T, "delete", err, codes.OK)
	_, err = c.pair.Create(c.Context(), programs.Claim{Name: "typo", Filesystem: "xfs", Size: gib, Parameters: map[string]string{"fstyp": "xfs"}})
	wantCode(c.T, "creating with an unknown parameter", err, codes.InvalidArgument)
	if err != nil && !strings.Contains(err.Error(), "fstype") {
		c.Errorf("the error %v does not name the known parameters", err)
	}
}

// half: the vendor's controller was stopped after it had made a volume and before the provisioner heard of
// it. Nothing says what it was made of, so it is left alone and named, and the claim goes on without it.
func (c takenOver) half() {
	const name = "pvc-0b6c3f0e-5f1e-4d3a-9d0e-0123456789ab"
	id := c.blankVolume(name).ID
	claim := programs.Claim{Name: name, Filesystem: "ext4", Size: gib}
	_, err := c.pair.Create(c.Context(), claim)
	wantCode(c.T, "creating a volume whose name is taken", err, codes.AlreadyExists)
	if err == nil || !strings.Contains(err.Error(), id) {
		c.Errorf("CreateVolume = %v, want an error that names %s", err, id)
	}
	if v, there := c.account.Volume(id); !there || len(v.Tags) > 0 {
		c.Errorf("the vendor's volume is %+v now", v)
	}
	if _, err := c.api.Storage.DeleteVolume(c.Context(), id); err != nil { // as the operator is told to do
		c.Fatal(err)
	}
	v := create(c.T, c.pair, claim)
	must(c.T, v.Delete)
}

// snapshot: one that the vendor's driver has taken is restored and deleted.
func (c takenOver) snapshot() {
	v := c.persistentVolume("source", "ext4")
	snap, _, err := c.api.Storage.CreateSnapshot(c.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "snapshot-1"})
	if err != nil {
		c.Fatal(err)
	}
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
