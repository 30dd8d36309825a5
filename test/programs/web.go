package programs

import (
	"os"
	"path/filepath"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
)

// What the emulated accounts whose API is HTTP have in common.

// changes is how long a change takes an account that Emulate starts: long enough to be seen.
var changes = clock.Fixed(300 * time.Millisecond)

// webController gives a controller the account's token in a file of dir.
func webController(w *account.Web, dir, region string) ([]string, error) {
	token := filepath.Join(dir, "token")
	return []string{
		"--api-endpoint=" + w.URL, "--credentials-file=" + token, "--region=" + region, "--cluster-id=test",
	}, os.WriteFile(token, []byte(w.Token+"\n"), 0o600)
}

// webMachine adds a machine whose volumes are loop devices of this one, with links in a folder of dir.
func webMachine(w *account.Web, dir string, add func(devices string) int) ([]string, error) {
	return thisMachine(dir, func(devices string) string { return w.Metadata(add(devices)) })
}

// thisMachine adds a machine with its links in a folder of dir; add returns where its metadata service is.
func thisMachine(dir string, add func(devices string) (metadata string)) ([]string, error) {
	devices := filepath.Join(dir, "by-id")
	if err := os.MkdirAll(devices, 0o755); err != nil {
		return nil, err
	}
	return []string{"--metadata-endpoint=" + add(devices), "--device-dir=" + devices}, nil
}
