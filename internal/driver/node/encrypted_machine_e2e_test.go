//go:build e2e

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

const luksKey = "a key of the tests"

// mapper stands for device-mapper, which not every machine that runs these tests has: what it opens is a loop device behind
// the header of a disk, which encrypts nothing. The headers, their keys and tokens, the filesystems and the mounts are real,
// and test/run/e2e/vm/luks has the real mappings. Its sys is a folder like /sys in which these loop devices are mappings.
type mapper struct {
	t   *testing.T
	sys string

	mu     sync.Mutex
	ran    []string      // program and verb
	empty  string        // a name that a mapping without any table has
	fails  []string      // closings and removals that find the mapping in use, by program and verb
	holdOn string        // a program that waits
	held   chan struct{} // receives when it waits
	letGo  chan struct{} // closed when it may run
}

// loopDevices is how many loop devices sys has.
const loopDevices = 256

func newMapper(t *testing.T) *mapper {
	m := &mapper{t: t, sys: t.TempDir(), held: make(chan struct{}, 1), letGo: make(chan struct{})}
	must(t, os.MkdirAll(m.path("dev/block"), 0o700))
	must(t, os.MkdirAll(m.path("class/block"), 0o700))
	must(t, os.MkdirAll(m.path("class/misc/device-mapper"), 0o700))
	for n := range loopDevices {
		name := fmt.Sprint("loop", n)
		must(t, os.MkdirAll(m.path("devices", name, "holders"), 0o700))
		must(t, os.WriteFile(m.path("devices", name, "dev"), fmt.Appendf(nil, "7:%d\n", n), 0o600))
		must(t, os.Symlink("/sys/block/"+name+"/loop", m.path("devices", name, "loop")))
		must(t, os.Symlink("../../devices/"+name, m.path("dev/block", fmt.Sprint("7:", n))))
	}
	t.Cleanup(func() {
		for _, name := range m.names() {
			if loop := m.loop(name); backingFile("/dev/"+loop) != "" {
				_ = clearLoop(loop) // it goes with its last mount
			}
		}
	})
	return m
}

func (m *mapper) path(parts ...string) string { return filepath.Join(m.sys, filepath.Join(parts...)) }

// names are the names of the mappings.
func (m *mapper) names() []string {
	files, _ := filepath.Glob(m.path("class/block/dm-*/dm/name"))
	var names []string
	for _, file := range files {
		text, _ := os.ReadFile(file)
		names = append(names, string(text))
	}
	return names
}

// loop is the loop device of a mapping; empty where there is none of that name.
func (m *mapper) loop(name string) string {
	files, _ := filepath.Glob(m.path("devices/*/dm/name"))
	for _, file := range files {
		if text, _ := os.ReadFile(file); string(text) == name {
			return filepath.Base(filepath.Dir(filepath.Dir(file)))
		}
	}
	return ""
}

// add makes a loop device a mapping; without a disk it is one whose table is not in use yet.
func (m *mapper) add(loop, name, below string) {
	dir := m.path("devices", loop)
	err := errors.Join(os.MkdirAll(dir+"/dm", 0o700), os.MkdirAll(dir+"/slaves", 0o700),
		os.WriteFile(dir+"/dm/uuid", []byte("CRYPT-LUKS2-0123-"+name), 0o600), os.WriteFile(dir+"/dm/name", []byte(name), 0o600),
		os.Symlink("../../devices/"+loop, m.path("class/block/dm-"+loop)))
	if below != "" {
		err = errors.Join(err, os.Symlink("../../"+below, dir+"/slaves/"+below), os.Symlink("../../"+loop, m.path("devices", below, "holders", loop)))
	}
	if err != nil {
		m.t.Error(err)
	}
}

func (m *mapper) remove(loop string) {
	dir := m.path("devices", loop)
	below, _ := filepath.Glob(dir + "/slaves/*")
	err := errors.Join(os.Remove(m.path("class/block/dm-"+loop)), os.RemoveAll(dir+"/dm"), os.RemoveAll(dir+"/slaves"))
	for _, disk := range below {
		err = errors.Join(err, os.Remove(m.path("devices", filepath.Base(disk), "holders", loop)))
	}
	if err != nil {
		m.t.Error(err)
	}
}

// rename gives a mapping the name that another driver would have given it.
func (m *mapper) rename(from, to string) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.path("devices", m.loop(from), "dm/name"), []byte(to), 0o600))
}

// hold makes a program wait before it runs.
func (m *mapper) hold(program string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holdOn = program
}

// fail makes the next closing or removal find its mapping in use.
func (m *mapper) fail(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = append(m.fails, what)
}

// count says how often a program ran with a verb.
func (m *mapper) count(program string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, ran := range m.ran {
		if strings.HasPrefix(ran, program) {
			n++
		}
	}
	return n
}

// Run runs real programs, but for what needs device-mapper.
func (m *mapper) Run(ctx context.Context, c host.Command) (host.Output, error) {
	what := c.Name + " " + c.Args[0]
	m.mu.Lock()
	m.ran = append(m.ran, what)
	held := m.holdOn != "" && strings.HasPrefix(what, m.holdOn)
	i := slices.Index(m.fails, what)
	if i >= 0 {
		m.fails = slices.Delete(m.fails, i, i+1)
	}
	m.mu.Unlock()
	if held {
		m.held <- struct{}{}
		<-m.letGo
	}
	name := c.Args[len(c.Args)-1]
	switch what {
	case "cryptsetup luksFormat":
		c.Args = slices.Clone(c.Args)
		for from, to := range map[string][]string{"argon2id": {"pbkdf2"}, "--pbkdf-memory": nil, "65536": nil, "--iter-time": {"--pbkdf-force-iterations"}} {
			at := slices.Index(c.Args, from)
			c.Args = slices.Replace(c.Args, at, at+1, to...)
		}
	case "cryptsetup open":
		return m.open(ctx, c, name)
	case "cryptsetup resize":
		return m.resize(ctx, c, name)
	case "cryptsetup close":
		return m.close(ctx, name, i >= 0), nil
	case "dmsetup remove":
		return m.dmsetupRemove(name, i >= 0), nil
	}
	return host.Programs{}.Run(ctx, c)
}

// tryKey asks the real program whether a key opens the header of a disk.
func (m *mapper) tryKey(ctx context.Context, c host.Command, disk string) (host.Output, error) {
	return host.Programs{}.Run(ctx, host.Command{
		Name: c.Name, Args: []string{"open", "--test-passphrase", "--type", "luks2", "--key-file", "-", disk}, Stdin: c.Stdin,
	})
}

func (m *mapper) open(ctx context.Context, c host.Command, name string) (host.Output, error) {
	disk := c.Files[0].Name()
	if out, err := m.tryKey(ctx, c, disk); err != nil || out.ExitCode != 0 {
		return out, err
	}
	if m.loop(name) != "" || m.empty == name {
		return host.Output{ExitCode: 5, Stderr: []byte("Device already exists")}, nil
	}
	args := []string{"--find", "--show", "--offset", fmt.Sprint(16 * mib)}
	if slices.Contains(c.Args, "--readonly") {
		args = append(args, "--read-only")
	}
	out, err := host.Programs{}.Run(ctx, host.Command{Name: "losetup", Args: append(args, disk)})
	if err == nil && out.ExitCode == 0 {
		m.add(filepath.Base(strings.TrimSpace(string(out.Stdout))), name, filepath.Base(disk))
	}
	return out, err
}

func (m *mapper) resize(ctx context.Context, c host.Command, name string) (host.Output, error) {
	loop := m.loop(name)
	if out, err := m.tryKey(ctx, c, backingFile("/dev/"+loop)); err != nil || out.ExitCode != 0 {
		return out, err
	}
	return host.Programs{}.Run(ctx, host.Command{Name: "losetup", Args: []string{"--set-capacity", "/dev/" + loop}})
}

// removal is how often libdevmapper tries to remove a mapping that is in use: a process that was just forked holds copies of descriptors
// and of mounts.
var removal = wait.Every(200*time.Millisecond, 25)

// close ends with the codes of cryptsetup.
func (m *mapper) close(ctx context.Context, name string, busy bool) host.Output {
	loop := m.loop(name)
	if loop == "" || backingFile("/dev/"+loop) == "" {
		return host.Output{ExitCode: 4, Stderr: []byte("not active")}
	}
	inUse := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	err := removal.Retry(ctx, inUse, func() error {
		f, err := os.OpenFile("/dev/"+loop, os.O_RDONLY|unix.O_EXCL, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	})
	if err != nil || busy {
		return host.Output{ExitCode: 5, Stderr: []byte("still in use")}
	}
	if err := clearLoop(loop); err != nil {
		m.t.Error(err)
	}
	m.remove(loop)
	return host.Output{}
}

// dmsetupRemove removes what has no disk.
func (m *mapper) dmsetupRemove(name string, fails bool) host.Output {
	loop := m.loop(name)
	switch {
	case fails, loop == "" && m.empty != name, loop != "" && backingFile("/dev/"+loop) != "":
		return host.Output{ExitCode: 1}
	case loop == "":
		m.empty = ""
	default:
		m.remove(loop)
	}
	return host.Output{}
}

func clearLoop(loop string) error {
	f, err := os.OpenFile("/dev/"+loop, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0), f.Close())
}

// encrypted is an encrypted volume of a machine.
type encrypted struct {
	*volume
	mapper *mapper
	key    string
}

func newEncrypted(t *testing.T, fs string, size int64) *encrypted {
	t.Helper()
	m := newMapper(t)
	machine := newMachine(t, machineConfig{runner: m, sysDir: m.sys, records: device.NewRecords(t.TempDir())})
	v := &encrypted{machine.newVolume(fs, size), m, luksKey}
	v.context[names.Driver+"/luks"] = "true"
	return v
}

func (v *encrypted) stage(ctx context.Context) error {
	_, err := v.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability, VolumeContext: v.context,
		Secrets: map[string]string{"luksKey": v.key},
	})
	return err
}

func (v *encrypted) grow(ctx context.Context, size int64) error {
	_, err := v.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, VolumeCapability: v.capability,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, Secrets: map[string]string{"luksKey": v.key},
	})
	return err
}

// gone proves, beyond what that of a volume does, that no mapping is left.
func (v *encrypted) gone() {
	v.t.Helper()
	v.volume.gone()
	if left := v.mapper.names(); len(left) > 0 {
		v.t.Errorf("still open after unstage: %v", left)
	}
}
