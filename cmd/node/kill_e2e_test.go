//go:build e2e

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// TestIdleNodeProgramIsSmall checks the limits of the design: at most 16 MiB stripped, at most 20 MiB of memory when idle.
func TestIdleNodeProgramIsSmall(t *testing.T) {
	dir := tempDir(t)
	p := &program{t: t, dir: dir, binary: build(t, dir)}
	info, err := os.Stat(p.binary)
	must(t, err)
	if got, most := info.Size(), int64(16<<20); got > most {
		t.Errorf("the program has %d bytes, want at most %d", got, most)
	}
	client, kill := p.start()
	defer kill()
	_, err = client.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	must(t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(t, err)
	var rss int
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(line, &rss); err != nil {
		t.Fatal(err)
	}
	t.Logf("binary %.1f MiB, idle RSS %.1f MiB", float64(info.Size())/(1<<20), float64(rss)/1024)
	if rss > 20<<10 {
		t.Errorf("the idle program uses %d kB, want at most %d", rss, 20<<10)
	}
}

// program is the real program, built and started as by an operator.
type program struct {
	t           *testing.T
	dir, binary string
	name        string // of the socket; empty: csi
	kubelet     string // --kubelet-dir; empty: dir
	path        string // PATH; empty: this process's
	mounts      string // shell commands that prepare a separate mount namespace; empty: this process's
	cmd         *exec.Cmd
	http        string // the address of its metrics
	log         drivertest.Log
}

// start starts the program and returns a client and a function that kills the program with SIGKILL.
func (p *program) start() (csi.NodeClient, func()) {
	p.t.Helper()
	conn, kill := p.launch()
	p.ready(conn)
	return csi.NewNodeClient(conn), kill
}

func (p *program) socket() string { return filepath.Join(p.dir, cmp.Or(p.name, "csi")+".sock") }

// launch starts the program and returns a connection that waits for it.
func (p *program) launch() (*grpc.ClientConn, func()) {
	p.t.Helper()
	if p.http == "" {
		p.http = drivertest.FreeAddress(p.t)
	}
	args := []string{p.binary, "--cloud=local", "--local-pool=" + diskOf(p.t, p.dir), "--node-id=node-a", "--kubelet-dir=" + cmp.Or(p.kubelet, p.dir),
		"--endpoint=unix://" + p.socket(), "--http-endpoint=" + p.http, "--log-level=debug"}
	cmd := exec.Command(args[0], args[1:]...)
	if p.mounts != "" {
		cmd = mounts.Separate(p.t.Context(), p.dir, append([]string{"sh", "-ec", p.mounts + "\nexec \"$0\" \"$@\""}, args...)...)
	}
	cmd.Stderr = &p.log
	if p.path != "" {
		cmd.Env = append(os.Environ(), "PATH="+p.path)
	}
	must(p.t, cmd.Start())
	p.cmd = cmd
	conn, err := grpc.NewClient("unix://"+p.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(p.t, err)
	kill := func() {
		conn.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	p.t.Cleanup(kill)
	return conn, kill
}

// diskOf returns the mount point of the disk of the pool in a folder. tempDir unmounts it.
func diskOf(t *testing.T, dir string) string {
	t.Helper()
	image, mountpoint := filepath.Join(dir, "pool.img"), filepath.Join(dir, "pool")
	if err := os.Mkdir(mountpoint, 0o700); err == nil {
		must(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 2<<30)))
		command(t, "mkfs.xfs", "-q", image)
		command(t, "mount", "-o", "loop", image, mountpoint)
	}
	return mountpoint
}

// openPool opens the pool in a folder, as the controller does.
func openPool(t *testing.T, dir string) *files.Pool {
	t.Helper()
	store, err := files.Open(t.Context(), pool.Config{Dir: diskOf(t, dir), Node: "node-a"})
	must(t, err)
	return store
}

// ready waits until the program answers.
func (p *program) ready(conn *grpc.ClientConn) {
	p.t.Helper()
	p.until("the program answers", func() bool {
		// The socket of a killed program refuses connections; wait for the new one.
		conn.ResetConnectBackoff()
		_, err := csi.NewIdentityClient(conn).Probe(p.t.Context(), &csi.ProbeRequest{})
		return err == nil
	})
}

// until waits for a condition.
func (p *program) until(what string, done func() bool) {
	p.t.Helper()
	waiting := drivertest.Waiting(p.t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-waiting.Done():
			p.t.Fatalf("waited in vain until %s:\n%s", what, p.log.String())
		}
	}
}

// build returns the stripped program: that of `make build` in CLOUDBLOCK_BIN, or a new one.
func build(t *testing.T, dir string) string {
	t.Helper()
	if bin := os.Getenv("CLOUDBLOCK_BIN"); bin != "" {
		return filepath.Join(bin, "cloudblock-node")
	}
	binary := filepath.Join(dir, "cloudblock-node")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// tempDir returns a folder whose mounts and loop devices are removed after the test.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-kill-")
	must(t, err)
	t.Cleanup(func() {
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Error(err)
		}
		for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(table)), "\n")) {
			if path := strings.Fields(line)[4]; strings.HasPrefix(path, dir+"/") {
				if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
					t.Errorf("unmount %s: %v", path, err)
				}
			}
		}
		for _, loop := range loops.Below(dir) {
			t.Errorf("%s is left over: %v", loop, loops.Detach(loop))
		}
		os.RemoveAll(dir)
	})
	return dir
}
