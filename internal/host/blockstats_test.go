package host

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// statText has a different number in each field.
const statText = "       1        2        3        4        5        6        7        8        9       10       11       12       13       14       15       16       17\n"

func TestCountersOfABlockDevice(t *testing.T) {
	const ms = time.Millisecond
	want := BlockStats{
		Reads: BlockIO{1, 3 * 512, 4 * ms}, Writes: BlockIO{5, 7 * 512, 8 * ms}, Discards: BlockIO{12, 14 * 512, 15 * ms},
		Flushes: BlockIO{16, 0, 17 * ms}, InFlight: 9, Busy: 10 * ms,
	}
	for name, text := range map[string]string{"as of Linux 5.5": statText, "with a field of a later kernel": statText + " 18"} {
		if got, err := ParseBlockStats(text); err != nil || got != want || got.Completed() != 1+5+12+16 {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "as of Linux 4.18": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "a word": "1 2 3 4 5 6 7 8 x 10 11 12 13 14 15 16 17",
		"a negative number": "1 2 3 4 5 6 7 8 -9 10 11 12 13 14 15 16 17", "more sectors than bytes": "1 2 36028797018963968 4 5 6 7 8 9 10 11 12 13 14 15 16 17",
		"more milliseconds than a duration": "1 2 3 8796093022208 5 6 7 8 9 10 11 12 13 14 15 16 17",
	} {
		if got, err := ParseBlockStats(text); !errors.Is(err, fault.Precondition) {
			t.Errorf("%s: %+v, %v, want an error", name, got, err)
		}
	}
}

func FuzzParseBlockStats(f *testing.F) {
	f.Add(statText)
	f.Add("")
	f.Add("18446744073709551615 0 36028797018963967 8796093022207 0 0 0 0 0 0 0 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseBlockStats(text)
		if err != nil {
			if s != (BlockStats{}) {
				t.Errorf("with an error: %+v", s)
			}
			return
		}
		for _, d := range []time.Duration{s.Reads.Time, s.Writes.Time, s.Discards.Time, s.Flushes.Time, s.Busy} {
			if d < 0 {
				t.Errorf("%q: a negative time: %+v", text, s)
			}
		}
		for _, io := range []BlockIO{s.Reads, s.Writes, s.Discards} {
			if io.Bytes%statSector != 0 {
				t.Errorf("%q: %d bytes", text, io.Bytes)
			}
		}
	})
}

func TestCountersAndStackInSysfs(t *testing.T) {
	s := sysTree{t, t.TempDir()}
	sysfs := Sysfs(s.dir)
	for kernel, number := range map[string]string{"vdb": "254:16", "vdc": "254:32", "dm-0": "253:0", "dm-1": "253:1"} {
		s.device(kernel, number)
	}
	s.file("devices/vdb/stat", statText)
	s.file("devices/vdc/stat", "1 2 3")
	for above, below := range map[string]string{"dm-1": "dm-0", "dm-0": "vdb"} {
		s.link("devices/"+above+"/slaves/"+below, "../../"+below)
	}
	s.link("devices/dm-1/slaves/vdz", "../../gone")
	disk, mapping, top := unix.Mkdev(254, 16), unix.Mkdev(253, 0), unix.Mkdev(253, 1)
	if got, ok, err := sysfs.BlockStats(disk); !ok || err != nil || got.InFlight != 9 {
		t.Errorf("BlockStats = %+v, %v, %v", got, ok, err)
	}
	if got, ok, err := sysfs.BlockStats(unix.Mkdev(254, 48)); ok || err != nil {
		t.Errorf("BlockStats of a disk that is gone = %+v, %v, %v", got, ok, err)
	}
	if got, ok, err := sysfs.BlockStats(unix.Mkdev(254, 32)); ok || err == nil {
		t.Errorf("BlockStats of a file of another form = %+v, %v, %v, want an error", got, ok, err)
	}
	if got := sysfs.Below(top); len(got) != 2 || got[0] != disk || got[1] != mapping {
		t.Errorf("Below = %v, want the disk %d and then the mapping %d", got, disk, mapping)
	}
	if got := sysfs.Below(disk); len(got) > 0 {
		t.Errorf("Below of a disk = %v", got)
	}
	for device, uuid := range map[string]string{"dm-0": "LVM-x", "dm-1": "CRYPT-LUKS2-x"} {
		s.file("devices/"+device+"/dm/uuid", uuid+"\n")
	}
	if got := sysfs.Mapped(func(uuid string) bool { return uuid == "LVM-x" }); len(got) != 1 || got[0] != mapping {
		t.Errorf("Mapped = %v, want %d", got, mapping)
	}
	if a, b := sysfs.Kernel(disk), sysfs.Kernel(unix.Mkdev(254, 48)); a != "vdb" || b != "254:48" {
		t.Errorf("Kernel = %s and %s", a, b)
	}
}
