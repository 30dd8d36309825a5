package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// Programs runs the real program, and kills it with SIGKILL.
type Programs struct {
	world    *world.World
	bin, dir string
	// died is called after the end of a life, unless all end; fell where nobody killed it.
	died func()
	fell func(number int, err error)

	ended sync.WaitGroup
	mu    sync.Mutex
	lives map[int]*process
	// gone has, for each controller, what is closed when its last process has ended.
	gone map[int]chan struct{}
	over bool
}

// process is one life of a controller.
type process struct {
	cmd    *exec.Cmd
	conn   *grpc.ClientConn
	api    *http.Server
	gone   chan struct{}
	mu     sync.Mutex
	killed bool
}

// NewPrograms makes it without controllers in this world: from the program in the folder bin, with the sockets and logs in dir.
// Died is called after the end of a life, unless all end, and fell for a process that ended without being killed.
func NewPrograms(w *world.World, bin, dir string, died func(), fell func(number int, err error)) *Programs {
	return &Programs{world: w, bin: bin, dir: dir, lives: map[int]*process{}, gone: map[int]chan struct{}{}, died: died, fell: fell}
}

// readyTimeout is how long a program may take to answer its first call, on a busy machine.
const readyTimeout = 30 * time.Second

// Start runs the program as this controller, once its last process has ended, and returns when it answers calls.
func (f *Programs) Start(number int) error {
	l := &process{}
	f.mu.Lock()
	before, mine := f.gone[number], make(chan struct{})
	f.gone[number] = mine
	f.mu.Unlock()
	if before != nil {
		<-before // on a busy machine even a killed process serves its socket for a while
	}
	l.gone = mine
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.api = &http.Server{
		Handler:           f.world.Serve(world.Program{Number: number, Kill: func() { f.end(number, l) }}),
		Protocols:         world.PlainProtocols(),
		ReadHeaderTimeout: time.Minute,
	}
	f.ended.Go(func() { _ = l.api.Serve(listener) }) // it ends with ErrServerClosed
	if err := f.launch(number, l, "http://"+listener.Addr().String()); err != nil {
		_ = l.api.Close()
		return fmt.Errorf("start controller %d: %w", number, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lives[number] = l
	return nil
}

// launch starts the program and returns when it answers.
func (f *Programs) launch(number int, l *process, api string) error {
	flags, err := f.world.Flags(api, f.dir)
	if err != nil {
		return err
	}
	socket := filepath.Join(f.dir, fmt.Sprintf("controller-%d.sock", number))
	log, err := os.OpenFile(filepath.Join(f.dir, fmt.Sprintf("controller-%d.log", number)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	l.cmd = exec.Command(filepath.Join(f.bin, "cloudblock-controller"), append(flags, "--endpoint=unix://"+socket)...)
	l.cmd.Stdout, l.cmd.Stderr = log, log
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond}
	l.conn, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second}))
	if err != nil {
		return err
	}
	if err := l.cmd.Start(); err != nil {
		return errors.Join(err, l.conn.Close())
	}
	f.ended.Go(func() {
		err := l.cmd.Wait()
		close(l.gone)
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.killed {
			f.fell(number, err)
		}
	})
	ready, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if _, err := csi.NewIdentityClient(l.conn).Probe(ready, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		f.kill9(l)
		return err
	}
	return nil
}

func (f *Programs) kill9(l *process) {
	l.mu.Lock()
	l.killed = true
	l.mu.Unlock()
	_ = l.cmd.Process.Kill()
	_ = l.conn.Close()
	_ = l.api.Close()
}

func (f *Programs) end(number int, l *process) {
	f.mu.Lock()
	current, over := f.lives[number] == l, f.over
	if current {
		delete(f.lives, number)
	}
	f.mu.Unlock()
	if !current {
		return
	}
	f.kill9(l)
	if !over {
		f.died()
	}
}

// Kill ends the process of a controller at once, if it has one.
func (f *Programs) Kill(number int) {
	f.mu.Lock()
	l := f.lives[number]
	f.mu.Unlock()
	if l != nil {
		f.end(number, l)
	}
}

// Client returns what calls the controller, nil while it is down.
func (f *Programs) Client(number int) csi.ControllerClient {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lives[number]; l != nil {
		return csi.NewControllerClient(l.conn)
	}
	return nil
}

// Sweep leaves it to the program when it sweeps.
func (f *Programs) Sweep(context.Context, int) error { return nil }

// Close kills all processes and waits until they have ended.
func (f *Programs) Close() {
	f.mu.Lock()
	f.over = true
	var all []int
	for number := range f.lives {
		all = append(all, number)
	}
	f.mu.Unlock()
	for _, number := range all {
		f.Kill(number)
	}
	f.ended.Wait()
}
