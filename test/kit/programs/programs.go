// Package programs starts the two real programs in a folder, as their pods would, and plays the part of
// the sidecars and the kubelet over their CSI sockets. The demo, the end-to-end tests and the benchmarks
// are written with it. What differs from cloud to cloud is behind Cloud; what the sidecars do differently
// they learn from what the controller states.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

// Options says which programs to start and where.
type Options struct {
	// Bin is the folder with cloudblock-controller and cloudblock-node.
	Bin string
	// Dir is a folder of the caller's: sockets, logs, the kubelet's folder and, unless Pool is set,
	// the disk of the pool live below it. Clean takes it all away.
	Dir string
	// Cloud is where the volumes are; nil means `local`, in Pool.
	Cloud Cloud
	// Pool is where the filesystem of the pool of `local` is mounted; empty means a new xfs.
	Pool string
	// NodePath, if set, is the PATH of the node program, so that a test can put wrappers there.
	NodePath string
	// Flags are added to the command line of both programs.
	Flags []string
}

// Pair is a controller and a node program, running, with clients of their sockets.
type Pair struct {
	Controller, Node *Program

	opts   Options
	states states
	node   *csi.NodeGetInfoResponse
	beside []*Pair
}

// Program is one running program.
type Program struct {
	// Conn is a connection to the program's socket. It survives a restart of the program.
	Conn *grpc.ClientConn

	name, socket, logFile string
	args, env             []string
	cmd                   *exec.Cmd
	exited                chan struct{}
}

// poolSize is the size of the pool that Start makes where Options.Pool is empty: a sparse file, larger than what any test writes.
const poolSize = 16 << 30

// freshLoops runs once per process: tests of one process share its loop devices.
var freshLoops = sync.OnceValue(loops.Fresh)

// Start starts both programs and returns when they answer Probe with ready. They find loop devices that have never
// served, as on a new machine.
func Start(ctx context.Context, opts Options) (*Pair, error) {
	if err := freshLoops(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	if opts.Cloud == nil && opts.Pool == "" {
		var err error
		if opts.Pool, err = Disk(ctx, filepath.Join(opts.Dir, "pool"), "xfs", poolSize); err != nil {
			return nil, err
		}
	}
	if opts.Cloud == nil {
		opts.Cloud = local{pool: opts.Pool}
	}
	flags, err := opts.Cloud.Controller(opts.Dir)
	if err != nil {
		return nil, err
	}
	pair := &Pair{opts: opts}
	if pair.Controller, err = opts.start(ctx, "controller", flags, nil); err != nil {
		return nil, err
	}
	err = pair.startNode(ctx)
	if err == nil {
		pair.states, err = pair.Controller.states(ctx)
	}
	if err != nil {
		pair.Stop()
		return nil, err
	}
	return pair, nil
}

// StartController starts the controller alone, for calls that need no machine but only its name. Stop of
// the pair ends it.
func StartController(ctx context.Context, opts Options) (*Pair, error) {
	if opts.Cloud == nil {
		return nil, errors.New("a controller alone needs a cloud that is not on this machine")
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	flags, err := opts.Cloud.Controller(opts.Dir)
	if err != nil {
		return nil, err
	}
	controller, err := opts.start(ctx, "controller", flags, nil)
	if err != nil {
		return nil, err
	}
	return &Pair{Controller: controller, opts: opts}, nil
}

// Beside starts the node program of another machine and returns it together with the same controller.
// Stop of the first pair ends it too.
func (p *Pair) Beside(ctx context.Context) (*Pair, error) {
	other := &Pair{Controller: p.Controller, opts: p.opts, states: p.states}
	other.opts.Dir = filepath.Join(p.opts.Dir, fmt.Sprint("machine-", len(p.beside)+2))
	if err := other.startNode(ctx); err != nil {
		return nil, err
	}
	p.beside = append(p.beside, other)
	return other, nil
}

// startNode starts the node program on a machine of its own, and asks it what it tells the kubelet when
// that registers it.
func (p *Pair) startNode(ctx context.Context) error {
	if err := os.MkdirAll(p.opts.kubeletDir(), 0o700); err != nil {
		return err
	}
	flags, err := p.opts.Cloud.Machine(p.opts.Dir)
	if err != nil {
		return err
	}
	var env []string
	if p.opts.NodePath != "" {
		env = []string{"PATH=" + p.opts.NodePath}
	}
	if p.Node, err = p.opts.start(ctx, "node", append(flags, "--kubelet-dir="+p.opts.kubeletDir()), env); err != nil {
		return err
	}
	p.node, err = csi.NewNodeClient(p.Node.Conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	return err
}

func (o Options) kubeletDir() string { return filepath.Join(o.Dir, "kubelet") }

// start starts one of the programs.
func (o Options) start(ctx context.Context, name string, flags, env []string) (*Program, error) {
	p := &Program{
		name: name, socket: filepath.Join(o.Dir, name+".sock"), logFile: filepath.Join(o.Dir, name+".log"),
		env: append(os.Environ(), env...),
	}
	p.args = slices.Concat([]string{
		filepath.Join(o.Bin, "cloudblock-"+name), "--cloud=" + o.Cloud.Name(), "--endpoint=unix://" + p.socket, "--log-level=debug",
	}, flags, o.Flags)
	conn, err := grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	p.Conn = conn
	if err := p.Start(ctx); err != nil {
		p.Stop()
		return nil, errors.Join(err, conn.Close())
	}
	return p, nil
}

// Start starts the program and returns when it answers Probe with ready. The context bounds the
// start, not the life of the program.
func (p *Program) Start(ctx context.Context) error {
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	// A process group of its own, so that Ctrl-C at the terminal does not reach the programs before
	// the caller had a chance to unmount through them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) { _ = cmd.Wait(); close(exited) }(p.exited)

	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		p.Conn.ResetConnectBackoff()
		answer, err := csi.NewIdentityClient(p.Conn).Probe(ctx, &csi.ProbeRequest{})
		if err == nil && (answer.GetReady() == nil || answer.GetReady().GetValue()) {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended at once (%s):\n%s", p.name, cmd.ProcessState, p.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, errors.Join(ctx.Err(), err), p.LogTail())
		case <-tick.C:
		}
	}
}

// Kill ends the program with SIGKILL and returns when it is gone.
func (p *Program) Kill() { p.end(syscall.SIGKILL) }

// Stop ends the program with SIGTERM and, after a grace period, with SIGKILL.
func (p *Program) Stop() { p.end(syscall.SIGTERM) }

func (p *Program) end(signal syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.exited:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	p.cmd = nil
}

// PID returns the process id, or 0 when the program does not run.
func (p *Program) PID() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Args returns the program's command line.
func (p *Program) Args() []string { return slices.Clone(p.args) }

// Log returns everything that the program and those before it in the same place logged.
func (p *Program) Log() (string, error) {
	log, err := os.ReadFile(p.logFile)
	return string(log), err
}

// Socket returns the path of the program's CSI socket.
func (p *Program) Socket() string { return p.socket }

// LogTail returns the last lines that the program logged.
func (p *Program) LogTail() string {
	f, err := os.Open(p.logFile)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 4096
	if end, err := f.Seek(0, io.SeekEnd); err == nil && end > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	} else {
		_, _ = f.Seek(0, io.SeekStart)
	}
	tail, _ := io.ReadAll(f)
	return string(tail)
}

// Stop ends both programs, and the node programs beside. Mounts and devices stay as they are, as on a
// real node; Clean removes them.
func (p *Pair) Stop() {
	for _, other := range p.beside {
		other.Node.close()
	}
	p.Node.close()
	p.Controller.close()
}

// close ends the program for good. There is none where the start of a pair failed.
func (p *Program) close() {
	if p == nil {
		return
	}
	p.Stop()
	_ = p.Conn.Close()
}

// Pool returns where the filesystem of the pool of `local` is mounted.
func (p *Pair) Pool() string { return p.opts.Pool }

// Dir returns the folder of the pair's sockets, logs and mounts.
func (p *Pair) Dir() string { return p.opts.Dir }

// Attaches reports whether the controller states that it attaches volumes.
func (p *Pair) Attaches() bool { return p.states.attaches }

// Snapshots reports whether the controller states that it makes snapshots.
func (p *Pair) Snapshots() bool { return p.states.snapshots }

// MaxVolumes returns how many volumes the node program says that its machine can have.
func (p *Pair) MaxVolumes() int64 { return p.node.GetMaxVolumesPerNode() }

// NodeID returns the name under which the node program registered.
func (p *Pair) NodeID() string { return p.node.GetNodeId() }
