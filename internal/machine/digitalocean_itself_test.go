package machine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

func TestADropletKnowsItselfWithoutTheService(t *testing.T) {
	tests := map[string]struct {
		vendor, serial string
		want           machine.Info
		kind           fault.Kind
	}{
		"a droplet":                  {"DigitalOcean\n", "14259848\n", machine.Info{ID: "14259848"}, fault.None},
		"another cloud with numbers": {"Hetzner\n", "3623889\n", machine.Info{}, fault.Unavailable},
		"no manufacturer":            {"\n", "14259848\n", machine.Info{}, fault.Unavailable},
		"no number":                  {"DigitalOcean\n", "Not Specified\n", machine.Info{}, fault.Unavailable},
		"no serial":                  {"DigitalOcean\n", "", machine.Info{}, fault.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dmi := filepath.Join(root, "sys/devices/virtual/dmi/id")
			must(t, os.MkdirAll(dmi, 0o755))
			for file, text := range map[string]string{"sys_vendor": tc.vendor, "product_serial": tc.serial} {
				must(t, os.WriteFile(filepath.Join(dmi, file), []byte(text), 0o600))
			}
			got, err := machine.DigitalOceanItself(root)
			if got != tc.want || fault.Of(err) != tc.kind {
				t.Errorf("DigitalOceanItself = %+v, %v, want %+v and the kind %q", got, err, tc.want, tc.kind)
			}
		})
	}
	if _, err := machine.DigitalOceanItself(t.TempDir()); fault.Of(err) != fault.Unavailable {
		t.Errorf("DigitalOceanItself of no machine = %v", err)
	}
}
