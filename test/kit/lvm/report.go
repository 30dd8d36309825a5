package lvm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// reportGroups is vgs -S vg_name="NAME": with fields of disks a row for each disk. All its values are text, as LVM's are.
func (h *Host) reportGroups(c command) ([]byte, error) {
	rows := []map[string]string{}
	for _, g := range h.groups {
		if c.options["-S"] != `vg_name="`+g.Name+`"` {
			continue
		}
		disks := [][2]int{{g.Drained, len(g.Dirty)}}
		if g.Drained > 0 && strings.Contains(c.options["-o"], ",pv_") {
			disks = append(disks, [2]int{0, g.Drained})
		}
		for _, disk := range disks {
			rows = append(rows, map[string]string{
				"vg_name": g.Name, "vg_uuid": g.UUID, "vg_tags": strings.Join(g.Tags, ","), "vg_extent_size": text(g.Extent),
				"vg_extent_count": text(int64(len(g.Dirty))), "vg_free_count": text(int64(len(g.unused(0, len(g.Dirty))))),
				"vg_missing_pv_count": text(int64(g.Missing)), "vg_mda_free": text(g.FreeMetadata),
				"pv_allocatable": word(disk[0] == g.Drained, "allocatable"), "pv_pe_count": text(int64(disk[1] - disk[0])),
				"pv_pe_alloc_count": text(int64(disk[1] - disk[0] - len(g.unused(disk[0], disk[1])))),
			})
		}
	}
	return json.Marshal(map[string]any{"report": []any{map[string]any{"vg": rows}}})
}

// reportVolumes is lvs -S vg_uuid="UUID", or lvs --segments VG/LV.
func (h *Host) reportVolumes(c command) ([]byte, error) {
	if c.options["--segments"] != "" {
		_, v, err := h.find(c.targets[0])
		if err != nil {
			return nil, err
		}
		var places []string
		for _, e := range v.Extents {
			places = append(places, fmt.Sprintf("/dev/vda:%d-%d", e, e))
		}
		return json.Marshal(map[string]any{"report": []any{map[string]any{"seg": []any{map[string]string{"seg_pe_ranges": strings.Join(places, " ")}}}}})
	}
	rows := []map[string]string{}
	for _, g := range h.groups {
		if c.options["-S"] != `vg_uuid="`+g.UUID+`"` {
			continue
		}
		for _, v := range g.Volumes {
			rows = append(rows, map[string]string{
				"lv_name": v.Name, "lv_uuid": v.UUID, "lv_size": text(int64(len(v.Extents)) * g.Extent), "lv_layout": "linear",
				"lv_role": cmp.Or(v.Role, "public"), "lv_tags": strings.Join(v.Tags, ","), "lv_active": word(v.Active, "active"),
				"lv_device_open": v.device(v.Open, "open"), "lv_suspended": v.device(v.Suspended, "suspended"),
				"lv_inactive_table": v.device(v.Loaded != nil, "inactive table present"), "lv_health_status": v.Health,
			})
		}
	}
	return json.Marshal(map[string]any{"report": []any{map[string]any{"lv": rows}}})
}

// device is what LVM says of a device. Of one that is not there it says that it does not know.
func (v *Volume) device(is bool, text string) string {
	if !v.Active && !is {
		return "unknown"
	}
	return word(is, text)
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

func word(is bool, text string) string {
	if is {
		return text
	}
	return ""
}
