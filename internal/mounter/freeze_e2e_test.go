//go:build e2e

package mounter

import (
	"bufio"
	"errors"
	arguments "flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// TestGuardProcess is no test of its own: it is the guard of the other tests.
func TestGuardProcess(t *testing.T) {
	if arguments.NArg() != 2 {
		return
	}
	if err := RunGuard(arguments.Args()); err != nil {
		t.Fatal(err)
	}
}

// freezer returns a Mounter whose guards are this test binary.
func freezer(t *testing.T) *Mounter {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else a guard holds the mount for a second after its end
	return New(Config{Guard: []string{os.Args[0], "-test.run=^TestGuardProcess$"}})
}

// freezeHelper makes the test binary a node program that freezes this mount of this device and waits.
const (
	freezeMount  = "MOUNTER_FREEZE_MOUNT"
	freezeDevice = "MOUNTER_FREEZE_DEVICE"
	freezeAnswer = "MOUNTER_FREEZE_ANSWER"
)

// TestFreezeAsNode is no test of its own either.
func TestFreezeAsNode(t *testing.T) {
	path := os.Getenv(freezeMount)
	if path == "" {
		return
	}
	f, err := os.Open(os.Getenv(freezeDevice))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	_, err = freezer(t).Freeze(t.Context(), &loopDevice{t: t, file: f, number: st.Rdev},
		FreezeRequest{Mountpoint: path, For: time.Minute, Answer: os.Getenv(freezeAnswer)})
	os.Stdout.WriteString("\nfreeze: " + strconv.FormatBool(err == nil) + "\n")
	select {}
}

// isFrozen asks without writing: a frozen filesystem cannot be frozen again.
func isFrozen(t *testing.T, path string) bool {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	err = unix.IoctlSetInt(int(dir.Fd()), fiFreeze, 0)
	if err == nil {
		err = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
	} else if errors.Is(err, unix.EBUSY) {
		return true
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // thawed by the guard that was about to do it
		t.Fatal(err)
	}
	return false
}

// thawAtEnd keeps a test that fails from leaving a frozen filesystem behind. What it returns lets go
// of the mount.
func thawAtEnd(t *testing.T, path string) (letGo func()) {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	letGo = sync.OnceFunc(func() {
		_ = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
		_ = dir.Close()
	})
	t.Cleanup(letGo)
	return letGo
}

// thawedWithin waits until the filesystem is thawed and returns how long that took.
func thawedWithin(t *testing.T, path string, most time.Duration) {
	t.Helper()
	tick, begin := time.NewTicker(5*time.Millisecond), time.Now()
	defer tick.Stop()
	for isFrozen(t, path) {
		if time.Since(begin) > most {
			t.Fatalf("the filesystem is still frozen after %s", most)
		}
		<-tick.C
	}
	t.Logf("thawed after %s", time.Since(begin).Round(time.Millisecond))
}

// TestFreezeStopsWritersUntilThaw: what was written is on the device, what comes later waits.
func TestFreezeStopsWritersUntilThaw(t *testing.T) {
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			m := freezer(t)
			dev, staging := staged(t, m, fs, small)
			letGo := thawAtEnd(t, staging)
			answer := filepath.Join(t.TempDir(), "answer")
			if err := errors.Join(os.WriteFile(filepath.Join(staging, "before"), []byte("unsynced"), 0o600), os.WriteFile(answer, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			f, err := m.Freeze(t.Context(), dev, FreezeRequest{Mountpoint: staging, For: time.Minute, Answer: answer, Keep: []string{"/", t.TempDir()}})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("frozen after %s", time.Since(begin).Round(time.Millisecond))
			image, err := os.ReadFile(dev.back)
			if err != nil || !strings.Contains(string(image), "unsynced") {
				t.Errorf("what was written before the freeze is not in the image (%v)", err)
			}
			written := make(chan error, 1)
			go func() { written <- os.WriteFile(filepath.Join(staging, "after"), []byte("late"), 0o600) }()
			select {
			case err := <-written:
				t.Errorf("a write on a frozen filesystem ended with %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			if err := f.Thaw(); err != nil {
				t.Errorf("Thaw = %v", err)
			}
			if err := <-written; err != nil {
				t.Errorf("the write that waited = %v", err)
			}
			if _, err := os.Lstat(answer); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the answer outlived the thaw: %v", err)
			}
			letGo()
			takeDown(t, m, dev, staging)
		})
	}
}

// TestFreezeEndsByItself is the bound of a freeze: its time is over, its guard was killed, its node
// program was killed.
func TestFreezeEndsByItself(t *testing.T) {
	m := freezer(t)
	dev, staging := staged(t, m, Ext4, small)
	letGo := thawAtEnd(t, staging)
	t.Run("when its time is over", func(t *testing.T) {
		f, err := m.Freeze(t.Context(), dev, FreezeRequest{Mountpoint: staging, For: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		thawedWithin(t, staging, 3*time.Second)
		<-f.Done()
		if err := f.Thaw(); err != nil {
			t.Errorf("Thaw of what is thawed = %v", err)
		}
	})
	t.Run("by the node program when its guard was killed", func(t *testing.T) {
		f, err := m.Freeze(t.Context(), dev, FreezeRequest{Mountpoint: staging, For: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		killChildren(t, os.Getpid())
		<-f.Done()
		if !isFrozen(t, staging) {
			t.Error("the filesystem is thawed although nobody has done it: this test shows nothing")
		}
		if err := f.Thaw(); err != nil || isFrozen(t, staging) {
			t.Errorf("Thaw = %v, want a thawed filesystem", err)
		}
	})
	for name, both := range map[string]bool{"by the guard when the node program was killed": false, "never, when both were killed": true} {
		t.Run(name, func(t *testing.T) {
			answer := filepath.Join(t.TempDir(), "answer")
			if err := os.WriteFile(answer, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			node := freezeAsNode(t, dev.Path(), staging, answer)
			if !isFrozen(t, staging) {
				t.Fatal("the node program froze nothing")
			}
			if both {
				// The guard first: it must not see the end of its parent, which does nothing about the guard's.
				killChildren(t, node.Process.Pid)
				for len(children(t, node.Process.Pid)) > 0 {
					<-time.After(time.Millisecond)
				}
				_ = node.Process.Kill()
				_ = node.Wait()
				if !isFrozen(t, staging) {
					t.Error("the filesystem is thawed although nobody has done it: this test shows nothing")
				}
				for range 2 { // a repeat finds nothing to do
					if err := m.ThawLeft(dev, staging); err != nil || isFrozen(t, staging) {
						t.Errorf("ThawLeft = %v, want a thawed filesystem", err)
					}
				}
				return
			}
			_ = node.Process.Kill()
			_ = node.Wait()
			thawedWithin(t, staging, 3*time.Second)
			if _, err := os.Lstat(answer); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the answer outlived the thaw: %v", err)
			}
		})
	}
	letGo()
	takeDown(t, m, dev, staging)
}

// freezeAsNode starts a node program that freezes, and returns when it has.
func freezeAsNode(t *testing.T, device, mount, answer string) *exec.Cmd {
	t.Helper()
	node := exec.Command(os.Args[0], "-test.run=^TestFreezeAsNode$")
	node.Env = append(os.Environ(), freezeMount+"="+mount, freezeDevice+"="+device, freezeAnswer+"="+answer)
	node.Stderr = os.Stderr
	out, err := node.StdoutPipe()
	if err == nil {
		err = node.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if word, ok := strings.CutPrefix(lines.Text(), "freeze: "); ok {
			if word != "true" {
				t.Fatal("the node program could not freeze")
			}
			return node
		}
	}
	t.Fatal("the node program ended")
	return nil
}

// children returns the processes that this one has started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func killChildren(t *testing.T, pid int) {
	t.Helper()
	for _, child := range children(t, pid) {
		if err := unix.Kill(child, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFreezeRefusals: nothing but the volume's own filesystem is frozen, and what somebody else froze
// stays frozen.
func TestFreezeRefusals(t *testing.T) {
	m := freezer(t)
	dev, staging := staged(t, m, Ext4, small)
	other, theirs := staged(t, m, Btrfs, small)
	letGo, letTheirsGo := thawAtEnd(t, staging), thawAtEnd(t, theirs)
	plain := t.TempDir()
	tests := map[string]struct {
		dev  *loopDevice
		req  FreezeRequest
		want fault.Kind
	}{
		"the mount of another device":         {dev, FreezeRequest{Mountpoint: theirs}, fault.Precondition},
		"the other way round":                 {other, FreezeRequest{Mountpoint: staging}, fault.Precondition},
		"a directory of the machine's disk":   {dev, FreezeRequest{Mountpoint: plain}, fault.Precondition},
		"a filesystem that is to be kept":     {dev, FreezeRequest{Mountpoint: staging, Keep: []string{"/", staging}}, fault.Precondition},
		"a btrfs that is to be kept":          {other, FreezeRequest{Mountpoint: theirs, Keep: []string{theirs}}, fault.Precondition},
		"a path to keep that cannot be seen":  {dev, FreezeRequest{Mountpoint: staging, Keep: []string{plain + "/no"}}, fault.Precondition},
		"no time":                             {dev, FreezeRequest{Mountpoint: staging, For: -1}, fault.Unavailable},
		"a device that is not what it was":    {&loopDevice{t: t, file: dev.file, number: dev.number, verify: func() error { return fault.Precondition }}, FreezeRequest{Mountpoint: staging}, fault.Precondition},
		"a path that leads through something": {dev, FreezeRequest{Mountpoint: staging + "/../staging"}, fault.InvalidArgument},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.req.For == 0 {
				tc.req.For = time.Minute
			}
			f, err := m.Freeze(t.Context(), tc.dev, tc.req)
			if !errors.Is(err, tc.want) || f != nil {
				t.Errorf("Freeze = %v, %v, want %v", f, err, tc.want)
			}
			for _, path := range []string{staging, theirs} {
				if isFrozen(t, path) {
					t.Errorf("%s is frozen", path)
				}
			}
		})
	}
	t.Run("frozen by somebody else", func(t *testing.T) {
		must(t, "fsfreeze", "-f", staging)
		if f, err := m.Freeze(t.Context(), dev, FreezeRequest{Mountpoint: staging, For: time.Minute}); !errors.Is(err, fault.Precondition) || f != nil {
			t.Errorf("Freeze = %v, %v, want %v", f, err, fault.Precondition)
		}
		if !isFrozen(t, staging) {
			t.Error("what somebody else froze was thawed")
		}
		must(t, "fsfreeze", "-u", staging)
	})
	t.Run("a guard that cannot start", func(t *testing.T) {
		broken := New(Config{Guard: []string{"/does/not/exist"}})
		if f, err := broken.Freeze(t.Context(), dev, FreezeRequest{Mountpoint: staging, For: time.Minute}); !errors.Is(err, fault.Unavailable) || f != nil || isFrozen(t, staging) {
			t.Errorf("Freeze = %v, %v, want %v and nothing frozen", f, err, fault.Unavailable)
		}
	})
	letGo()
	letTheirsGo()
	takeDown(t, m, dev, staging)
	takeDown(t, m, other, theirs)
}
