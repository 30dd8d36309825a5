//go:build vm

// Package vm drives the real node program in a virtual machine whose disks are plugged in and out as the clouds
// do. It needs root and QEMU.
package vm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

var must = expect.NoError

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
	// patience bounds every step. Emulation on a busy computer is slow, and no test depends on time.
	patience = 5 * time.Minute
	// bootLimit bounds a boot, which takes 6 to 40 s.
	bootLimit = 3 * time.Minute
)

// clouds are those whose disks the suite plugs in.
var clouds = []string{vm.DigitalOcean, vm.Linode, vm.Yandex}

// config is what every guest is made of, but for its folder.
var config vm.Config

// shared are the guests of all tests that neither reset nor kill them, one for each cloud, so that the clouds' tests
// run in parallel. The first test of a cloud boots its guest.
var shared = struct {
	sync.Mutex
	machines map[string]*machine
}{machines: map[string]*machine{}}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prepare makes the image, if need be, and the programs of the guest, and runs the tests.
func prepare(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "cloudblock-vm-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config = vm.Config{Init: filepath.Join(dir, "init")}
	if config.Image, err = image("bookworm"); err != nil {
		return 0, err
	}
	if config.Node, err = filepath.Abs(filepath.Join("../../../../bin", "cloudblock-node")); err != nil {
		return 0, err
	}
	if bin := os.Getenv("CLOUDBLOCK_BIN"); bin != "" {
		config.Node = filepath.Join(bin, "cloudblock-node")
	}
	if _, err := os.Stat(config.Node); err != nil {
		return 0, fmt.Errorf("%w: run `make build` first", err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", config.Init, "../../../kit/vm/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the guest's program: %w: %s", err, out)
	}
	defer func() {
		for _, m := range shared.machines {
			m.guest.Kill()
			_ = os.RemoveAll(m.dir)
		}
	}()
	return m.Run(), nil
}

// image returns the image of a release of Debian. It is made, if need be.
func image(suite string) (folder string, err error) {
	cmd := exec.Command("../../../kit/vm/image.sh", suite)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("make the image of the virtual machine: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// machine is a guest and the node programs in it, one for each cloud that a test has asked for.
type machine struct {
	guest *vm.Guest
	nodes map[string]*vm.Node
	flags []string // of the node programs
	dir   string   // has the disks' files, too
}

// noBoot is why a guest did not boot. The others would not either, and each may take its time.
var noBoot atomic.Pointer[error]

// boot starts a guest.
func boot(t testing.TB) *machine {
	t.Helper()
	if err := noBoot.Load(); err != nil {
		t.Fatalf("as before: %v", *err)
	}
	m, err := bootWith(t, config)
	if err != nil {
		noBoot.Store(&err)
		t.Fatal(err)
	}
	return m
}

// bootWith starts a guest that is made of this.
func bootWith(t testing.TB, cfg vm.Config) (*machine, error) {
	t.Helper()
	var err error
	if cfg.Dir, err = os.MkdirTemp("", "cloudblock-vm-guest-"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	start := time.Now()
	guest, err := vm.Start(ctx, cfg)
	if err != nil {
		_ = os.RemoveAll(cfg.Dir)
		return nil, err
	}
	t.Logf("the guest has booted in %.1fs", time.Since(start).Seconds())
	return &machine{guest: guest, nodes: map[string]*vm.Node{}, dir: cfg.Dir}, nil
}

// endWith ends the machine with the test.
func (m *machine) endWith(t testing.TB) {
	t.Cleanup(func() {
		m.guest.Kill()
		if err := os.RemoveAll(m.dir); err != nil {
			t.Error(err)
		}
	})
}

// sharedMachine returns the machine that most tests of a cloud share.
func sharedMachine(t testing.TB, cloud string) *host {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.machines[cloud] == nil {
		shared.machines[cloud] = boot(t)
	}
	return shared.machines[cloud].host(t, cloud)
}

// ownMachine boots a machine for this test alone, whose node programs have these flags more.
func ownMachine(t testing.TB, cloud string, flags ...string) *host {
	t.Helper()
	return ownGuest(t, flags...).host(t, cloud)
}

// ownGuest is ownMachine before its first node program.
func ownGuest(t testing.TB, flags ...string) *machine {
	t.Helper()
	m := boot(t)
	m.flags = flags
	m.endWith(t)
	return m
}

// host is a machine of one cloud as a test sees it.
type host struct {
	*machine
	*vm.Node
	t     testing.TB
	cloud string
}

func (m *machine) host(t testing.TB, cloud string) *host {
	t.Helper()
	if m.nodes[cloud] == nil {
		n, err := m.guest.StartNode(within(t), cloud, m.flags...)
		must(t, err)
		m.nodes[cloud] = n
	}
	h := &host{machine: m, Node: m.nodes[cloud], t: t, cloud: cloud}
	t.Cleanup(func() {
		if t.Failed() {
			ctx := within(t)
			log, _ := h.Log(ctx)
			kernel, err := h.guest.Run(ctx, "dmesg | tail -n 25")
			if err != nil {
				kernel = fmt.Sprintf("%v\nconsole:\n%s", err, h.guest.Console())
			}
			t.Logf("node program:\n%s\nkernel:\n%s", log[max(0, len(log)-6000):], kernel)
		}
	})
	return h
}

// run runs a script in the guest that must succeed.
func (h *host) run(format string, args ...any) string {
	h.t.Helper()
	script := format
	if len(args) > 0 {
		script = fmt.Sprintf(format, args...)
	}
	out, err := h.guest.Run(within(h.t), script)
	if err != nil {
		h.t.Fatalf("%s\n%v", script, err)
	}
	return strings.TrimSpace(out)
}

// number is run for a script that prints a number.
func (h *host) number(format string, args ...any) int64 {
	h.t.Helper()
	n, err := strconv.ParseInt(h.run(format, args...), 10, 64)
	must(h.t, err)
	return n
}

// within returns a context for one step of a test, or of what follows it.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}
