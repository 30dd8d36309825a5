package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

const (
	kindVolume   = "volume"
	kindSnapshot = "snapshot"

	// unknown is in a row and in a sum what nothing says, and never stands for "none".
	unknown = "unknown"
)

// row is a volume, a snapshot or an orphan in the list of the sub-command "volumes". Its JSON form is for scripts and does not
// change.
type row struct {
	// ID is the handle of the volume or snapshot; empty for another file in a pool.
	ID         string         `json:"id,omitempty"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name,omitempty"`
	Size       int64          `json:"size"`
	Zone       string         `json:"zone,omitempty"`
	AttachedTo []cloud.NodeID `json:"attachedTo,omitempty"`

	// In a cloud: Cluster is the --cluster-id of the object's creator, Temporary is whether it is an intermediate object of a
	// clone.
	Cluster   string `json:"cluster,omitempty"`
	Ours      bool   `json:"ours"` // this cluster's driver created it, or it is in a pool
	Temporary bool   `json:"temporary,omitempty"`

	// In a pool: File is the image, State its state or what is missing, Allocated its bytes on the disk, UsedBy its current user.
	Pool      string `json:"pool,omitempty"`
	File      string `json:"file,omitempty"`
	State     string `json:"state,omitempty"`
	Allocated *int64 `json:"allocated,omitempty"`
	InUse     *bool  `json:"inUse,omitempty"`
	UsedBy    string `json:"usedBy,omitempty"`

	Namespace string     `json:"pvcNamespace,omitempty"`
	Claim     string     `json:"pvc,omitempty"`
	PV        string     `json:"pv,omitempty"`
	Created   *time.Time `json:"created,omitempty"`
	// SnapshotOf is the source volume of a snapshot; Source is the source of a volume in a pool.
	SnapshotOf string `json:"snapshotOf,omitempty"`
	Source     string `json:"source,omitempty"`
	// Claimed is whether --claimed lists it; absent without that flag. With the objects of the cluster in the file there are also Class, the
	// name of its StorageClass or VolumeSnapshotClass, Orphan (yes, no or unknown), and UnusedSince, when its claim's condition says
	// that its last pod has ended.
	Claimed     *bool      `json:"claimed,omitempty"`
	Class       string     `json:"class,omitempty"`
	Orphan      string     `json:"orphan,omitempty"`
	UnusedSince *time.Time `json:"unusedSince,omitempty"`
	// Unused is set with --unused: yes if UnusedSince is that long ago, unknown if the volume is attached nowhere and nothing says since when.
	Unused string `json:"unused,omitempty"`
	// Price is that of a month; absent if nothing says what it costs.
	Price   *float64 `json:"pricePerMonth,omitempty"`
	Problem string   `json:"problem,omitempty"`

	made    bool   // by this driver, for any cluster
	damaged bool   // in a pool: not a whole volume or snapshot
	used    bool   // its claim's condition says that a pod uses it
	doubt   string // why Orphan is unknown
}

// hasHandle reports whether a handle belongs to this row. The handles of one vendor's driver have something after the id.
func (r *row) hasHandle(handle string) bool {
	return r.ID != "" && (handle == r.ID || strings.HasPrefix(handle, r.ID+"-"))
}

// setTag stores what a tag of a volume has about its PersistentVolumeClaim and PersistentVolume.
func (r *row) setTag(key, value string) {
	switch key {
	case "cloudblock-pvc-namespace":
		r.Namespace = value
	case "cloudblock-pvc":
		r.Claim = value
	case "cloudblock-pv":
		r.PV = value
	}
}

// owner returns the cluster of a row for people: "unknown" if nothing on it says whose it is.
func (r *row) owner() string {
	switch {
	case r.Cluster != "" || r.Pool != "":
		return r.Cluster
	case r.made:
		return "another"
	}
	return unknown
}

// column is a column of a table.
type column[T any] struct {
	head  string
	value func(r *T) string
}

// columns are those of the list.
var columns = []column[row]{
	{"ID", func(r *row) string {
		if r.ID == "" {
			return r.File
		}
		return r.ID
	}},
	{"KIND", func(r *row) string { return r.Kind }},
	{"CLAIM", func(r *row) string {
		switch {
		case r.Temporary:
			return "temporary, of a clone"
		case r.Claim != "":
			return r.Namespace + "/" + r.Claim
		case r.SnapshotOf != "":
			return "snapshot of " + r.SnapshotOf
		}
		return ""
	}},
	{"NAME", func(r *row) string { return r.Name }},
	{"SIZE", func(r *row) string { return cloud.Bytes(r.Size).String() }},
	{"ALLOCATED", func(r *row) string {
		if r.Allocated == nil {
			return ""
		}
		return strconv.FormatFloat(float64(*r.Allocated)/(1<<20), 'f', 1, 64) + " MiB"
	}},
	{"ZONE", func(r *row) string { return r.Zone }},
	{"ATTACHED TO", func(r *row) string {
		var nodes []string
		for _, n := range r.AttachedTo {
			nodes = append(nodes, string(n))
		}
		return strings.Join(nodes, ",")
	}},
	{"IN USE", func(r *row) string { return r.UsedBy }},
	{"CLAIMED", func(r *row) string {
		if r.Claimed == nil {
			return ""
		}
		return map[bool]string{true: "yes", false: "no"}[*r.Claimed]
	}},
	{"ORPHAN", func(r *row) string { return r.Orphan }},
	{"UNUSED SINCE", func(r *row) string {
		switch {
		case r.Unused == unknown:
			return "unattached now, time unknown"
		case r.UnusedSince != nil:
			return r.UnusedSince.Format(time.RFC3339)
		}
		return ""
	}},
	{"PRICE/MONTH", func(r *row) string { return money(r.Price) }},
	{"CLUSTER", (*row).owner},
	{"CREATED", func(r *row) string {
		if r.Created == nil || r.Pool == "" {
			return ""
		}
		return r.Created.Format(time.RFC3339)
	}},
	{"STATE", func(r *row) string {
		if r.State != "" && r.Problem != "" {
			return r.State + ": " + r.Problem
		}
		return r.State + r.Problem
	}},
}

// printRows prints rows as a table without the columns that have no value in any row.
func printRows[T any](w io.Writer, rows []T, columns []column[T]) error {
	shown := slices.Clone(columns)
	if len(rows) > 0 {
		shown = slices.DeleteFunc(shown, func(c column[T]) bool {
			return !slices.ContainsFunc(rows, func(r T) bool { return c.value(&r) != "" })
		})
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var heads []string
	for _, c := range shown {
		heads = append(heads, c.head)
	}
	fmt.Fprintln(tw, strings.Join(heads, "\t")) //nolint:errcheck // Flush returns it
	for i := range rows {
		var cells []string
		for _, c := range shown {
			cells = append(cells, printable(c.value(&rows[i])))
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t")) //nolint:errcheck // Flush returns it
	}
	return tw.Flush()
}

// printCSV prints rows as CSV. Its columns are the fields of the JSON form, all and always in the same order.
func printCSV[T any](w io.Writer, rows []T) error {
	out, shape := csv.NewWriter(w), reflect.TypeFor[T]()
	var heads []string
	for i := range shape.NumField() {
		if name, _, _ := strings.Cut(shape.Field(i).Tag.Get("json"), ","); name != "" {
			heads = append(heads, name)
		}
	}
	_ = out.Write(heads) // Error returns it
	for _, r := range rows {
		var cells []string
		for i := range shape.NumField() {
			if shape.Field(i).Tag.Get("json") != "" {
				cells = append(cells, cell(reflect.ValueOf(r).Field(i)))
			}
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return out.Error()
}

// cell returns the value of a field for CSV; "" for one that is not set.
func cell(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch v := v.Interface().(type) {
	case time.Time:
		return v.Format(time.RFC3339)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []cloud.NodeID:
		return strings.Trim(fmt.Sprint(v), "[]")
	default:
		return fmt.Sprint(v)
	}
}

// money returns a price for people, in hundredths; "" for none.
func money(price *float64) string {
	if price == nil {
		return ""
	}
	return strconv.FormatFloat(*price, 'f', 2, 64)
}

// printable quotes text that could disturb the table or the terminal; names come from outside.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	for _, c := range s {
		if !strconv.IsPrint(c) {
			return strconv.Quote(s)
		}
	}
	return s
}

// sum is the sum of the rows of a group. Its JSON form is for scripts and does not change.
type sum struct {
	// The keys of --sum-by that the group has.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"pvcNamespace,omitempty"`
	Class     string `json:"class,omitempty"`
	Orphan    string `json:"orphan,omitempty"`
	Unused    string `json:"unused,omitempty"`

	Volumes     int     `json:"volumes"`
	GiB         float64 `json:"gib"`
	Snapshots   int     `json:"snapshots"`
	SnapshotGiB float64 `json:"snapshotGiB"`
	// Price is that of the rows that have one, absent if none has; Unpriced is the number of the others.
	Price    *float64 `json:"pricePerMonth,omitempty"`
	Unpriced int      `json:"withoutPrice"`
	// Orphans are the rows that are orphans, UnknownOrphans those of which it is unknown.
	Orphans        int `json:"orphans"`
	UnknownOrphans int `json:"orphansUnknown"`
}

// sumKeys are the keys of --sum-by: the value of a row, and where a sum has it.
var sumKeys = map[string]struct {
	of func(r *row) string
	in func(s *sum) *string
}{
	"cluster":   {(*row).owner, func(s *sum) *string { return &s.Cluster }},
	"namespace": {func(r *row) string { return r.Namespace }, func(s *sum) *string { return &s.Namespace }},
	"class":     {func(r *row) string { return r.Class }, func(s *sum) *string { return &s.Class }},
	"orphan":    {func(r *row) string { return r.Orphan }, func(s *sum) *string { return &s.Orphan }},
	"unused":    {func(r *row) string { return r.Unused }, func(s *sum) *string { return &s.Unused }},
}

// sumColumns are those of sums.
var sumColumns = []column[sum]{
	{"CLUSTER", func(s *sum) string { return s.Cluster }},
	{"NAMESPACE", func(s *sum) string { return s.Namespace }},
	{"CLASS", func(s *sum) string { return s.Class }},
	{"ORPHAN", func(s *sum) string { return s.Orphan }},
	{"UNUSED", func(s *sum) string { return s.Unused }},
	{"VOLUMES", func(s *sum) string { return strconv.Itoa(s.Volumes) }},
	{"GIB", func(s *sum) string { return strconv.FormatFloat(s.GiB, 'f', -1, 64) }},
	{"SNAPSHOTS", func(s *sum) string { return strconv.Itoa(s.Snapshots) }},
	{"SNAPSHOT GIB", func(s *sum) string { return strconv.FormatFloat(s.SnapshotGiB, 'f', -1, 64) }},
	{"PRICE/MONTH", func(s *sum) string { return money(s.Price) }},
	{"WITHOUT PRICE", func(s *sum) string { return strconv.Itoa(s.Unpriced) }},
	{"ORPHANS", func(s *sum) string { return strconv.Itoa(s.Orphans) }},
	{"ORPHANS UNKNOWN", func(s *sum) string { return strconv.Itoa(s.UnknownOrphans) }},
}

// sumBy returns the sums of the groups of rows with equal keys, ordered by the keys. What a row does not say is "unknown".
func sumBy(rows []row, keys []string) []sum {
	sums, at := []sum{}, map[sum]int{}
	for i := range rows {
		var group sum
		for _, key := range keys {
			*sumKeys[key].in(&group) = cmp.Or(sumKeys[key].of(&rows[i]), unknown)
		}
		if _, known := at[group]; !known {
			at[group] = len(sums)
			sums = append(sums, group)
		}
		sums[at[group]].add(&rows[i])
	}
	slices.SortFunc(sums, func(a, b sum) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Orphan, b.Orphan), cmp.Compare(a.Unused, b.Unused))
	})
	return sums
}

func (s *sum) add(r *row) {
	gib := float64(r.Size) / (1 << 30)
	if r.Kind == kindSnapshot {
		s.Snapshots++
		s.SnapshotGiB += gib
	} else {
		s.Volumes++
		s.GiB += gib
	}
	if r.Price == nil {
		s.Unpriced++
	} else {
		if s.Price == nil {
			s.Price = new(0.0)
		}
		*s.Price = millionths(*s.Price + *r.Price)
	}
	switch r.Orphan {
	case orphanYes:
		s.Orphans++
	case orphanNo:
	default:
		s.UnknownOrphans++
	}
}

// millionths rounds a price to millionths, so that sums of decimal prices are exact decimals again.
func millionths(price float64) float64 { return math.Round(price*1e6) / 1e6 }
