package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

// Yandex is an emulated folder of that cloud. It needs a data folder.
type Yandex struct {
	Account *yandex.Cloud
	// TLS lets the controller reach it by TLS with an authority of its own, else by plain text.
	TLS bool
	// MachineAccount lets the controller be a machine's service account, else it has an authorized key.
	MachineAccount bool
	// Zone is that of machines that are added from now on; nil or empty: the usual one.
	Zone *string
}

var _ Emulated = Yandex{}

// emulateYandex starts a folder that enforces what the real one does.
func emulateYandex(ctx context.Context, dir string) (Emulated, error) {
	account, err := yandex.New(yandex.Options{DataDir: dir, Durations: yandex.Each(changes)})
	if err != nil {
		return nil, err
	}
	return Yandex{Account: account}, account.Listen(ctx, "127.0.0.1:0")
}

// Name is what --cloud takes.
func (Yandex) Name() string { return "yandex" }

// Size is that of a small volume.
func (Yandex) Size() int64 { return 1 << 30 }

// GrowsInUse reports whether a machine sees a volume grow that it has.
func (Yandex) GrowsInUse() bool { return true }

// Controller says where the folder is, and who the controller is there.
func (y Yandex) Controller(dir string) ([]string, error) {
	flags := []string{
		"--yandex-folder-id=" + y.Account.Folder, "--region=" + yandex.DefaultZone, "--cluster-id=test",
	}
	url := y.Account.URL
	if y.TLS {
		const host = "127.0.0.1"
		secure, authority, err := y.Account.ListenTLS(context.Background(), host+":0", host)
		if err != nil {
			return nil, err
		}
		url = secure
		file := filepath.Join(dir, "ca.pem")
		if err := os.WriteFile(file, authority, 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--api-ca-file="+file)
	}
	flags = append(flags, "--api-endpoint="+url)
	if y.MachineAccount {
		return append(flags, "--metadata-endpoint="+y.Account.Metadata(y.Account.AddInstance(yandex.Instance{}))), nil
	}
	key, err := y.Account.NewKey()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "key.json")
	return append(flags, "--credentials-file="+file), os.WriteFile(file, key, 0o600)
}

// Machine adds an instance whose volumes are loop devices of this machine, with links in a folder of dir.
func (y Yandex) Machine(dir string) ([]string, error) {
	return thisMachine(dir, func(devices string) (metadata string) {
		machine := yandex.Instance{DeviceDir: devices}
		if y.Zone != nil {
			machine.Zone = *y.Zone
		}
		return y.Account.Metadata(y.Account.AddInstance(machine))
	})
}

// Calls counts what reached the folder's API.
func (y Yandex) Calls() (reads, writes int) {
	stats := y.Account.Stats()
	return stats.Reads, stats.Writes
}

// Left names the disks and snapshots of the folder.
func (y Yandex) Left() []string {
	var left []string
	for _, d := range y.Account.Disks() {
		left = append(left, "disk "+d.Name)
	}
	for _, s := range y.Account.Snapshots() {
		left = append(left, "snapshot "+s.Name)
	}
	return left
}

// Troubles are the folder's violations.
func (y Yandex) Troubles() []string {
	var found []string
	for _, v := range y.Account.Violations() {
		found = append(found, fmt.Sprintf("%s: disk %s on instance %s", v.What, v.DiskName, v.Instance))
	}
	return found
}

// Close ends the folder and removes its data.
func (y Yandex) Close() error { return y.Account.Close() }
