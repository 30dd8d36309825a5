package programs

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Cloud is where the programs' volumes are: all that differs from one cloud to another when the programs
// are started. Each account of package accounts is one.
type Cloud interface {
	// Name is what --cloud takes.
	Name() string
	// Controller returns the controller's other flags. What they point at may be put in dir.
	Controller(dir string) ([]string, error)
	// Machine makes this machine one more of the cloud's and returns its node program's other flags. What
	// they point at may be put in dir.
	Machine(dir string) ([]string, error)
}

// local is the cloud that is nothing but a disk of this machine.
type local struct{ pool string }

func (local) Name() string { return "local" }

func (l local) Controller(string) ([]string, error) {
	return []string{"--local-pool=" + l.pool, "--node-id=node-a"}, nil
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
