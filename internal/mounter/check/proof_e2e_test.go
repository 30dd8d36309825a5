//go:build e2e

package check

import (
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// states are those in which an intact volume may be restored.
var states = []struct {
	name  string
	inUse bool
	leave func(t *testing.T, v *volume, dir string)
}{
	{"unmounted", false, func(*testing.T, *volume, string) {}},
	{"in use", true, func(t *testing.T, v *volume, dir string) { v.leaveInUse(t, dir, false) }},
	{"full", false, func(t *testing.T, _ *volume, dir string) { exhaust(t, dir) }},
	{"frozen", true, func(t *testing.T, v *volume, dir string) { v.leaveInUse(t, dir, true) }},
}

// TestProof: every damaged volume is found, and no intact one is complained about. VOLUMES is how many are damaged, each after it was
// found intact; twice as many are intact. SEED makes others.
func TestProof(t *testing.T) {
	volumes, seed := setting(t, "VOLUMES", 2*len(damages[mounter.XFS])), setting(t, "SEED", 1)
	if testing.Short() && os.Getenv("VOLUMES") == "" {
		volumes = 6
	}
	var missed, found, complaints, good int
	for i := range volumes {
		fs := []mounter.Filesystem{mounter.Ext4, mounter.XFS}[i%2]
		d := damages[fs][i/2%len(damages[fs])]
		for j := range 2 {
			s := states[(i/2+i+2*j)%len(states)]
			t.Run(fmt.Sprintf("%d %s, %s", 2*i+j, fs, s.name), func(t *testing.T) {
				good++
				complaints++ // taken back at the end
				v := makeVolume(t, fs, mathrand.New(mathrand.NewPCG(uint64(seed), uint64(2*i+j))))
				v.mounted(t, func(dir string) { v.fill(t, dir); s.leave(t, v, dir) })
				if s.name == "frozen" {
					v.image += ".frozen"
				}
				want(t, Run(t.Context(), Request{Path: v.image, Replay: s.inUse || v.rng.IntN(2) == 0}), Intact)
				complaints--
				if j == 1 {
					return
				}
				missed++
				sums := d.do(t, v)
				r := Run(t.Context(), Request{Path: v.image, Checksums: sums, Replay: v.rng.IntN(2) == 0})
				t.Logf("%s: %q %q", d.name, r.Findings, r.Unchecked)
				want(t, r, Damaged)
				missed--
				found++
			})
		}
	}
	t.Logf("seed %d: %d of %d damaged volumes found, %d of %d intact ones complained about", seed, found, found+missed, complaints, good)
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

func want(t *testing.T, r *Report, result string) {
	t.Helper()
	if r.Result != result {
		var text strings.Builder
		_ = r.Print(&text, false)
		t.Fatalf("the result is %s, want %s:\n%s", r.Result, result, text.String())
	}
	if result == Intact && (r.Compared < 150 || r.Files < r.Compared || r.Directories < 40) {
		t.Fatalf("not everything was read: %+v", r)
	}
}
