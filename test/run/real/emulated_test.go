//go:build real

package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
)

// foreignVolumes are in the account before the run, which may neither see nor change them.
var foreignVolumes = []string{"volume cb", "volume foreign"}

// emulate starts an account and makes a the way to it. The end of the account says what the run did wrong.
func emulate(a *Account) (end func() error, err error) {
	// With the real rules, such as one snapshot of a volume in 10 minutes, in an account whose time runs fast.
	emulator, err := accounts.Start(a.Cloud, accounts.Options{Machines: 2, Real: true, Speed: 600})
	if err != nil {
		return nil, err
	}
	if err := emulator.Listen(context.Background(), "127.0.0.1:0"); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "token")
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteString(emulator.Token()); err != nil {
		return nil, err
	}
	if yandex, is := emulator.(*accounts.Yandex); is {
		a.Folder = yandex.Folder
	}
	for _, id := range emulator.Machines() {
		a.Machines = append(a.Machines, cloud.NodeID(id))
	}
	a.TokenFile, a.Region, a.Endpoint, a.Hurry = file.Name(), emulator.Region(), emulator.URL(), true
	for _, name := range foreignVolumes {
		if _, err := emulator.AddVolume(accounts.Volume{Name: strings.TrimPrefix(name, "volume ")}); err != nil {
			return nil, err
		}
	}
	return func() error {
		left := accounts.Left(emulator)
		slices.Sort(left)
		wrong := accounts.Wrong(emulator)
		if !slices.Equal(left, foreignVolumes) {
			wrong = append(wrong, fmt.Sprintf("the account has %q, it had %q", left, foreignVolumes))
		}
		if len(wrong) > 0 {
			err = errors.New(strings.Join(wrong, "\n"))
		}
		return errors.Join(err, emulator.Close(), os.Remove(file.Name()))
	}, file.Close()
}
