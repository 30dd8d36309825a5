// Package programs starts the two real programs in a folder, as a node's pod would, and plays the
// part of the sidecars and the kubelet over their CSI sockets. The demo, the end-to-end tests and the
// benchmarks are written with it.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Options says which programs to start and where.
type Options struct {
	// Bin is the folder with cloudblock-controller and cloudblock-node.
	Bin string
	// Dir is a folder of the caller's: sockets, logs, the kubelet's folder and, unless Pool is set,
	// the pool live below it.
	Dir string
	// Pool is the pool folder; empty means Dir/pool.
	Pool string
	// NodeID is the name of the node; empty means "node-a".
	NodeID string
	// NodePath, if set, is the PATH of the node program, so that a test can put wrappers there.
	NodePath string
	// Flags are added to the command line of both programs.
	Flags []string
}

// Pair is a controller and a node program, running, with clients of their sockets.
type Pair struct {
	Controller, Node *Program
	opts             Options
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

// Start starts both programs on `local` and returns when they answer Probe with ready.
func Start(ctx context.Context, opts Options) (*Pair, error) {
	if opts.NodeID == "" {
		opts.NodeID = "node-a"
	}
	if opts.Pool == "" {
		opts.Pool = filepath.Join(opts.Dir, "pool")
	}
	for _, dir := range []string{opts.Pool, opts.kubeletDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	pair := &Pair{opts: opts}
	pair.Controller = pair.program("controller", nil)
	var nodeEnv []string
	if opts.NodePath != "" {
		nodeEnv = []string{"PATH=" + opts.NodePath}
	}
	pair.Node = pair.program("node", nodeEnv)
	for _, p := range []*Program{pair.Controller, pair.Node} {
		conn, err := grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		p.Conn = conn
		if err := p.Start(ctx); err != nil {
			pair.Stop()
			return nil, err
		}
	}
	return pair, nil
}

func (o Options) kubeletDir() string { return filepath.Join(o.Dir, "kubelet") }

func (p *Pair) program(name string, env []string) *Program {
	socket := filepath.Join(p.opts.Dir, name+".sock")
	args := []string{
		filepath.Join(p.opts.Bin, "cloudblock-"+name),
		"--cloud=local", "--local-pool=" + p.opts.Pool, "--node-id=" + p.opts.NodeID,
		"--endpoint=unix://" + socket, "--log-level=debug",
	}
	return &Program{
		name: name, socket: socket, logFile: filepath.Join(p.opts.Dir, name+".log"),
		args: append(args, p.opts.Flags...), env: append(os.Environ(), env...),
	}
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

// Stop ends both programs. Mounts and loop devices stay as they are, as on a real node; Clean
// removes them.
func (p *Pair) Stop() {
	for _, program := range []*Program{p.Node, p.Controller} {
		if program == nil {
			continue
		}
		program.Stop()
		if program.Conn != nil {
			_ = program.Conn.Close()
		}
	}
}

// Pool returns the pool folder.
func (p *Pair) Pool() string { return p.opts.Pool }
