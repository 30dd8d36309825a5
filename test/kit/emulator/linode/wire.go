package linode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The shapes of the wire, field by field as the API shows them.

type wireVolume struct {
	ID             int      `json:"id"`
	Label          string   `json:"label"`
	Status         string   `json:"status"`
	Size           int      `json:"size"`
	Region         string   `json:"region"`
	LinodeID       *int     `json:"linode_id"`
	LinodeLabel    *string  `json:"linode_label"`
	FilesystemPath string   `json:"filesystem_path"`
	IOReady        bool     `json:"io_ready"`
	Tags           []string `json:"tags"`
	HardwareType   string   `json:"hardware_type"`
	Encryption     string   `json:"encryption"`
	Created        string   `json:"created"`
	Updated        string   `json:"updated"`
	Locks          []string `json:"locks,omitzero"`
}

// stamp is the API's form of a time: UTC, without saying so.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

// long is when everything was made that nobody asks about.
const long = "2024-05-02T07:00:00"

// byID is where a Linode finds a volume.
func byID(label string) string { return "/dev/disk/by-id/" + device(label) }

func (c *Cloud) showVolume(r *request, s *state, v volume) wireVolume {
	shown := wireVolume{
		ID: v.ID, Label: v.Label, Status: v.Status, Size: v.SizeGiB, Region: v.Region, FilesystemPath: byID(v.Label),
		Tags: append([]string{}, v.Tags...), HardwareType: "nvme", Encryption: "disabled",
		IOReady: v.IOReady, Created: stamp(v.Created), Updated: stamp(v.Updated),
	}
	if r.PathValue("apiVersion") == beta {
		shown.Locks = append([]string{}, v.Locks...)
	}
	if v.Encrypted {
		shown.Encryption = "enabled"
	}
	if v.Linode != 0 {
		label := s.linodes[v.Linode].Label
		shown.LinodeID, shown.LinodeLabel = &v.Linode, &label
	}
	return shown
}

// diskMB is the local storage of each Linode.
const diskMB = 160 << 10

func showLinode(l Linode) any {
	return map[string]any{
		"id": l.ID, "label": l.Label, "region": l.Region, "type": "g6-standard-4", "status": l.Status, "group": "",
		"tags": append([]string{}, l.Tags...), "created": long, "updated": long, "image": "linode/ubuntu24.04",
		"hypervisor": "kvm", "watchdog_enabled": true, "has_user_data": false, "host_uuid": hostUUID(l), "lke_cluster_id": nil,
		"ipv4": []string{"192.0.2." + strconv.Itoa(l.ID%250+1)}, "ipv6": "2001:db8::" + strconv.Itoa(l.ID%1000) + "/128", "placement_group": nil, "capabilities": []string{},
		"site_type": "core", "disk_encryption": "enabled", "interface_generation": "legacy_config", "maintenance_policy": "linode/migrate",
		"specs":   map[string]int{"disk": diskMB, "memory": l.MemoryMB, "vcpus": 4, "gpus": 0, "transfer": 4000, "accelerated_devices": 0},
		"alerts":  map[string]int{"cpu": 360, "io": 10000, "network_in": 10, "network_out": 10, "transfer_quota": 80},
		"backups": map[string]any{"enabled": false, "available": false, "last_successful": nil, "schedule": map[string]any{"day": nil, "window": nil}},
	}
}

func hostUUID(l Linode) string {
	return fmt.Sprintf("3a3ddd59d9a78bb8de041391075df44de6%06d", l.ID%1_000_000)
}

func (c *Cloud) showRegion(id string) any {
	return map[string]any{
		"id": id, "label": id, "country": id[:2], "status": "ok", "site_type": "core",
		"capabilities": append([]string{}, c.opts.Regions[id].Capabilities...),
		"resolvers":    map[string]string{"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"},
		"placement_group_limits": map[string]any{
			"maximum_pgs_per_customer": nil, "maximum_linodes_per_pg": 5, "maximum_linodes_per_flexible_pg": 5,
		},
		"monitors": map[string]any{"alerts": []string{}, "metrics": []string{}},
	}
}

// listTypes shows the prices, as linodego's recording TestVolumeType_List has them.
func (c *Cloud) listTypes(r *request) answer {
	return page(c, r, []string{"volume"}, func(id string) any {
		return map[string]any{
			"id": id, "label": "Storage Volume", "price": map[string]any{"hourly": 0.00015, "monthly": 0.1}, "transfer": 0,
			"region_prices": []any{
				map[string]any{"id": "id-cgk", "hourly": 0.00018, "monthly": 0.12},
				map[string]any{"id": "br-gru", "hourly": 0.00021, "monthly": 0.14},
			},
		}
	})
}

// page answers a list request with the page that it asks for.
func page[T any](c *Cloud, r *request, all []T, show func(T) any) answer {
	const usual, least, most = 100, 25, 500
	size, number := queryNumber(r, "page_size", usual), queryNumber(r, "page", 1)
	pages := max(1, (len(all)+size-1)/max(1, size))
	switch {
	case size < least || size > most:
		return c.refuse(badPage)
	case number < 1 || number > pages:
		return c.refuse(notFound) // assumed
	}
	from := (number - 1) * size
	shown := []any{}
	for _, item := range all[from:min(from+size, len(all))] {
		shown = append(shown, show(item))
	}
	return ok(map[string]any{"data": shown, "page": number, "pages": pages, "results": len(all)})
}

// queryNumber returns a parameter, or 0 when it is no number.
func queryNumber(r *request, name string, otherwise int) int {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// values are what a filter can look at: the field's name, and its value or values.
type values map[string][]string

// keeper says whether a filter keeps an item.
type keeper func(values) bool

// order is what "+order_by" and "+order" may ask for.
const order = "created desc"

// filter reads the X-Filter header: what the drivers ask for, of the API's grammar. field is what cannot be filtered on, if there is
// such.
func filter(r *request, fields ...string) (keep keeper, field string) {
	text := r.Header.Get("X-Filter")
	if text == "" {
		return func(values) bool { return true }, ""
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, text
	}
	by, direction := plain(object["+order_by"]), plain(object["+order"])
	if asked := by + " " + direction; by != "" && asked != order {
		return nil, asked
	}
	delete(object, "+order_by")
	delete(object, "+order")
	return all(object, fields)
}

// all reads an object whose members must all hold.
func all(object map[string]json.RawMessage, fields []string) (keep keeper, field string) {
	var parts []keeper
	for name, value := range object {
		part, known := compare(name, value), slices.Contains(fields, name)
		if name == "+or" {
			var wrong string
			if part, wrong = one(value, fields); wrong != "" {
				return nil, wrong
			}
			known = true
		}
		if !known || part == nil {
			return nil, name
		}
		parts = append(parts, part)
	}
	return func(v values) bool {
		return !slices.ContainsFunc(parts, func(part keeper) bool { return !part(v) })
	}, ""
}

// one reads a list of objects of which one must hold.
func one(value json.RawMessage, fields []string) (keep keeper, field string) {
	var objects []map[string]json.RawMessage
	if err := json.Unmarshal(value, &objects); err != nil {
		return nil, string(value)
	}
	var parts []keeper
	for _, object := range objects {
		part, wrong := all(object, fields)
		if wrong != "" {
			return nil, wrong
		}
		parts = append(parts, part)
	}
	return func(v values) bool {
		return slices.ContainsFunc(parts, func(part keeper) bool { return part(v) })
	}, ""
}

// compare reads what a field must be or contain; nil: it is asked for in another way.
func compare(name string, value json.RawMessage) keeper {
	var operators map[string]json.RawMessage
	if json.Unmarshal(value, &operators) != nil {
		want := plain(value)
		return func(v values) bool { return slices.Contains(v[name], want) }
	}
	contains, is := operators["+contains"]
	if !is || len(operators) > 1 {
		return nil
	}
	want := plain(contains)
	return func(v values) bool {
		return slices.ContainsFunc(v[name], func(have string) bool { return strings.Contains(have, want) })
	}
}

// plain returns a JSON text or number as a text.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func (c *Cloud) refuseFilter(field string) answer {
	why := badFilter
	why.reason += " " + field
	return c.refuse(why)
}
