package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/tracer"
)

// The test program runs itself again as another process of the driver.
const (
	childEnv = "POOL_TEST_CHILD" // what to do: create, grow, delete or many
	dirEnv   = "POOL_TEST_DIR"
	idEnv    = "POOL_TEST_ID"
	sizeEnv  = "POOL_TEST_SIZE"   // of each of many volumes on a real disk; unset: a small one on a pretended disk
	dieEnv   = "POOL_TEST_DIE_AT" // before which step to die; 0: never
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
	p, err := Open(ctx, Config{Dir: os.Getenv(dirEnv), Node: "n1"})
	if err != nil {
		return err
	}
	size := small
	if s := os.Getenv(sizeEnv); s == "" {
		p.disk.statfs = diskOf(volumesWithRoom)
	} else if size, err = strconv.ParseInt(s, 10, 64); err != nil {
		return err
	}
	dieAt, err := strconv.Atoi(os.Getenv(dieEnv))
	if err != nil {
		return err
	}
	steps := 0
	p.disk.before = func(string) {
		if steps++; steps == dieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal may take a moment, and the step must not happen
		}
	}
	id := ID(os.Getenv(idEnv))
	if op, ok := strings.CutPrefix(what, cutPrefix); ok {
		return cutChild(ctx, p, op, strings.Split(string(id), ","))
	}
	switch what {
	case "create":
		_, err = p.Create(ctx, NewVolume{Name: "a", Size: 2 * small})
	case "grow":
		_, err = p.Grow(ctx, id, 5*small)
	case "delete":
		err = p.Delete(ctx, id)
	case "many":
		var made int32
		made, err = createMany(ctx, p, 13, os.Getenv(idEnv), size)
		fmt.Println(made)
	}
	return err
}

// createMany starts n creates at once and counts those that were made. Exhausted is no error.
func createMany(ctx context.Context, p *Pool, n int, prefix string, size int64) (int32, error) {
	var wg sync.WaitGroup
	var made atomic.Int32
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, err := p.Create(ctx, NewVolume{Name: fmt.Sprint(prefix, i), Size: size})
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

func command(t *testing.T, what, dir string, id ID, dieAt int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what, dirEnv+"="+dir, idEnv+"="+string(id), dieEnv+"="+strconv.Itoa(dieAt))
	cmd.Stderr = os.Stderr
	return cmd
}

// runUntilKilled reports whether the process was killed at that step, and not done before.
func runUntilKilled(t *testing.T, what, dir string, id ID, dieAt int) bool {
	t.Helper()
	err := command(t, what, dir, id, dieAt).Run()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s: %v", what, err)
	}
	return true
}

const volumesWithRoom = 20

func TestFiftyCreatesAtOnceInRoomForTwenty(t *testing.T) {
	p := openPool(t, t.TempDir())
	made, err := createMany(t.Context(), p, 50, "v", small)
	must(t, err)
	checkFull(t, p, made)
}

func TestFiftyCreatesInFourProcessesInRoomForTwenty(t *testing.T) {
	dir := t.TempDir()
	p := openPool(t, dir)
	var wg sync.WaitGroup
	var made atomic.Int32
	for i := range 4 {
		cmd := command(t, "many", dir, ID("p"+strconv.Itoa(i)+"-"), 0)
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
	checkFull(t, p, made.Load())
}

func checkFull(t *testing.T, p *Pool, made int32) {
	t.Helper()
	entries, err := p.List(t.Context())
	must(t, err)
	if made != volumesWithRoom || len(entries) != volumesWithRoom {
		t.Errorf("%d creates succeeded and %d volumes are there, want %d", made, len(entries), volumesWithRoom)
	}
	if free, err := p.Free(t.Context()); err != nil || free >= small {
		t.Errorf("Free = %d, %v, want less than another volume", free, err)
	}
}

// killedAtEveryStep runs a change again and again, killed one step later each time, until it is not
// killed any more. After each kill check looks at the pool as the next process finds it.
func killedAtEveryStep(t *testing.T, what string, prepare func(t *testing.T, p *Pool) ID, check func(t *testing.T, p *Pool, id ID)) {
	for step := 1; ; step++ {
		if step > 100 {
			t.Fatalf("%s does not end after 100 steps", what)
		}
		dir := t.TempDir()
		p := openPool(t, dir)
		free, err := p.Free(t.Context())
		must(t, err)
		id := prepare(t, p)
		killed := runUntilKilled(t, what, dir, id, step)
		p = openPool(t, dir)
		check(t, p, id)
		entries, err := p.List(t.Context())
		must(t, err)
		for _, e := range entries {
			if e.Kind != Whole {
				t.Errorf("killed before step %d: left-over %+v", step, e)
			}
			must(t, p.Delete(t.Context(), e.ID))
		}
		if left := files(t, p); len(left) > 0 {
			t.Errorf("killed before step %d: the pool holds %q", step, left)
		}
		if now, err := p.Free(t.Context()); err != nil || now != free {
			t.Errorf("killed before step %d: Free = %d, %v, want %d as before", step, now, err, free)
		}
		if !killed {
			if step < 5 {
				t.Errorf("%s has only %d steps; are they announced?", what, step-1)
			}
			return
		}
	}
}

func TestCreateKilledAtEveryStep(t *testing.T) {
	killedAtEveryStep(t, "create", func(*testing.T, *Pool) ID { return "" }, func(t *testing.T, p *Pool, _ ID) {
		r, err := p.Create(t.Context(), NewVolume{Name: "a", Size: 2 * small})
		if err != nil && !errors.Is(err, fault.Conflict) {
			t.Fatalf("the same create again = %v", err)
		}
		e, err := p.FindByName(t.Context(), "a")
		if err != nil || e.Kind != Whole || e.Size != 2*small || e.Allocated < 2*small || (r.ID != "" && r.ID != e.ID) {
			t.Errorf("FindByName = %+v, %v", e, err)
		}
		if entries, err := p.List(t.Context()); err != nil || len(entries) != 1 {
			t.Errorf("List = %+v, %v, want one volume", entries, err)
		}
	})
}

func TestGrowKilledAtEveryStep(t *testing.T) {
	killedAtEveryStep(t, "grow", func(t *testing.T, p *Pool) ID {
		r := mustCreate(t, p, "a", small)
		must(t, p.Use(t.Context(), r.ID, func(f *os.File, _ Record) error {
			_, err := f.WriteAt([]byte("precious"), small-8)
			return err
		}))
		return r.ID
	}, func(t *testing.T, p *Pool, id ID) {
		e, err := p.Get(t.Context(), id)
		if err != nil || e.Kind != Whole || (e.Record.Size != small && e.Record.Size != 5*small) {
			t.Fatalf("Get = %+v, %v", e, err)
		}
		// The promise must hold the room from the moment that it is recorded.
		if free, err := p.Free(t.Context()); err != nil || free != volumesWithRoom*small-e.Record.promised() {
			t.Errorf("Free = %d, %v, with a promise of %d", free, err, e.Record.promised())
		}
		size, err := p.Grow(t.Context(), id, 5*small)
		if err != nil || size != 5*small {
			t.Errorf("the same growth again = %d, %v", size, err)
		}
		data, err := os.ReadFile(p.ImagePath(id))
		if err != nil || int64(len(data)) != 5*small || string(data[small-8:small]) != "precious" {
			t.Errorf("the image has %d bytes, %v, and lost its data", len(data), err)
		}
	})
}

func TestDeleteKilledAtEveryStep(t *testing.T) {
	killedAtEveryStep(t, "delete", func(t *testing.T, p *Pool) ID {
		return mustCreate(t, p, "a", small).ID
	}, func(t *testing.T, p *Pool, id ID) {
		if e, err := p.Get(t.Context(), id); !errors.Is(err, fault.NotFound) && e.Kind != Whole {
			t.Errorf("Get = %+v, %v, want the whole volume or nothing", e, err)
		}
		if err := p.Delete(t.Context(), id); err != nil && !errors.Is(err, fault.NotFound) {
			t.Errorf("the same delete again = %v", err)
		}
	})
}
