package programs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Cloud is where the programs' volumes are: all that differs from one cloud to another when the programs
// are started.
type Cloud interface {
	// Name is what --cloud takes.
	Name() string
	// Controller returns the controller's other flags. What they point at may be put in dir.
	Controller(dir string) ([]string, error)
	// Machine makes this machine one more of the cloud's and returns its node program's other flags. What
	// they point at may be put in dir.
	Machine(dir string) ([]string, error)
}

// Emulated is a cloud that runs in this process, with the disks of its volumes on this machine.
type Emulated interface {
	Cloud
	// Size is that of a small volume.
	Size() int64
	// GrowsInUse reports whether a machine sees a volume grow that it has; else it does when the volume is
	// attached again.
	GrowsInUse() bool
	// Calls returns how many requests there were so far that change nothing, and how many others.
	Calls() (reads, writes int)
	// Left names the volumes and snapshots that there are.
	Left() []string
	// Troubles says what must not have happened, such as a detach of a disk in use.
	Troubles() []string
	// Close ends the cloud and removes its data.
	Close() error
}

// emulated are the clouds that Emulate knows.
var emulated = map[string]func(ctx context.Context, dir string) (Emulated, error){
	"digitalocean": emulateDigitalOcean,
	"linode":       emulateLinode,
	"yandex":       emulateYandex,
}

// Emulate starts an emulated cloud. Its data is kept below dir.
func Emulate(ctx context.Context, name, dir string) (Emulated, error) {
	start, known := emulated[name]
	if !known {
		return nil, fmt.Errorf("there is no emulated cloud %q: known are %v", name, slices.Sorted(maps.Keys(emulated)))
	}
	return start(ctx, dir)
}

// local is the cloud that is nothing but a folder of this machine.
type local struct{ pool string }

func (local) Name() string { return "local" }

func (l local) Controller(string) ([]string, error) {
	return []string{"--local-pool=" + l.pool, "--node-id=node-a"}, os.MkdirAll(l.pool, 0o700)
}

// Machine gives the same flags, for the controller of `local` runs beside the node program.
func (l local) Machine(dir string) ([]string, error) { return l.Controller(dir) }

// states is what a controller states that it does, and so what its sidecars ask of it.
type states struct{ attaches, grows, snapshots bool }

func (p *Program) states(ctx context.Context) (s states, err error) {
	answer, err := csi.NewControllerClient(p.Conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	for _, c := range answer.GetCapabilities() {
		switch c.GetRpc().GetType() {
		case csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME:
			s.attaches = true
		case csi.ControllerServiceCapability_RPC_EXPAND_VOLUME:
			s.grows = true
		case csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT:
			s.snapshots = true
		}
	}
	return s, err
}
