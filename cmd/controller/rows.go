package main

import (
	"fmt"
	"io"
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
	// Claimed is whether --claimed lists it; absent without that flag.
	Claimed *bool  `json:"claimed,omitempty"`
	Problem string `json:"problem,omitempty"`

	made   bool // by this driver, for any cluster
	orphan bool // in a pool: not a whole volume or snapshot
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

func countOrphans(rows []row) (n int) {
	for i := range rows {
		if rows[i].orphan {
			n++
		}
	}
	return n
}

// column is a column of the table.
type column struct {
	head  string
	value func(r *row) string
}

// columns are all columns. A column without a value in any row is omitted.
var columns = []column{
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
	{"CLUSTER", func(r *row) string { return r.Cluster }},
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

// printRows prints the list as a table.
func printRows(w io.Writer, rows []row) error {
	shown := slices.Clone(columns)
	if len(rows) > 0 {
		shown = slices.DeleteFunc(shown, func(c column) bool {
			return !slices.ContainsFunc(rows, func(r row) bool { return c.value(&r) != "" })
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
