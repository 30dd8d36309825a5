package host

import (
	"context"
	"errors"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// busyFor is a program that finds its device in use a number of times.
type busyFor struct {
	times, runs int
	says        string
	code        int
}

func (b *busyFor) Run(context.Context, Command) (Output, error) {
	if b.runs++; b.runs <= b.times {
		return Output{Stderr: []byte(b.says), ExitCode: b.code}, nil
	}
	return Output{}, nil
}

func TestRunAloneTriesAgainWhileTheDeviceIsInUse(t *testing.T) {
	tests := map[string]struct {
		program  busyFor
		runs     int
		code     int
		wantBusy bool
	}{
		"mount":                        {busyFor{2, 0, "mount: /x: /dev/loop0 already mounted or mount point busy.", 32}, 3, 0, false},
		"e2fsck":                       {busyFor{1, 0, "/dev/loop0 is in use.\ne2fsck: Cannot continue, aborting.", 8}, 2, 0, false},
		"mke2fs":                       {busyFor{1, 0, "/dev/loop0 is apparently in use by the system; will not make a filesystem here!", 1}, 2, 0, false},
		"mkfs.xfs":                     {busyFor{1, 0, "mkfs.xfs: cannot open /dev/loop0: Device or resource busy", 1}, 2, 0, false},
		"a device that stays in use":   {busyFor{1 << 20, 0, "/dev/loop0 is in use.", 8}, untilAlone.Tries, 8, true},
		"another failure is no moment": {busyFor{1, 0, "e2fsck: Bad magic number in super-block", 8}, 1, 8, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := RunAlone(t.Context(), &tc.program, Command{Name: name})
			if got := errors.Is(err, fault.Busy); got != tc.wantBusy || (err != nil && !got) {
				t.Errorf("RunAlone = %v, want busy %v and no other error", err, tc.wantBusy)
			}
			if out.ExitCode != tc.code || tc.program.runs != tc.runs {
				t.Errorf("RunAlone ran it %d times and answers code %d, want %d times and code %d", tc.program.runs, out.ExitCode, tc.runs, tc.code)
			}
		})
	}
}
