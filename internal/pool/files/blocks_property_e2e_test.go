//go:build e2e

package files

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// OPERATIONS in the environment is how many operations TestEveryChangeIsReported does on each kind of volume.
const fewOperations = 150

// worn is a volume that a random user works on, through its loop device.
type worn struct {
	*testing.T
	random *rand.Rand
	p      *Pool
	id     pool.ID
	device string
	// mount is where the filesystem on the device is mounted; empty: there is none.
	mount string
	grows bool     // the filesystem grows
	file  *os.File // what is written to
	span  int64    // how much of it
	limit int64    // of the size of the volume

	snapshots []pool.ID
	total     delta
}

// output runs a command.
func output(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(expect.Run(t, args[0], args[1:]...))
}

// wear makes a volume with a filesystem, or as a raw block device.
func wear(t *testing.T, seed uint64, filesystem string) *worn {
	t.Helper()
	w := &worn{T: t, random: rand.New(rand.NewPCG(seed, 0)), p: poolBelow(t, "xfs", inMemory(t))}
	size, mkfs := int64(64<<20), []string(nil)
	switch filesystem {
	case "ext4":
		mkfs = []string{"mkfs.ext4", "-q"} // it grows with CAP_SYS_RESOURCE only
	case "xfs":
		size, mkfs = 304<<20, []string{"mkfs.xfs", "-q"}
	}
	w.id, w.limit = mustCreate(t, w.p, "v", size).ID, size+36<<20
	w.device = output(t, "losetup", "-f", "--show", "-b", "4096", "--direct-io=on", w.p.ImagePath(w.id))
	t.Cleanup(func() { output(t, "losetup", "-d", w.device) })
	var err error
	if mkfs == nil {
		w.span = 48 << 20
		w.file, err = os.OpenFile(w.device, os.O_RDWR, 0)
	} else {
		output(t, append(mkfs, w.device)...)
		w.mount, w.span, w.grows = mounted(t, w.device), 32<<20, filesystem == "xfs"
		w.file, err = os.Create(filepath.Join(w.mount, "data"))
	}
	must(t, err)
	t.Cleanup(func() { _ = w.file.Close() })
	return w
}

// work does one random operation.
func (w *worn) work(n int) {
	at, length := w.random.Int64N(w.span/block)*block, (1+w.random.Int64N(32))*block
	length = min(length, w.span-at)
	fallocate := func(mode uint32) {
		err := unix.Fallocate(int(w.file.Fd()), mode|unix.FALLOC_FL_KEEP_SIZE, at, length)
		if err != nil && (w.mount != "" || err != unix.EOPNOTSUPP) { // a loop device of a pool discards nothing
			w.Fatalf("fallocate %#x: %v", mode, err)
		}
	}
	switch dice := w.random.IntN(100); {
	case dice < 55:
		data := make([]byte, length)
		for i := range data {
			data[i] = byte(w.random.Uint32())
		}
		_, err := w.file.WriteAt(data, at)
		must(w.T, err)
	case dice < 65:
		must(w.T, w.file.Sync())
	case dice < 75:
		fallocate(unix.FALLOC_FL_PUNCH_HOLE)
	case dice < 82:
		fallocate(unix.FALLOC_FL_ZERO_RANGE)
	case dice < 90 && w.mount == "":
		w.punchImage()
	case dice < 90:
		w.files(n)
	case dice < 92:
		w.enlarge()
	default:
		w.snapshot(n)
	}
}

// punchImage punches a hole into the image below the device, and reserves such holes as the next stage does.
func (w *worn) punchImage() {
	if w.random.IntN(3) == 0 {
		must(w.T, w.p.Reserve(w.Context(), w.id))
		return
	}
	image, err := os.OpenFile(w.p.ImagePath(w.id), os.O_RDWR, 0)
	must(w.T, err)
	at, length := w.random.Int64N(w.span/block)*block, w.random.Int64N(64)*block+block
	must(w.T, unix.Fallocate(int(image.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length))
	must(w.T, image.Close())
}

// files makes and removes whole files.
func (w *worn) files(n int) {
	name := filepath.Join(w.mount, strconv.Itoa(n%7))
	if err := os.Remove(name); err == nil {
		return
	}
	must(w.T, os.WriteFile(name, []byte(strings.Repeat(fmt.Sprint(n, " "), 50_000)), 0o600))
}

func (w *worn) enlarge() {
	e, err := w.p.Get(w.Context(), w.id)
	must(w.T, err)
	if e.Size >= w.limit {
		return
	}
	_, err = w.p.Grow(w.Context(), w.id, e.Size+2*pool.SizeStep)
	must(w.T, err)
	output(w.T, "losetup", "-c", w.device)
	if w.grows {
		output(w.T, "xfs_growfs", "-d", w.mount)
	}
}

// snapshot makes a snapshot and compares it with nothing, with the last and with the one before it.
func (w *worn) snapshot(n int) {
	made := pool.ID("")
	for made == "" {
		r, err := w.p.CreateSnapshot(w.Context(), pool.NewSnapshot{Name: strconv.Itoa(n), Volume: w.id})
		switch {
		case fault.Of(err) == fault.Exhausted && len(w.snapshots) > 0:
			w.drop()
		case err != nil:
			w.Fatal(err)
		default:
			made = r.ID
		}
	}
	if n%8 == 0 {
		compare(w.T, w.p, "", made)
	}
	for i, base := range w.snapshots {
		d := compare(w.T, w.p, base, made)
		if i == len(w.snapshots)-1 {
			w.total = delta{w.total.changed + d.changed, w.total.reported + d.reported, w.total.missed + d.missed}
		}
	}
	if w.snapshots = append(w.snapshots, made); len(w.snapshots) > 2 {
		w.drop()
	}
}

func (w *worn) drop() {
	must(w.T, w.p.DeleteSnapshot(w.Context(), w.snapshots[0]))
	w.snapshots = w.snapshots[1:]
}

// C16: random writes, punches, growths and snapshots, through a loop device and a filesystem on it: each delta has every
// block that the bytes of the two snapshots have different, and little else.
func TestEveryChangeIsReported(t *testing.T) {
	operations, err := strconv.Atoi(cmp.Or(os.Getenv("OPERATIONS"), strconv.Itoa(fewOperations)))
	must(t, err)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	for _, on := range []string{"ext4", "xfs", "raw block"} {
		t.Run(on, func(t *testing.T) {
			w := wear(t, seed, on)
			for n := range operations {
				if w.work(n); t.Failed() {
					break
				}
			}
			w.snapshot(operations)
			t.Logf("SEED=%d: %d operations; of chunks of %d KiB %d have changed, %d are reported (%.3f), %d blocks are missed",
				seed, operations, chunk>>10, w.total.changed, w.total.reported, float64(w.total.reported)/float64(w.total.changed), w.total.missed)
			// What a filesystem writes once, such as zeros where there were none, counts for much among few operations.
			if w.total.changed == 0 || operations > fewOperations && float64(w.total.reported) > 1.2*float64(w.total.changed) {
				t.Errorf("%+v: more is reported than 1.2 times what has changed, or nothing has", w.total)
			}
		})
	}
}
