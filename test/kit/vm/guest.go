// Package vm runs a virtual machine that stands for a machine of a cloud: disks with the names of the clouds are
// plugged in and out of a running kernel, and the node program runs there. It needs QEMU, which emulates the
// processor, and an image that image.sh makes.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Config says what a guest is made of.
type Config struct {
	// Image is the folder that image.sh prints.
	Image string
	// Init and Node are the guest's first process and the node program.
	Init, Node string
	// Dir is for the guest's own files: its console, its control socket.
	Dir string
	// Kernel are more arguments of the kernel.
	Kernel string
}

// Guest is a running virtual machine. Its methods are for one goroutine at a time, but for Run.
type Guest struct {
	dir               string
	qmp               *qmp
	process           *os.Process
	ended             chan struct{} // closed when QEMU has ended
	commands, sockets string        // addresses on the host

	bootID  string // of the kernel that runs
	plugs   int
	plugged map[*Disk]string
}

// Start boots a guest and waits until it takes commands.
func Start(ctx context.Context, cfg Config) (*Guest, error) {
	g := &Guest{dir: cfg.Dir, ended: make(chan struct{}), plugged: map[*Disk]string{}}
	archive := filepath.Join(cfg.Dir, "initrd")
	if err := makeArchive(archive, cfg); err != nil {
		return nil, fmt.Errorf("make the archive that the guest starts from: %w", err)
	}
	var err error
	if g.commands, err = freeAddress(); err != nil {
		return nil, err
	}
	if g.sockets, err = freeAddress(); err != nil {
		return nil, err
	}
	if err := g.startQEMU(cfg, archive); err != nil {
		return nil, err
	}
	if err := g.boot(ctx); err != nil {
		g.Kill()
		said, _ := os.ReadFile(g.file("qemu"))
		return nil, fmt.Errorf("boot a virtual machine: %w\n%s%s", err, said, g.Console())
	}
	return g, nil
}

func (g *Guest) file(name string) string { return filepath.Join(g.dir, name) }

func makeArchive(path string, cfg Config) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeArchive(f, program{"init", cfg.Init}, program{"cloudblock-node", cfg.Node}), f.Close())
}

// accelerator returns how the guest's instructions run: in emulation, or as CLOUDBLOCK_ACCEL says, such as kvm. That there is a
// /dev/kvm says too little: inside another virtual machine QEMU may end there, or the guest never boot.
func accelerator() string { return cmp.Or(os.Getenv("CLOUDBLOCK_ACCEL"), "tcg,tb-size=128") }

// startQEMU starts QEMU so that it ends with this process.
func (g *Guest) startQEMU(cfg Config, archive string) error {
	said, err := os.Create(g.file("qemu"))
	if err != nil {
		return err
	}
	cmd := exec.Command("qemu-system-x86_64",
		"-accel", accelerator(), "-cpu", "max", "-M", "pc", "-m", "768", "-smp", "1",
		"-smbios", "type=1,manufacturer=DigitalOcean,serial="+MachineID,
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", filepath.Join(cfg.Image, "vmlinuz"), "-initrd", archive,
		// Where the host's storage stalls for longer than the driver's 30 s, it would throw the root disk out.
		"-append", "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off nvme_core.io_timeout=4294967 "+cfg.Kernel,
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file="+filepath.Join(cfg.Image, "root.img"),
		"-device", "nvme,drive=root,serial=root",
		"-device", "virtio-scsi-pci,id=scsi0",
		"-netdev", "user,id=n0,restrict=on,hostfwd=tcp:"+g.commands+"-:7001,hostfwd=tcp:"+g.sockets+"-:7002",
		"-device", "virtio-net-pci,netdev=n0,romfile=", "-device", "virtio-rng-pci",
		"-chardev", "file,id=console,path="+g.file("console"), "-serial", "chardev:console",
		"-qmp", "unix:"+g.file("qmp")+",server=on,wait=off")
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread that started QEMU ends
		defer close(g.ended)
		defer func() { _ = said.Close() }()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // Kill is its usual end
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start QEMU (on Debian: apt-get install qemu-system-x86): %w", err)
	}
	g.process = cmd.Process
	return nil
}

func (g *Guest) boot(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-g.ended:
			cancel(errors.New("QEMU has ended"))
		case <-ctx.Done():
		}
	}()
	var err error
	if g.qmp, err = openQMP(ctx, g.file("qmp")); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return errors.Join(g.waitReady(ctx), context.Cause(ctx))
}

// tryLimit bounds one request to a guest that may still be booting: its network loses what comes too early.
const tryLimit = 3 * time.Second

// waitReady waits until the guest takes commands in another boot than before.
func (g *Guest) waitReady(ctx context.Context) error {
	return poll(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, tryLimit)
		defer cancel()
		id, err := g.call(ctx, http.MethodGet, "boot", "")
		switch {
		case err != nil:
			return err
		case string(id) == g.bootID:
			return errors.New("the guest has not been reset yet")
		}
		g.bootID = string(id)
		return nil
	})
}

// Reset reboots the guest at once, as its reset button does. What its kernel had not written is lost; its root
// disk and the plugged disks stay.
func (g *Guest) Reset(ctx context.Context) error {
	if err := g.qmp.execute(ctx, "system_reset", nil); err != nil {
		return err
	}
	return g.waitReady(ctx)
}

// Kill is a power cut. The guest is gone for good; its disks keep what QEMU had written.
func (g *Guest) Kill() {
	_ = g.process.Kill() // it may have ended
	<-g.ended
	if g.qmp != nil {
		_ = g.qmp.conn.Close()
	}
}

// Running reports whether the guest has neither been killed nor ended by itself.
func (g *Guest) Running() bool {
	select {
	case <-g.ended:
		return false
	default:
		return true
	}
}

// Console returns the end of what the kernel printed, which needs nothing of the guest.
func (g *Guest) Console() string {
	console, _ := os.ReadFile(g.file("console"))
	return string(console[max(0, len(console)-4000):])
}

// ExitError is a script that ended with another code than 0.
type ExitError struct {
	Code   int
	Output string
}

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d: %s", e.Code, e.Output) }

// Run runs a script with bash in the guest, as root, and returns what it printed.
func (g *Guest) Run(ctx context.Context, script string) (string, error) {
	body, err := g.call(ctx, http.MethodPost, "run", script)
	if err != nil {
		return "", fmt.Errorf("run in the guest: %w", err)
	}
	var answer struct {
		Output string `json:"output"`
		Code   int    `json:"code"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", err
	}
	if answer.Code != 0 {
		return answer.Output, &ExitError{Code: answer.Code, Output: answer.Output}
	}
	return answer.Output, nil
}

func (g *Guest) call(ctx context.Context, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.commands+"/"+path, bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return io.ReadAll(answer.Body)
}

// client opens a connection for each call: a guest that is reset forgets the open ones.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Dial connects to a unix socket of the guest.
func (g *Guest) Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.sockets)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, path+"\n"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// freeAddress returns an address of this host that no program listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
