package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// runLVM runs the program lvm. The command is in a session of its own and no context ends it: a command that is
// killed between the suspension of a device and its resumption stops all I/O of that volume. Device nodes are made
// by the command itself, because in a container it cannot wait for the node's udev, and it starts no monitor.
func runLVM(args ...string) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "lvm", append(args, "--config", "activation{monitoring=0}")...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1", "DM_DISABLE_UDEV=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("the program lvm is not in this image; take one with lvm2: %w: %w", fault.Precondition, err)
	case err != nil:
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return nil, fmt.Errorf("lvm %s: %w: %w: %s", args[0], fault.Unavailable, err, said[max(0, len(said)-2000):])
	}
	return stdout.Bytes(), nil
}

// logicalVolume is a row of what lvs reports. What does not apply to a volume is empty or 0.
type logicalVolume struct {
	Group   string `json:"vg_name"`
	GroupID string `json:"vg_uuid"`
	Extent  int64  `json:"vg_extent_size,string"`
	Missing int64  `json:"vg_missing_pv_count,string"` // disks of the group
	Name    string `json:"lv_name"`
	ID      string `json:"lv_uuid"`
	Pool    string `json:"pool_lv"`
	Type    string `json:"segtype"`
	Size    int64  `json:"lv_size,string"`
	Tags    string `json:"lv_tags"`
	Active  string `json:"lv_active"`
	Open    string `json:"lv_device_open"`
	Written string `json:"data_percent"` // of an active one
	// Of a thin pool.
	Metadata string `json:"lv_metadata_size"`
	Chunk    int64  `json:"chunk_size,string"`
	Zero     string `json:"zero"`
	Health   string `json:"lv_health_status"`
}

// lvmFields are the columns of that report.
const lvmFields = "vg_name,vg_uuid,vg_extent_size,vg_missing_pv_count,lv_name,lv_uuid,pool_lv,segtype,lv_size,lv_tags," +
	"lv_active,lv_device_open,data_percent,lv_metadata_size,chunk_size,zero,lv_health_status"

func (v logicalVolume) tags() []string { return strings.Split(v.Tags, ",") }

func (v logicalVolume) creating() bool { return slices.Contains(v.tags(), creatingTag) }

// logicalVolumes returns the logical volumes of the volume groups with this name. A disk that shows up twice, or
// comes from another machine, may have a second one.
func logicalVolumes(lvm func(args ...string) ([]byte, error), group string) ([]logicalVolume, error) {
	out, err := lvm("lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "-o", lvmFields, "-S", `vg_name="`+group+`"`)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Report []struct {
			LV []logicalVolume `json:"lv"`
		} `json:"report"`
	}
	if err := json.Unmarshal(out, &doc); err != nil || len(doc.Report) == 0 {
		return nil, fmt.Errorf("read the report of lvm: %w: %w", fault.Unavailable, errors.Join(err, errors.New("no report")))
	}
	return doc.Report[0].LV, nil
}
