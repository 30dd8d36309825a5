package mounter

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Each refusal of the gate has its reason, and is a fault.Precondition.
func TestRefusalsHaveTheirReasons(t *testing.T) {
	ext4 := FormatRequest{Volume: "v", Filesystem: Ext4}
	mine := marker{volume: "v", filesystem: Ext4, size: gib}
	resume := func(k marker, blkid identity) error {
		return resumable(ext4, gib, inspection{marker: &k, blkid: blkid})
	}
	changed := func(change func(k *marker)) marker {
		k := mine
		change(&k)
		return k
	}
	twice := zeros{data: map[int64]string{0: "XFSB", 1080: "\x53\xef"}, bad: -1}
	for name, tc := range map[string]struct {
		err  error
		want fault.Reason
	}{
		"another filesystem":          {inspection{blkid: identity{filesystem: "xfs"}}.unexpected(ext4), fault.FormatContent},
		"partitions":                  {inspection{blkid: identity{partitions: "gpt"}}.unexpected(ext4), fault.FormatContent},
		"only one superblock":         {inspection{blkid: identity{filesystem: "ext4"}}.unexpected(ext4), fault.FormatDamaged},
		"data":                        {blank(ext4, 4096), fault.FormatNotBlank},
		"zeros that were written":     {blank(FormatRequest{History: Written}, -1), fault.FormatNotBlank},
		"a format of another volume":  {resume(changed(func(k *marker) { k.volume = "w" }), identity{}), fault.FormatUnfinished},
		"a format as xfs":             {resume(changed(func(k *marker) { k.filesystem = XFS }), identity{}), fault.FormatUnfinished},
		"a format of a larger device": {resume(changed(func(k *marker) { k.size = 2 * gib }), identity{}), fault.FormatUnfinished},
		"a format and swap":           {resume(mine, identity{filesystem: "swap"}), fault.FormatContent},
		"read-only":                   {gate(t.Context(), exclusive{}, gib, FormatRequest{Forbidden: true}, inspection{}), fault.FormatForbidden},
		"a copy":                      {gate(t.Context(), exclusive{}, gib, FormatRequest{HasContent: true}, inspection{}), fault.FormatForbidden},
		"too small to encrypt":        {gate(t.Context(), exclusive{}, mib, FormatRequest{Filesystem: LUKS}, inspection{}), fault.DeviceTooSmall},
		"a disk with two filesystems": {second(primary(twice)), fault.FormatDamaged},
		"a disk that gives errors":    {second(primary(zeros{bad: 1024})), fault.DeviceUnreadable},
		"a program that is missing":   {second(commands{}.Run(t.Context(), Command{Name: "mkfs.nothing"})), fault.ProgramMissing},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fault.ReasonOf(tc.err); got != tc.want {
				t.Errorf("the reason of %v is %q, want %q", tc.err, got, tc.want)
			}
			if got := fault.Of(tc.err); got != fault.Precondition {
				t.Errorf("%v is of the kind %q", tc.err, got)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// broken is a machine on which each program fails.
type broken struct{}

func (broken) Run(context.Context, Command) (Output, error) {
	return Output{ExitCode: 8, Stderr: []byte("no")}, nil
}

func TestProgramsThatFailHaveTheirReasons(t *testing.T) {
	m := New(Config{Runner: broken{}})
	format := &mkfs{m: m, req: FormatRequest{Filesystem: Ext4}, file: opened{os.Stdin}}
	if err := format.make(t.Context()); !errors.Is(err, fault.FormatFailed) {
		t.Errorf("mkfs = %v, want %v", err, fault.FormatFailed)
	}
	if err := m.check(t.Context(), os.Stdin); !errors.Is(err, fault.FsckFailed) {
		t.Errorf("check = %v, want %v", err, fault.FsckFailed)
	}
}
