package programs

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
)

// Linode is an emulated account of that cloud. It needs a data folder.
type Linode struct {
	Account *linode.Cloud
	// Shape is what the machines are like: their memory and local disks. Their device folders are not of it.
	Shape linode.Linode
}

var _ Emulated = Linode{}

// emulateLinode starts an account that enforces what the real one does, and that refuses a second change
// of a machine while one is under way.
func emulateLinode(ctx context.Context, dir string) (Emulated, error) {
	account, err := linode.New(linode.Options{
		DataDir: dir, Durations: linode.Each(changes), Limits: linode.RealLimits(), Rules: linode.Rules{OneChangePerLinode: true},
	})
	if err != nil {
		return nil, err
	}
	return Linode{Account: account}, account.Listen(ctx, "127.0.0.1:0")
}

// Name is what --cloud takes.
func (Linode) Name() string { return "linode" }

// Size is that of the smallest volume.
func (Linode) Size() int64 { return 10 << 30 }

// GrowsInUse reports whether a machine sees a volume grow that it has.
func (Linode) GrowsInUse() bool { return false }

// Controller gives the account's token in a file.
func (l Linode) Controller(dir string) ([]string, error) {
	return webController(l.Account.Web, dir, linode.DefaultRegion)
}

// Machine adds a Linode whose volumes are loop devices of this machine, with links in a folder of dir. This
// machine's own disks stand for some of the Linode's; the node program cannot see the others, so that they are
// reserved.
func (l Linode) Machine(dir string) ([]string, error) {
	const usual = 2 // as in the account
	here, err := device.NewByID(device.ByIDConfig{LinkPrefix: "scsi-0Linode_Volume_"}).Foreign()
	if err != nil {
		return nil, err
	}
	flags, err := webMachine(l.Account.Web, dir, func(devices string) int {
		machine := l.Shape
		machine.DeviceDir = devices
		return l.Account.AddLinode(machine)
	})
	return append(flags, fmt.Sprintf("--reserved-attachments=%d", max(0, int64(cmp.Or(l.Shape.Disks, usual))-here))), err
}

// Calls counts what reached the account's API.
func (l Linode) Calls() (reads, writes int) {
	stats := l.Account.Stats()
	return stats.Reads, stats.Writes
}

// Left names the volumes of the account.
func (l Linode) Left() []string {
	var left []string
	for _, v := range l.Account.Volumes() {
		left = append(left, "volume "+v.Label)
	}
	return left
}

// Troubles are the account's violations, and what broke the official description of the API.
func (l Linode) Troubles() []string {
	found := l.Account.Contract().Details
	for _, v := range l.Account.Violations() {
		found = append(found, fmt.Sprintf("%s: volume %s on Linode %d", v.What, v.Label, v.Linode))
	}
	return found
}

// Close ends the account and removes its data.
func (l Linode) Close() error { return l.Account.Close() }
