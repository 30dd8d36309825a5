package machine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

func TestLinodeSaysWhichLinodeThisIsAndHowManyDisksItCanHave(t *testing.T) {
	account := emulator.Start(t, emulator.Options{})
	for memory, places := range map[int]int64{1 << 10: 8, 8 << 10: 8, 16 << 10: 16, 64 << 10: 64, 96 << 10: 64} {
		id := account.AddLinode(emulator.Linode{MemoryMB: memory, Region: "us-east"})
		got, err := machine.Linode(t.Context(), account.Metadata(id))
		if want := (machine.Info{ID: fmt.Sprint(id), Zone: "us-east", MaxDisks: places}); got != want || err != nil {
			t.Errorf("Linode with %d MB = %+v, %v, want %+v", memory, got, err, want)
		}
	}
}

// Some regions have no metadata service. The error is returned at once if another service answers that.
func TestARegionWithoutTheServiceIsFinal(t *testing.T) {
	account := emulator.Start(t, emulator.Options{})
	id := account.AddLinode(emulator.Linode{Region: "us-west"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := machine.Linode(ctx, account.Metadata(id)); fault.Of(err) != fault.Unavailable || ctx.Err() != nil {
		t.Errorf("Linode = %+v, %v, want a final error", got, err)
	}
}

func TestWhatIsNoLinodeIsRefused(t *testing.T) {
	tests := map[string]map[string]string{
		"no token":                {"/v1/token": "<html>"},
		"a token that is no list": {"/v1/token": `"abc"`},
		"no id":                   {"/v1/token": `["t"]`, "/v1/instance": `{"region":"us-ord","specs":{"memory":1024}}`},
		"no memory":               {"/v1/token": `["t"]`, "/v1/instance": `{"id":7,"region":"us-ord"}`},
		"a region like a path":    {"/v1/token": `["t"]`, "/v1/instance": `{"id":7,"region":"../us","specs":{"memory":1024}}`},
		"something in HTML":       {"/v1/token": `["t"]`, "/v1/instance": "<html>"},
	}
	for name, answers := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := machine.Linode(t.Context(), service(t, answers)); fault.Of(err) != fault.Unavailable {
				t.Errorf("Linode = %+v, %v, want it refused", got, err)
			}
		})
	}
}

func TestALinodeKnowsItselfWithoutTheService(t *testing.T) {
	// MemTotal in the kernel of a Linode with this memory.
	const gib8, gib16, gib96, gib1 = "8132044", "16384996", "98954564", "1000212"
	tests := map[string]struct {
		serial, meminfo string
		want            machine.Info
		kind            fault.Kind
	}{
		"8 GiB":                 {"12345\n", "MemTotal:        " + gib8 + " kB\nMemFree: 1 kB\n", machine.Info{ID: "12345", MaxDisks: 8}, fault.None},
		"16 GiB":                {"12345", "MemTotal: " + gib16 + " kB\n", machine.Info{ID: "12345", MaxDisks: 16}, fault.None},
		"96 GiB":                {"12345", "MemFree: 5 kB\nMemTotal: " + gib96 + " kB\n", machine.Info{ID: "12345", MaxDisks: 64}, fault.None},
		"1 GiB":                 {"12345", "MemTotal: " + gib1 + " kB\n", machine.Info{ID: "12345", MaxDisks: 8}, fault.None},
		"another machine":       {"Not Specified", "MemTotal: " + gib8 + " kB\n", machine.Info{}, fault.Unavailable},
		"a serial with letters": {"12345a", "MemTotal: " + gib8 + " kB\n", machine.Info{}, fault.Unavailable},
		"no memory":             {"12345", "MemFree: 1 kB\n", machine.Info{}, fault.Unavailable},
		"memory in other units": {"12345", "MemTotal: 8 GB\n", machine.Info{}, fault.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{"sys/devices/virtual/dmi/id/product_serial": tc.serial, "proc/meminfo": tc.meminfo} {
				path = filepath.Join(root, path)
				must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				must(t, os.WriteFile(path, []byte(text), 0o600))
			}
			got, err := machine.LinodeItself(root)
			if got != tc.want || fault.Of(err) != tc.kind {
				t.Errorf("LinodeItself = %+v, %v, want %+v and the kind %q", got, err, tc.want, tc.kind)
			}
		})
	}
	if _, err := machine.LinodeItself(t.TempDir()); fault.Of(err) != fault.Unavailable {
		t.Errorf("LinodeItself of no machine = %v", err)
	}
}
