package check

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// Scripts parse the report.
func TestReportIsAsFrozen(t *testing.T) {
	intact := &Report{
		Device: "/dev/volume", Filesystem: "xfs", Replayed: true, Structure: "xfs_repair -n", Files: 12, Directories: 3, Others: 1, Bytes: 4096,
		Findings: []string{}, Unchecked: []string{},
	}
	damaged := &Report{
		Device: "/dev/volume", Filesystem: "ext4", Structure: "e2fsck -n -f", Files: 2, Directories: 1, Bytes: 10, Checksums: "SUMS\x1b", Compared: 1,
		Unchecked: []string{},
	}
	for i := range maxFindings + 2 {
		damaged.finding("read %q: wrong %d\x07\xff", "a\nb", i)
	}
	unchecked := Run(t.Context(), Request{Path: "/nonexistent"})
	for name, r := range map[string]*Report{"intact": intact, "damaged": damaged, "unchecked": unchecked} {
		r.conclude()
		if r.Result != name {
			t.Errorf("the result is %s, want %s", r.Result, name)
		}
		for ending, asJSON := range map[string]bool{"txt": false, "json": true} {
			var out bytes.Buffer
			if err := r.Print(&out, asJSON); err != nil {
				t.Error(err)
			}
			golden.Check(t, name+"."+ending, out.String())
		}
	}
}

func TestResultOfErrors(t *testing.T) {
	tests := map[string]struct {
		err  error
		want error
	}{
		"a disk that returns errors is damaged":            {fault.DeviceUnreadable, ErrDamaged},
		"a device without a filesystem is damaged":         {fmt.Errorf("x: %w", fault.FormatDamaged), ErrDamaged},
		"a filesystem that is not mounted is damaged":      {fault.MountFailed, ErrDamaged},
		"another filesystem is not judged":                 {fault.FormatContent, ErrUnchecked},
		"a device in use is not judged":                    {fault.DeviceInUse, ErrUnchecked},
		"without its program, a filesystem is not judged":  {fault.ProgramMissing, ErrUnchecked},
		"an error that was not foreseen is no judgement":   {errors.New("x"), ErrUnchecked},
		"a journal that is not replayed cannot be ignored": {errUnclean, ErrUnchecked},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var r Report
			r.judge(tc.err)
			r.conclude()
			if got := r.Err(); !errors.Is(got, tc.want) {
				t.Errorf("%v = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}
