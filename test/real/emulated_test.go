//go:build real

package real

import (
	"context"
	"os"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/accounts"
)

// emulate starts an account that lives as long as the process, and makes a the way to it.
func emulate(a *Account) error {
	emulator, err := accounts.Start(a.Cloud, accounts.Options{Machines: 2})
	if err != nil {
		return err
	}
	if err := emulator.Listen(context.Background(), "127.0.0.1:0"); err != nil {
		return err
	}
	file, err := os.CreateTemp("", "token")
	if err != nil {
		return err
	}
	if _, err := file.WriteString(emulator.Token()); err != nil {
		return err
	}
	if yandex, is := emulator.(*accounts.Yandex); is {
		a.Folder = yandex.Folder
	}
	for _, id := range emulator.Machines() {
		a.Machines = append(a.Machines, cloud.NodeID(id))
	}
	a.TokenFile, a.Region, a.Endpoint, a.Hurry = file.Name(), emulator.Region(), emulator.URL(), true
	// Other volumes of the account, which no part may see or change.
	for _, name := range []string{"foreign", "cb"} {
		if _, err := emulator.AddVolume(accounts.Volume{Name: name}); err != nil {
			return err
		}
	}
	return file.Close()
}
