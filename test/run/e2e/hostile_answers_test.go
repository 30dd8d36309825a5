//go:build e2e

package e2e

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// shippedMemory is the limit of the controller's container in deploy/base.
const shippedMemory = 256 * mib

// P9: whatever the API, or what stands in its place, answers to ten calls at once, the controller stays within the
// memory that its manifest gives it.
func TestHostileAnswersKillNoController(t *testing.T) {
	for name, answer := range map[string]func(w io.Writer, key string){
		"many small items": func(w io.Writer, key string) { items(w, key, 1<<20) },
		"without an end":   func(w io.Writer, key string) { items(w, key, 1<<40) },
		"one long string": func(w io.Writer, key string) {
			_, _ = io.WriteString(w, `{"`+key+`":"`)
			_, _ = io.CopyN(w, endlessText{}, 64*mib)
		},
	} {
		for cloud, packed := range map[string]bool{"digitalocean": true, "linode": false} {
			t.Run(name+", "+cloud, func(t *testing.T) { hostileAnswers(t, cloud, packed, answer) })
		}
	}
}

type endlessText struct{}

func (endlessText) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// items writes a list until it has so many items or nobody reads any more.
func items(w io.Writer, key string, n int) {
	_, err := io.WriteString(w, `{"`+key+`":[`+strings.Repeat(`{"id":1},`, 8))
	many := strings.Repeat(`{"id":1},`, 1000)
	for i := 0; err == nil && i < n; i += 1000 {
		_, err = io.WriteString(w, many)
	}
	_, _ = io.WriteString(w, `{"id":1}]}`)
}

func hostileAnswers(t *testing.T, cloud string, packed bool, answer func(w io.Writer, key string)) {
	key := map[string]string{"digitalocean": "volumes", "linode": "data"}[cloud]
	var answers atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if !packed || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			answer(w, key)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		answer(z, key)
		_ = z.Close()
	}))
	defer api.Close()
	dir := folder(t)
	token := filepath.Join(dir, "token")
	noError(t, os.WriteFile(token, []byte("0123456789\n"), 0o600))
	group := memoryGroup(t, shippedMemory)
	socket := filepath.Join(dir, "csi.sock")
	region := map[string]string{"digitalocean": "--region=fra1", "linode": "--region=eu-central"}[cloud]
	cmd := exec.Command("sh", "-c", `echo $$ >"$0"; exec "$@"`, group.join, filepath.Join(binaries(t), "cloudblock-controller"),
		"--cloud="+cloud, "--endpoint=unix://"+socket, "--api-endpoint="+api.URL, "--credentials-file="+token, "--cluster-id=test", region)
	var log strings.Builder
	cmd.Stderr = &log
	noError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	defer stop()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	noError(t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("Probe = %v\n%s", err, log.String())
	}
	var calls sync.WaitGroup
	for i := range 10 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
			defer cancel()
			var err error
			if i%2 == 0 {
				_, err = csi.NewControllerClient(conn).ListVolumes(ctx, &csi.ListVolumesRequest{})
			} else {
				_, err = csi.NewControllerClient(conn).CreateVolume(ctx, &csi.CreateVolumeRequest{
					Name: "v" + strconv.Itoa(i), VolumeCapabilities: []*csi.VolumeCapability{programs.Claim{Filesystem: "ext4"}.Capability()},
				})
			}
			if err == nil {
				t.Error("a call succeeds")
			}
		})
	}
	calls.Wait()
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}); status.Code(err) != codes.OK {
		t.Errorf("after the answers Probe = %v\n%s", err, log.String()[max(0, log.Len()-2000):])
	}
	if answers.Load() == 0 {
		t.Error("nothing was asked of the API")
	}
	select {
	case err := <-ended:
		ended <- err
		t.Errorf("the controller has ended: %v", err)
	default:
	}
	stop()
	t.Logf("%d answers, at most %d MiB", answers.Load(), group.most(t)/mib)
}

// memory is a cgroup that limits memory.
type memory struct{ dir, join, peak string }

// memoryGroup makes a cgroup, in whichever version of cgroups this machine has, and removes it at the end.
func memoryGroup(t *testing.T, limit int64) memory {
	t.Helper()
	name := "cloudblock-e2e-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	g := memory{dir: filepath.Join("/sys/fs/cgroup/memory", name), peak: "memory.max_usage_in_bytes"}
	file := "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Dir(g.dir)); errors.Is(err, os.ErrNotExist) {
		g.dir, g.peak, file = filepath.Join("/sys/fs/cgroup", name), "memory.peak", "memory.max"
	}
	g.join = filepath.Join(g.dir, "cgroup.procs")
	err := os.Mkdir(g.dir, 0o755)
	if err == nil {
		t.Cleanup(func() { noError(t, os.Remove(g.dir)) })
		err = os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(limit, 10)), 0o644)
	}
	if err != nil {
		t.Fatalf("make a cgroup that limits memory: %v", err)
	}
	return g
}

// most is how much the group has used at once.
func (g memory) most(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	noError(t, err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	noError(t, err)
	return n
}
