package lvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// nodeLVM is the LVM of this machine.
type nodeLVM struct{}

// lvmSettings are the settings of every command. LVM archives nothing in the node's /etc/lvm, which thousands of volumes a day would
// fill, and starts no monitor. It does not search other disks for one that is missing or has another name, because a pod may have
// written its identity to its own disk. It does not discard extents that a growth frees for a moment, because a disk may return
// other bytes than zeros afterwards. The format of reports does not depend on the node's lvm.conf.
const lvmSettings = `activation{monitoring=0} backup{archive=0} ` +
	`devices{search_for_devnames="none" device_ids_refresh=0 issue_discards=0} report{binary_values_as_numeric=0 list_item_separator=","}`

// Run runs lvm in a session of its own, and no context ends it: a command that is killed while a device is suspended blocks all I/O
// of that volume until the next call resumes it. The command makes device nodes itself, because in a container it cannot wait for
// the node's udev.
func (nodeLVM) Run(args ...string) ([]byte, error) {
	return runLVM("lvm", append(args, "--config", lvmSettings)...)
}

// Clear runs dmsetup, because LVM has no command for it.
func (nodeLVM) Clear(device string) error {
	_, err := runLVM("dmsetup", "clear", device)
	return err
}

func runLVM(program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1", "DM_DISABLE_UDEV=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("the program %s is not in this image; take one with lvm2: %w: %w", program, fault.Precondition, err)
	case err != nil:
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return nil, fmt.Errorf("%s %s: %w: %w: %s", program, args[0], fault.Unavailable, err, said[max(0, len(said)-2000):])
	}
	return stdout.Bytes(), nil
}

// Open opens the device exclusively, which the kernel allows to one program at a time.
func (nodeLVM) Open(path, uuid string) (pool.ZeroedDevice, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("open %s: %w: %w", path, fault.Busy, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	var has []byte
	if err == nil {
		has, err = os.ReadFile(filepath.Join("/sys/dev/block", fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), "dm/uuid"))
	}
	if err == nil && strings.TrimSpace(string(has)) != uuid {
		err = fmt.Errorf("its UUID is %.80q, not %q", has, uuid)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is not the device of the volume: %w: %w", path, fault.Unavailable, err)
	}
	return zeroedFile{f}, nil
}

type zeroedFile struct{ *os.File }

// Zero lets the device write the zeros, or the kernel if the device has no command for that (block/fops.c, blkdev_fallocate: the same
// as BLKZEROOUT).
func (f zeroedFile) Zero(from, length int64) error {
	err := pool.RetryEINTR(func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, from, length)
	})
	if err != nil {
		return fmt.Errorf("write zeros to %s: %w: %w", f.Name(), fault.Unavailable, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w: %w", f.Name(), fault.Unavailable, err)
	}
	return nil
}

// volumeGroup is what vgs reports: with fields of disks, a row for each disk of the group.
type volumeGroup struct {
	Name         string `json:"vg_name"`
	ID           string `json:"vg_uuid"`
	Tags         string `json:"vg_tags"`
	Extent       int64  `json:"vg_extent_size,string"`
	Extents      int64  `json:"vg_extent_count,string"`
	MissingDisks int64  `json:"vg_missing_pv_count,string"`
	FreeMetadata int64  `json:"vg_mda_free,string"` // bytes, of the disk with the least
	Allocatable  string `json:"pv_allocatable"`
	DiskExtents  int64  `json:"pv_pe_count,string"`
	DiskUsed     int64  `json:"pv_pe_alloc_count,string"`
}

const groupFields = "vg_name,vg_uuid,vg_tags,vg_extent_size,vg_extent_count,vg_missing_pv_count,vg_mda_free,pv_allocatable,pv_pe_count,pv_pe_alloc_count"

// freeExtents returns how many extents a volume may get. vg_free_count has those of disks that an operator drains (pvchange -xn), too.
func freeExtents(disks []volumeGroup) (free int64) {
	for _, d := range disks {
		if d.Allocatable != "" {
			free += d.DiskExtents - d.DiskUsed
		}
	}
	return free
}

// logicalVolume is what lvs reports. A field that does not apply is empty; one about a missing device is "unknown".
type logicalVolume struct {
	Name      string `json:"lv_name"`
	ID        string `json:"lv_uuid"`
	Size      int64  `json:"lv_size,string"`
	Layout    string `json:"lv_layout"`
	Role      string `json:"lv_role"`
	Tags      string `json:"lv_tags"`
	Active    string `json:"lv_active"`
	Open      string `json:"lv_device_open"`
	Suspended string `json:"lv_suspended"`
	Loaded    string `json:"lv_inactive_table"`
	Health    string `json:"lv_health_status"`
	// broken is why mend failed on a device that a killed command has left in the middle of a change.
	broken error
}

const volumeFields = "lv_name,lv_uuid,lv_size,lv_layout,lv_role,lv_tags,lv_active,lv_device_open,lv_suspended,lv_inactive_table,lv_health_status"

func (v logicalVolume) tags() []string { return strings.Split(v.Tags, ",") }

func (v logicalVolume) has(tag string) bool { return slices.Contains(v.tags(), tag) }

// checkAlone refuses a volume that an operator has changed, such as the origin of a snapshot: LVM would remove the snapshot with it.
func (v logicalVolume) checkAlone() error {
	if v.Layout == "linear" && v.Role == "public" {
		return nil
	}
	return fmt.Errorf("LVM calls its logical volume %s %s: it was changed by hand; undo that first: %w", v.Layout, v.Role, fault.VolumeInUse)
}

// beingChanged reports whether a command is changing the device, or was killed while it did.
func (v logicalVolume) beingChanged() bool {
	return v.Suspended == "suspended" || v.Loaded == "inactive table present"
}

// creating reports whether the id of the volume was not returned yet, or the growth was not added to its volume.
func (v logicalVolume) creating() bool { return v.has(creatingTag) }

// beingZeroed reports whether a program is writing zeros to it.
func (v logicalVolume) beingZeroed() bool { return v.creating() && v.Open == "open" }

// zeroed returns how many bytes are known to be zeros.
func (v logicalVolume) zeroed() int64 {
	for _, tag := range v.tags() {
		if text, found := strings.CutPrefix(tag, zeroedTag); found {
			n, err := strconv.ParseInt(text, 10, 64)
			if err == nil && n > 0 && n <= v.Size {
				return n
			}
		}
	}
	return 0
}

// report runs a command and returns the rows of its report with this key.
func report[T any](p *Pool, key, verb string, args ...string) ([]T, error) {
	out, err := p.run(verb, append(args, "--reportformat", "json", "--units", "b", "--nosuffix")...)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Report []map[string][]T `json:"report"`
	}
	if err := json.Unmarshal(out, &doc); err != nil || len(doc.Report) == 0 {
		return nil, fmt.Errorf("read the report of lvm: %w: %w", fault.Unavailable, errors.Join(err, errors.New("no report")))
	}
	return doc.Report[0][key], nil
}

func bytesArg(n int64) string { return strconv.FormatInt(n, 10) + "b" }
