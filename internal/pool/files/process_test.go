package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/tracer"
)

// The test program runs itself again as another process of the driver.
const (
	childEnv = "POOL_TEST_CHILD" // what to do: many, read, or an operation that is cut
	dirEnv   = "POOL_TEST_DIR"
	idEnv    = "POOL_TEST_ID"
	tableEnv = "POOL_TEST_MOUNTS" // the mount table
	sizeEnv  = "POOL_TEST_SIZE"   // of each of many volumes on a real disk; unset: a small one on a pretended disk
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(what string) error {
	ctx := context.Background()
	if strings.HasPrefix(what, cutPrefix) {
		if err := tracer.Narrow(); err != nil {
			return err
		}
	}
	p, err := Open(ctx, pool.Config{Dir: os.Getenv(dirEnv), Node: "n1", MountTable: os.Getenv(tableEnv)})
	if err != nil {
		return err
	}
	size := small
	if s := os.Getenv(sizeEnv); s == "" {
		p.disk.statfs = diskOf(volumesWithRoom)
	} else if size, err = strconv.ParseInt(s, 10, 64); err != nil {
		return err
	}
	id := pool.ID(os.Getenv(idEnv))
	if op, ok := strings.CutPrefix(what, cutPrefix); ok {
		return cutChild(ctx, p, op, strings.Split(string(id), ","))
	}
	if what == "read" {
		return p.ReadBlocks(ctx, pool.BlocksRequest{Target: id}, func(int64, []pool.Range) error {
			fmt.Print("reading")
			_, err := io.ReadAll(os.Stdin) // until it is killed
			return err
		})
	}
	made, err := createMany(ctx, p, 13, string(id), size)
	fmt.Println(made)
	return err
}

// createMany starts n concurrent creates and counts the successful ones. Exhausted is no error.
func createMany(ctx context.Context, p *Pool, n int, prefix string, size int64) (int32, error) {
	var wg sync.WaitGroup
	var made atomic.Int32
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, err := p.Create(ctx, pool.NewVolume{Name: fmt.Sprint(prefix, i), Size: size})
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, fault.Exhausted) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return made.Load(), errors.Join(errs...)
}

func command(t *testing.T, what, dir string, id pool.ID) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what, dirEnv+"="+dir, idEnv+"="+string(id), tableEnv+"="+configOf(t, dir).MountTable)
	cmd.Stderr = os.Stderr
	return cmd
}

const volumesWithRoom = 20

// L2: processes that share a pool do not promise the same space twice.
func TestFiftyCreatesInFourProcessesInRoomForTwenty(t *testing.T) {
	p := openPool(t, t.TempDir())
	createInFour(t, p)
	if free, err := p.Free(t.Context()); err != nil || free >= small {
		t.Errorf("Free = %d, %v, want less than another volume", free, err)
	}
}

// createInFour lets four processes, with these variables, create 52 volumes in a pool with room for 20. It returns those that are there.
func createInFour(t *testing.T, p *Pool, env ...string) []pool.Entry {
	t.Helper()
	var wg sync.WaitGroup
	var made atomic.Int32
	for i := range 4 {
		cmd := command(t, "many", p.dir, pool.ID("p"+strconv.Itoa(i)+"-"))
		cmd.Env = append(cmd.Env, env...)
		wg.Go(func() {
			out, err := cmd.Output()
			n, convErr := strconv.Atoi(strings.TrimSpace(string(out)))
			if err := errors.Join(err, convErr); err != nil {
				t.Error(err)
			}
			made.Add(int32(n))
		})
	}
	wg.Wait()
	entries, err := p.List(t.Context())
	must(t, err)
	if made := made.Load(); made != volumesWithRoom || len(entries) != volumesWithRoom {
		t.Errorf("%d creates succeeded and %d volumes are there, want %d", made, len(entries), volumesWithRoom)
	}
	return entries
}
