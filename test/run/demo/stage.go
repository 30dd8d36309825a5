package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// aborted is how often a step that is answered with Aborted is tried.
const aborted = 10

// stage is where the acts are shown: it prints each step with its time.
type stage struct {
	pair *programs.Pair
	// cloud is nil on `local`.
	cloud accounts.Account
	out   io.Writer
}

func (s *stage) intro() {
	if s.cloud != nil {
		fmt.Fprintf(s.out, "cloudblock-csi on an emulated %s whose machines are this one, no Kubernetes\n", s.cloud.Name())
		fmt.Fprintf(s.out, "every change takes the cloud 300 ms; at the right: time, and the cloud's calls as reads + writes\n")
		return
	}
	fmt.Fprintf(s.out, "cloudblock-csi on this machine: local volumes of a hard size, no cloud, no Kubernetes\n")
	fmt.Fprintf(s.out, "pool %s, an xfs of its own\n", s.pair.Pool())
}

func (s *stage) act(title string) { fmt.Fprintf(s.out, "\n%s\n", title) }

// step runs one step and prints what it did and how long that took. do returns what to say of it.
func (s *stage) step(ctx context.Context, name string, do func() (string, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	reads, writes := s.calls()
	begin := time.Now()
	said, err := do()
	// Kubernetes repeats Aborted: something else is under way with the volume, as when another program opens its disk for an instant.
	for try := 1; try < aborted && status.Code(err) == codes.Aborted && ctx.Err() == nil; try++ {
		select {
		case <-time.After(time.Second):
			said, err = do()
		case <-ctx.Done():
		}
	}
	took := time.Since(begin)
	if err != nil {
		fmt.Fprintf(s.out, "  FAILED %-10s %v\n", name, err)
		return fmt.Errorf("%s: %w", name, err)
	}
	calls := ""
	if s.cloud != nil {
		r, w := s.calls()
		calls = fmt.Sprintf("  %3d + %d", r-reads, w-writes)
	}
	fmt.Fprintf(s.out, "  %-12s %-62s %7.0f ms%s\n", name, said, float64(took.Microseconds())/1000, calls)
	return nil
}

// keepLogs writes what the programs logged last to a file that stays, and names it.
func (s *stage) keepLogs() error {
	text := "node:\n" + s.pair.Node.LogTail() + "\ncontroller:\n" + s.pair.Controller.LogTail() + "\n"
	f, err := os.CreateTemp("", "cloudblock-demo-*.log")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  the programs' last lines are in %s\n", f.Name())
	return nil
}

// calls counts what has reached the cloud; nothing on `local`.
func (s *stage) calls() (reads, writes int) {
	if s.cloud == nil {
		return 0, 0
	}
	stats := s.cloud.Stats()
	return stats.Reads, stats.Writes
}

// note prints a line that is no step.
func (s *stage) note(format string, a ...any) {
	fmt.Fprintf(s.out, "  %-12s "+format+"\n", append([]any{""}, a...)...)
}

// scene is a list of steps; the first that fails ends it.
type scene []struct {
	name string
	do   func() (string, error)
}

func (s *stage) play(ctx context.Context, steps scene) error {
	for _, step := range steps {
		if err := s.step(ctx, step.name, step.do); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) epilogue(dir string, took time.Duration) error {
	s.act("Afterwards")
	if s.cloud == nil {
		dir = s.pair.Pool() // whose own loop device Clean detaches
	}
	if attached := loops.Below(dir); len(attached) > 0 {
		return fmt.Errorf("left behind: loop devices %v", attached)
	}
	where, left := "file in the pool", s.inCloud
	if s.cloud == nil {
		left = s.inPool
	} else {
		where = "volume or snapshot in the account"
	}
	if found, err := left(); err != nil || len(found) > 0 {
		return errors.Join(fmt.Errorf("left behind or wrong: %v", found), err)
	}
	fmt.Fprintf(s.out, "  nothing is left: no loop device, no mount, no %s\n\n", where)
	if s.cloud != nil {
		reads, writes := s.calls()
		fmt.Fprintf(s.out, "in all %d reads and %d writes of the cloud\n", reads, writes)
	}
	fmt.Fprintf(s.out, "done in %.1f s\n", took.Seconds())
	return nil
}

// inPool names the files that are left in the pool.
func (s *stage) inPool() (left []string, err error) {
	for _, folder := range []string{"volumes", "snapshots"} {
		files, err := os.ReadDir(filepath.Join(s.pair.Pool(), folder))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			left = append(left, filepath.Join(folder, f.Name()))
		}
	}
	return left, nil
}

// inCloud names what is left in the account, and what should not have happened to it.
func (s *stage) inCloud() ([]string, error) {
	return append(accounts.Left(s.cloud), accounts.Wrong(s.cloud)...), nil
}

// writeFile fills a file with random bytes, makes them durable and returns their checksum.
func writeFile(path string, size int64) (string, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(rand.Reader, size))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// readSum returns the checksum of size bytes of a file or device.
func readSum(path string, size int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, size); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// compare reads the bytes again and says whether they are the ones that were written.
func compare(path string, size int64, want string) (string, error) {
	got, err := readSum(path, size)
	if err != nil {
		return "", err
	}
	if got != want {
		return "", fmt.Errorf("%s holds other bytes than were written: sha256 %s, want %s", path, got, want)
	}
	return fmt.Sprintf("the same bytes, sha256 %s…", want[:12]), nil
}

// df returns the size of the filesystem at path.
func df(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return int64(st.Blocks) * st.Bsize, nil
}

// human prints a size the way df -h would.
func human(b int64) string {
	if b >= gib {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(b)/float64(gib)), ".0") + " GiB"
	}
	return fmt.Sprintf("%d MiB", b/mib)
}

// canGrowMountedExt4 reports whether the kernel lets this process grow a mounted ext4, for which it
// asks for CAP_SYS_RESOURCE (fs/ext4/ioctl.c, ext4_resize_begin).
func canGrowMountedExt4() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
