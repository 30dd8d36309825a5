//go:build e2e

package e2e

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// vendor is the driver of a cloud's vendor, as it works in an emulated account: what it calls things, and
// what its controller does.
type vendor interface {
	accounts.Account

	// driver is its name. The labels of its nodes are here, and there is another place.
	driver() string
	places() (here, there map[string]string)
	// link is the base name of the link to a volume's disk, and told what the controller says of an attach.
	link(v *programs.Volume) string
	told(v *programs.Volume) map[string]string
	// attributes are those of every PersistentVolume.
	attributes() map[string]string
	// add makes a volume that is free and blank, and returns its handle.
	add(volume string) (handle string, err error)
	// attach and detach return when the volume is there, or free.
	attach(ctx context.Context, handle, machine string) error
	detach(ctx context.Context, handle, machine string) error
	// remove deletes a volume past every driver.
	remove(ctx context.Context, handle string) error
	// tags are those of a volume that exists.
	tags(handle string) (tags []string, exists bool)
	// class has parameters of its classes, and typo one that its classes never had, which the answer
	// mentions under its right name.
	class() map[string]string
	typo() (wrong, right string)
	// more are the tests of what only this one has left.
	more(c takenOver)
}

const vendorAddress = "storage.kubernetes.io/csiProvisionerIdentity"

// takenOver is a machine in a cluster that has come from the vendor's driver to ours.
type takenOver struct {
	*testing.T
	vendor
	pair    *programs.Pair
	machine string
	devices string // the folder of the links that udev would make
}

// TestDropIn: under the vendor's driver name both programs serve what the vendor's driver made, at
// whatever point of a volume's life the cluster changes over.
func TestDropIn(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, dir string) vendor{
		"DigitalOcean": openDigitalOceanVendor, "Linode": openLinodeVendor, "Yandex Cloud": openYandexVendor,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takeOver(t, open)
		})
	}
}

func takeOver(t *testing.T, open func(t *testing.T, dir string) vendor) {
	dir := folder(t)
	c := takenOver{T: t, vendor: open(t, filepath.Join(dir, "account")), devices: filepath.Join(dir, "by-id")}
	c.pair = start(t, programs.Options{Dir: dir, Cloud: c.vendor, Flags: []string{"--driver-name=" + c.driver()}})
	t.Cleanup(func() {
		for _, what := range append(accounts.Wrong(c.vendor), accounts.Left(c.vendor)...) {
			t.Errorf("left or wrong in the account: %s", what)
		}
	})
	c.machine = c.pair.NodeID()
	here, _ := c.places()
	info, err := csi.NewNodeClient(c.pair.Node.Conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if got := info.GetAccessibleTopology().GetSegments(); err != nil || !maps.Equal(got, here) {
		t.Errorf("the node states the topology %v, %v, want the vendor's labels and no other", got, err)
	}
	for _, kind := range []string{"ext4", "xfs", ""} {
		t.Run(kindName(kind)+" that is free", func(t *testing.T) { c.at(t).free(kind) })
		t.Run(kindName(kind)+" attached by the vendor", func(t *testing.T) { c.at(t).attached(kind) })
		t.Run(kindName(kind)+" in use by a pod", func(t *testing.T) { c.at(t).inUse(kind) })
	}
	t.Run("blank", func(t *testing.T) { c.at(t).blank() })
	t.Run("half made by the vendor", func(t *testing.T) { c.at(t).half() })
	t.Run("a new volume of an old class", func(t *testing.T) { c.at(t).newVolume() })
	c.more(c)
}

// bearer puts the vendor's token into each request.
type bearer string

func (token bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

func (c takenOver) at(t *testing.T) takenOver { c.T = t; return c }

// run is a test of what only one vendor has left.
func (c takenOver) run(name string, test func(c takenOver)) {
	c.Run(name, func(t *testing.T) { test(c.at(t)) })
}

// persistentVolume makes a volume as the vendor's driver does, with data on it, and returns what the
// sidecars and the kubelet know of it: everything is from the PersistentVolume, and none of it is ours.
func (c takenOver) persistentVolume(name, kind string) *programs.Volume {
	c.Helper()
	v := c.blankVolume(name)
	v.Filesystem = kind
	link := c.attachAsVendor(v)
	if kind == "" {
		write(c.T, link, 7, mib)
	} else {
		command(c.T, "mkfs."+kind, "-q", link)
		at := c.TempDir()
		command(c.T, "mount", link, at)
		write(c.T, filepath.Join(at, "data"), 7, mib)
		noError(c, mounts.Unmount(at))
	}
	noError(c, c.detach(c.Context(), v.ID, c.machine))
	v.Published = nil
	return v
}

// blankVolume is one that the vendor's driver has made and that no pod has used yet.
func (c takenOver) blankVolume(name string) *programs.Volume {
	c.Helper()
	handle, err := c.add(name)
	noError(c, err)
	attributes := c.attributes()
	attributes[vendorAddress] = "1763712000000-8081-" + c.driver()
	v := &programs.Volume{Claim: programs.Claim{Name: name, Filesystem: "ext4"}, ID: handle, Context: attributes}
	return v.On(c.pair)
}

// attachAsVendor does what the vendor's controller does, and returns the link to the disk.
func (c takenOver) attachAsVendor(v *programs.Volume) string {
	c.Helper()
	noError(c, c.attach(c.Context(), v.ID, c.machine))
	v.Published = c.told(v)
	return filepath.Join(c.devices, c.link(v))
}

// free: nothing is attached when our driver takes over.
func (c takenOver) free(kind string) {
	v := c.persistentVolume("free-"+kindName(kind), kind)
	must(c.T, v.Attach, v.Attach)
	c.wantTold(v)
	c.wantListed(v)
	must(c.T, v.Stage, v.Stage, v.Publish, v.Publish)
	c.useAndDelete(v)
}

// wantTold: the vendor's node program, which may still run here, is told what it needs.
func (c takenOver) wantTold(v *programs.Volume) {
	c.Helper()
	for key, want := range c.told(v) {
		if got := v.Published[key]; got != want {
			c.Errorf("the vendor's node program is told %s=%q, want %q", key, got, want)
		}
	}
}

// wantListed: the list has the volume under its handle, or the attacher would publish it again and again.
func (c takenOver) wantListed(v *programs.Volume) {
	c.Helper()
	list, err := csi.NewControllerClient(c.pair.Controller.Conn).ListVolumes(c.Context(), &csi.ListVolumesRequest{})
	noError(c, err)
	if !slices.ContainsFunc(list.GetEntries(), func(e *csi.ListVolumesResponse_Entry) bool {
		return e.GetVolume().GetVolumeId() == v.ID && slices.Equal(e.GetStatus().GetPublishedNodeIds(), []string{c.pair.NodeID()})
	}) {
		c.Errorf("ListVolumes = %v, want %s on %s", list.GetEntries(), v.ID, c.pair.NodeID())
	}
}

// attached: the VolumeAttachment is the vendor's, and its context is never written again.
func (c takenOver) attached(kind string) {
	v := c.persistentVolume("attached-"+kindName(kind), kind)
	c.attachAsVendor(v)
	must(c.T, v.Stage, v.Publish)
	c.useAndDelete(v)
}

// inUse: the vendor's node program has mounted it for a pod that runs on.
func (c takenOver) inUse(kind string) {
	v := c.persistentVolume("used-"+kindName(kind), kind)
	link := c.attachAsVendor(v)
	for _, dir := range []string{v.Staging, filepath.Dir(v.Target)} {
		noError(c, os.MkdirAll(dir, 0o750))
	}
	if kind == "" { // the vendor's program binds the device straight to the target
		noError(c, os.WriteFile(v.Target, nil, 0o600))
		device, err := os.Readlink(link)
		noError(c, err)
		command(c.T, "mount", "--bind", device, v.Target)
	} else {
		noError(c, os.Mkdir(v.Target, 0o750))
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
	grown := 2 * c.Size()
	size, err := v.Expand(c.Context(), grown)
	if !c.GrowsInUse() || v.Filesystem == "ext4" && !mounts.GrowsExt4(c.T) {
		wantCode(c.T, "growing what cannot grow in use", err, codes.FailedPrecondition)
	} else if err != nil || v.Filesystem != "" && size != grown {
		c.Errorf("Expand = %d, %v, want %d", size, err, grown)
	}
	usage, err := v.Stats(c.Context())
	if err != nil || len(usage) == 0 {
		c.Errorf("Stats = %v, %v", usage, err)
	}
	must(c.T, v.Unpublish, v.Unpublish, v.Unstage, v.Unstage, v.Detach, v.Detach)
	must(c.T, v.Attach, v.Stage, v.Publish)
	wantBytes(c.T, data(v), 7, mib)
	if v.Filesystem != "" && seesGrowth(c.T, v.Filesystem) && filesystemSize(c.T, v.Target) < grown*85/100 {
		c.Errorf("the filesystem has %d bytes, want nearly %d", filesystemSize(c.T, v.Target), grown)
	}
	must(c.T, v.Unpublish, v.Unstage, v.Detach, v.Delete, v.Delete)
	if _, exists := c.tags(v.ID); exists {
		c.Errorf("after DeleteVolume volume %s is still there", v.ID)
	}
}

// blank: a disk that the vendor's driver would format at its first use is formatted.
func (c takenOver) blank() {
	v := c.blankVolume("blank")
	must(c.T, v.Attach, v.Stage, v.Publish, v.Unpublish, v.Unstage, v.Detach, v.Delete)
}

// refused attaches a volume whose stage has to be refused with an error that names something, and whose disk has to stay as it is.
func (c takenOver) refused(what string, v *programs.Volume, code codes.Code, names string) {
	c.Helper()
	must(c.T, v.Attach)
	err := v.Stage(c.Context())
	wantCode(c.T, "staging "+what, err, code)
	if err == nil || !strings.Contains(err.Error(), names) {
		c.Errorf("Stage = %v, want an error that names %s", err, names)
	}
	c.wantUntouched(v)
}

// wantUntouched: nothing was written to the start of a disk.
func (c takenOver) wantUntouched(v *programs.Volume) {
	c.Helper()
	if first := readStart(c.T, filepath.Join(c.devices, c.link(v))); strings.Trim(first, "\x00") != "" {
		c.Errorf("the disk was written to: %q", first)
	}
}

func readStart(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	noError(t, err)
	defer f.Close()
	start := make([]byte, mib)
	if n, err := unix.Pread(int(f.Fd()), start, 0); err != nil || n != len(start) {
		t.Fatalf("read %s: %d bytes, %v", path, n, err)
	}
	return string(start)
}

// newVolume: the vendor's classes make volumes on, which a vendor's driver that comes back can serve.
func (c takenOver) newVolume() {
	v := create(c.T, c.pair, programs.Claim{Name: "new", Filesystem: "xfs", Size: c.Size(), Parameters: c.class()})
	must(c.T, v.Attach)
	c.wantTold(v)
	c.wantListed(v)
	for key := range v.Context {
		if strings.HasSuffix(key, "noformat") {
			c.Errorf("the new volume has the attribute %s", key)
		}
	}
	must(c.T, v.Stage, v.Publish)
	write(c.T, data(v), 3, mib)
	must(c.T, v.Unpublish, v.Unstage, v.Detach, v.Delete)

	_, elsewhere := c.places()
	answer, err := csi.NewControllerClient(c.pair.Controller.Conn).CreateVolume(c.Context(), &csi.CreateVolumeRequest{
		Name: "placed", CapacityRange: &csi.CapacityRange{RequiredBytes: c.Size()}, VolumeCapabilities: []*csi.VolumeCapability{v.Capability()},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: elsewhere}}},
	})
	placed := answer.GetVolume()
	if err != nil || len(placed.GetAccessibleTopology()) != 1 || !maps.Equal(placed.GetAccessibleTopology()[0].GetSegments(), elsewhere) {
		c.Errorf("CreateVolume = %v, %v, want a volume in the vendor's topology", placed, err)
	}
	_, err = csi.NewControllerClient(c.pair.Controller.Conn).DeleteVolume(context.WithoutCancel(c.Context()), &csi.DeleteVolumeRequest{VolumeId: placed.GetVolumeId()})
	wantCode(c.T, "delete", err, codes.OK)
	wrong, right := c.typo()
	_, err = c.pair.Create(c.Context(), programs.Claim{Name: "typo", Filesystem: "xfs", Size: c.Size(), Parameters: map[string]string{wrong: "xfs"}})
	wantCode(c.T, "creating with an unknown parameter", err, codes.InvalidArgument)
	if err != nil && !strings.Contains(err.Error(), right) {
		c.Errorf("the error %v does not name the known parameters", err)
	}
}

// half: the vendor's controller was stopped after it had made a volume and before the provisioner heard of
// it. Nothing says what it was made of, so it is left alone and named, and the claim goes on without it.
func (c takenOver) half() {
	const name = "pvc-0b6c3f0e5f1e4d3a"
	handle := c.blankVolume(name).ID
	claim := programs.Claim{Name: name, Filesystem: "ext4", Size: c.Size()}
	_, err := c.pair.Create(c.Context(), claim)
	wantCode(c.T, "creating a volume whose name is taken", err, codes.AlreadyExists)
	if id := strings.TrimSuffix(handle, "-"+name); err == nil || !strings.Contains(err.Error(), id) {
		c.Errorf("CreateVolume = %v, want an error that names %s", err, id)
	}
	if tags, exists := c.tags(handle); !exists || len(tags) > 0 {
		c.Errorf("the vendor's volume has the tags %v now (exists: %t)", tags, exists)
	}
	if err := c.remove(c.Context(), handle); err != nil { // as the operator is told to do
		c.Fatal(err)
	}
	v := create(c.T, c.pair, claim)
	must(c.T, v.Delete)
}
