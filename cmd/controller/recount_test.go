package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// listing is what the caller gives to --claimed: the objects of a cluster, or less.
type listing struct {
	handles                    bool // only these
	volumes, claims, snapshots bool // which kinds of objects it has
	age                        time.Duration
}

// tally counts what the reports of histories said.
type tally struct{ Reports, Objects, Orphans, Unknown int }

func (a *tally) add(b tally) {
	a.Reports, a.Objects, a.Orphans, a.Unknown = a.Reports+b.Reports, a.Objects+b.Objects, a.Orphans+b.Orphans, a.Unknown+b.Unknown
}

type jsonObject = map[string]any

// objectsOf renders the objects of a cluster as kubectl does.
func (h *history) objectsOf(cluster string, l listing) (items []jsonObject, handles []string) {
	claim := func(e *entry, volume, phase string) jsonObject {
		return jsonObject{
			"kind": "PersistentVolumeClaim", "metadata": jsonObject{
				"namespace": e.ns, "name": e.name, "uid": fmt.Sprint("u", e.uid),
				"annotations": map[string]string{"volume.kubernetes.io/storage-provisioner": "csi.example"},
			}, "spec": jsonObject{"volumeName": volume}, "status": jsonObject{"phase": phase},
		}
	}
	add := func(wanted bool, item jsonObject, handle string) {
		if wanted {
			items = append(items, item)
			if handle != "" {
				handles = append(handles, handle)
			}
		}
	}
	for _, e := range h.alone[cluster] {
		add(l.claims, claim(e, "", "Pending"), "")
	}
	for _, v := range h.things {
		e, name, phase := v.in[cluster], "", "Released"
		if e == nil {
			continue
		}
		if v.kind == kindSnapshot {
			add(l.snapshots, jsonObject{
				"kind": "VolumeSnapshotContent", "metadata": jsonObject{"name": fmt.Sprint("content-", e.uid)}, "spec": jsonObject{
					"volumeSnapshotRef": jsonObject{"namespace": e.ns}, "volumeSnapshotClassName": e.class, "source": jsonObject{"volumeHandle": e.of},
				}, "status": jsonObject{"snapshotHandle": e.handle},
			}, e.handle)
			continue
		}
		if name = fmt.Sprint("pv-", e.uid); e.claimed {
			phase = "Bound"
		}
		add(l.volumes && e.volume, jsonObject{
			"kind": "PersistentVolume", "metadata": jsonObject{"name": name}, "spec": jsonObject{
				"csi": jsonObject{"volumeHandle": e.handle}, "storageClassName": e.class, "claimRef": jsonObject{"namespace": e.ns, "name": e.name, "uid": fmt.Sprint("u", e.uid)},
			}, "status": jsonObject{"phase": phase},
		}, e.handle)
		switch {
		case e.pending:
			name, phase = "", "Pending"
		case !e.volume:
			phase = "Lost"
		}
		add(l.claims && e.claimed, claim(e, name, phase), "")
	}
	return items, handles
}

// write writes the file for --claimed, and reports whether it has a handle.
func (h *history) write(file, cluster string, l listing) bool {
	h.t.Helper()
	items, handles := h.objectsOf(cluster, l)
	text, err := json.Marshal(jsonObject{"kind": "List", "items": items, "metadata": jsonObject{"resourceVersion": ""}})
	ok(h.t, err)
	if l.handles {
		text = []byte(strings.Join(handles, "\n"))
	}
	ok(h.t, os.WriteFile(file, text, 0o600))
	at := time.Now().Add(l.age)
	ok(h.t, os.Chtimes(file, at, at))
	return len(handles) > 0
}

// expected returns what a cluster's report has to say about a thing: whether it is an orphan.
func (h *history) expected(v *thing, cluster string, l listing) string {
	var claims, open []*entry // with a claim, and without a listed volume
	volumes, contents, half := 0, 0, false
	for _, other := range h.things {
		switch e := other.in[cluster]; {
		case e == nil:
		case other.kind == kindSnapshot:
			contents++
			half = half || e.pending && e.of == v.of
		default:
			if e.volume {
				volumes++
			}
			if e.claimed {
				claims = append(claims, e)
			}
			if e.claimed && !e.volume {
				open = append(open, e)
			}
		}
	}
	claims, open = append(claims, h.alone[cluster]...), append(open, h.alone[cluster]...)
	e := v.in[cluster]
	listed := e != nil && e.handle != "" && (v.kind == kindVolume && e.volume && l.volumes || v.kind == kindSnapshot && l.snapshots)
	switch {
	case l.handles:
		return ""
	case listed:
		return "no"
	case v.maker == "":
		return "unknown"
	case v.maker != cluster || v.temporary:
		return "no"
	case v.attached || l.age < time.Hour,
		v.kind == kindVolume && (!l.volumes || volumes == 0 || !l.claims || len(claims) == 0),
		v.kind == kindVolume && slices.ContainsFunc(open, func(o *entry) bool { return !v.tagged || o.ns == v.ns && o.name == v.claim }),
		v.kind == kindSnapshot && (!l.snapshots || contents == 0 || half):
		return "unknown"
	}
	return "yes"
}

// checkReport compares the report of a cluster with the history and with the account.
func (h *history) checkReport(cluster, file string) tally {
	h.t.Helper()
	l := listing{volumes: true, claims: true, snapshots: true, age: 2 * time.Hour}
	switch h.rand.IntN(14) {
	case 0:
		l.handles = true
	case 1:
		l.volumes = false
	case 2:
		l.claims = false
	case 3:
		l.snapshots = false
	case 4:
		l.age = 30 * time.Minute // everything is younger than the list may be
	}
	flags := []string{"--cluster-id=" + cluster, "--all", "--claimed=" + file}
	if !h.write(file, cluster, l) {
		if _, err := h.volumes(flags...); err == nil || !strings.Contains(err.Error(), "no handle") {
			h.t.Errorf("%s: a list without handles: %v", cluster, err)
		}
		return tally{}
	}
	said := tally{Reports: 1}
	rows := map[string]row{}
	for _, r := range h.rowsOf(append(flags, "--output=json")...) {
		rows[r.ID] = r
	}
	if ids := h.ids(); len(rows) != len(ids) || len(rows) != len(h.things) {
		h.t.Errorf("%s: %d rows for %d objects and %d in the history", cluster, len(rows), len(ids), len(h.things))
	}
	for _, v := range h.things {
		said.Objects++
		r, there := rows[v.id]
		want := h.expected(v, cluster, l)
		if !there || r.Kind != v.kind || r.Orphan != want {
			h.t.Errorf("%s, %+v: %s is an orphan: %q, want %q (%+v)", cluster, l, v.id, r.Orphan, want, *v)
		}
		switch {
		case r.Orphan == "yes" && (v.needed || v.maker != cluster || v.temporary || v.attached):
			h.t.Errorf("%s, %+v: %s is WRONGLY called an orphan: %+v", cluster, l, v.id, *v)
		case r.Orphan == "yes":
			said.Orphans++
		case r.Orphan == "unknown":
			said.Unknown++
		}
	}
	return said
}

func (h *history) rowsOf(flags ...string) []row {
	h.t.Helper()
	out, err := h.volumes(flags...)
	return listed[row](h.t, out, err)
}
