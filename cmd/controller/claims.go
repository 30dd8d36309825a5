package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// settleTime is how much older than the list of --claimed an object has to be before it can be an orphan. The object exists before the
// cluster has a PersistentVolume for it, and reading and writing the list takes time.
const settleTime = time.Hour

// claims is what the cluster has according to --claimed.
type claims struct {
	// handles are those of all volumes and snapshots.
	handles []string
	// known: some of them are those of objects in the account or the pools that are this cluster's or have no mark. Set by judge.
	known bool

	// objects: the file has the objects of the cluster and not only handles. The rest is set only then.
	objects   bool
	volumes   []object // PersistentVolumes
	contents  []object // VolumeSnapshotContents
	byName    map[string]*object
	open      []*object // claims whose volume is unknown: none was created yet, or its PersistentVolume is not listed
	listed    time.Time // when the list was written, or earlier
	since     string    // what that is the time of
	noVolumes string    // why no volume can be judged; "": they can
}

// object is a PersistentVolume, a PersistentVolumeClaim or a VolumeSnapshotContent: the fields of them that are used.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace, UID, Continue string
		CreationTimestamp              time.Time
		Annotations                    map[string]string
	}
	Spec struct {
		CSI                     struct{ VolumeHandle string }                 // of a volume
		ClaimRef                struct{ Namespace, Name, UID string }         // of a volume
		StorageClassName        string                                        // of a volume or claim
		VolumeName              string                                        // of a claim
		Source                  struct{ VolumeHandle, SnapshotHandle string } // of a content
		VolumeSnapshotRef       struct{ Namespace string }                    // of a content
		VolumeSnapshotClassName string                                        // of a content
	}
	Status struct {
		Phase, SnapshotHandle string
		Conditions            []struct {
			Type, Status       string
			LastTransitionTime time.Time
		}
	}
	Items []object // of a List
}

// handle returns the handle of the volume of a PersistentVolume, or of the snapshot of a VolumeSnapshotContent; "": it has none yet.
func (o *object) handle() string {
	switch {
	case o.Kind == "PersistentVolume":
		return o.Spec.CSI.VolumeHandle
	case o.Status.SnapshotHandle != "":
		return o.Status.SnapshotHandle
	}
	return o.Spec.Source.SnapshotHandle
}

// readClaims reads the file of --claimed, or the standard input for -. It has a handle on each line, or the objects of the cluster as
// JSON. A file without any handle is an error, because then nothing would be claimed.
func readClaims(name string) (*claims, error) {
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))) // a byte order mark, which some shells write
	c := &claims{objects: bytes.HasPrefix(text, []byte("{"))}
	if c.objects {
		err = c.readObjects(text)
	} else {
		err = c.readHandles(string(text))
	}
	if err != nil {
		return nil, err
	}
	if len(c.handles) == 0 {
		return nil, errors.New("it has no handle")
	}
	if info.Mode().IsRegular() {
		c.listed, c.since = info.ModTime(), "the file of --claimed was written"
	} else { // the time of a pipe is that of its last use
		c.since = "the newest object in --claimed, which was piped, so nothing else says how old it is"
	}
	return c, nil
}

// readHandles reads handles with any space between them, as the formats of kubectl print them. It refuses text in another form, of which
// no word would be the handle of a row.
func (c *claims) readHandles(text string) error {
	c.handles = strings.Fields(text)
	for _, handle := range c.handles {
		if !utf8.ValidString(handle) || strings.ContainsAny(handle, "\x00\"',") {
			return fmt.Errorf("%.80q is no handle; write one on each line, without quotes and commas, or the objects as JSON, in UTF-8", handle)
		}
	}
	return nil
}

// readObjects reads the output of `kubectl get -o json`, or several of them.
func (c *claims) readObjects(text []byte) error {
	c.byName = map[string]*object{}
	var own []object // claims
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := in.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("as JSON: %w", err)
		}
		items := []object{o}
		if o.Kind == "List" {
			items = o.Items
		}
		if o.Metadata.Continue != "" {
			return errors.New("the list is only the first part of a list")
		}
		for _, item := range items {
			if created := item.Metadata.CreationTimestamp; created.After(c.listed) {
				c.listed = created
			}
			switch item.Kind {
			case "PersistentVolume":
				c.volumes = append(c.volumes, item)
			case "VolumeSnapshotContent":
				c.contents = append(c.contents, item)
			case "PersistentVolumeClaim":
				own = append(own, item)
			default:
				return fmt.Errorf("it has an object of kind %q, and only PersistentVolumes, PersistentVolumeClaims and VolumeSnapshotContents are expected", item.Kind)
			}
		}
	}
	c.connect(own)
	return nil
}

// connect finds the claims of the volumes, and what is missing.
func (c *claims) connect(own []object) {
	listed := map[string]bool{}
	for i := range c.volumes {
		listed[c.volumes[i].Metadata.Name] = true
	}
	for i := range own {
		o := &own[i]
		c.byName[o.Metadata.Namespace+"/"+o.Metadata.Name] = o
		if o.asksForVolume() && !listed[o.Spec.VolumeName] {
			c.open = append(c.open, o)
		}
	}
	switch {
	case len(c.volumes) == 0:
		c.noVolumes = "the file of --claimed has no PersistentVolume"
	case len(own) == 0:
		c.noVolumes = "the file of --claimed has no PersistentVolumeClaim"
	}
	for _, list := range [][]object{c.volumes, c.contents} {
		for i := range list {
			if handle := list[i].handle(); handle != "" {
				c.handles = append(c.handles, handle)
			}
		}
	}
	for i := range c.volumes {
		v := &c.volumes[i]
		if c.noVolumes == "" && v.Status.Phase == "Bound" && c.claimOf(v) == nil {
			c.noVolumes = fmt.Sprintf("the file of --claimed lacks the claim %s/%s of PersistentVolume %s; list the claims of all namespaces", v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name, v.Metadata.Name)
		}
	}
}

// asksForVolume reports whether a provisioner may have created a volume for a claim.
func (o *object) asksForVolume() bool {
	const provisioner = "kubernetes.io/storage-provisioner"
	return o.Spec.VolumeName != "" || o.Metadata.Annotations["volume."+provisioner] != "" || o.Metadata.Annotations["volume.beta."+provisioner] != ""
}

// claimOf returns the claim of a PersistentVolume; nil: there is none.
func (c *claims) claimOf(volume *object) *object {
	ref := volume.Spec.ClaimRef
	if o := c.byName[ref.Namespace+"/"+ref.Name]; o != nil && o.Metadata.UID == ref.UID {
		return o
	}
	return nil
}

// The values of row.Orphan, with unknown.
const (
	orphanYes = "yes"
	orphanNo  = "no"
)

// foreignList says that a list may be that of another cluster.
const foreignList = "--claimed has nothing of this cluster that is here, so it may be another cluster's list; compare kubectl's context with --cluster-id"

// judge sets what the list says about each row: whether it is claimed, by what, since when no pod uses it, and whether it is an orphan.
// A nil list says nothing.
func (c *claims) judge(rows []row) {
	if c == nil {
		return
	}
	for i := range rows {
		r := &rows[i]
		r.Claimed = new(slices.ContainsFunc(c.handles, r.hasHandle))
		c.known = c.known || *r.Claimed && (r.Ours || !r.made)
	}
	for i := range rows {
		r := &rows[i]
		if !c.objects {
			continue
		}
		c.describe(r)
		if *r.Claimed || r.made && (!r.Ours || r.Temporary) {
			r.Orphan = orphanNo
		} else if r.doubt = c.doubt(r); r.doubt != "" {
			r.Orphan = unknown
		} else {
			r.Orphan = orphanYes
		}
	}
}

// describe sets the names and the class of a row as its object in the cluster has them.
func (c *claims) describe(r *row) {
	list := c.volumes
	if r.Kind == kindSnapshot {
		list = c.contents
	}
	at := slices.IndexFunc(list, func(o object) bool { return r.hasHandle(o.handle()) })
	if at < 0 {
		return
	}
	o := &list[at]
	if r.Kind == kindSnapshot {
		r.Namespace, r.Class = o.Spec.VolumeSnapshotRef.Namespace, o.Spec.VolumeSnapshotClassName
		return
	}
	r.PV, r.Class = o.Metadata.Name, o.Spec.StorageClassName
	if ref := o.Spec.ClaimRef; ref.Name != "" {
		r.Namespace, r.Claim = ref.Namespace, ref.Name
	}
	claim := c.claimOf(o)
	if claim == nil {
		return
	}
	for _, cond := range claim.Status.Conditions {
		switch {
		case cond.Type != "Unused":
		case cond.Status == "False":
			r.used = true
		case cond.Status == "True" && !cond.LastTransitionTime.IsZero():
			r.UnusedSince = &cond.LastTransitionTime
		}
	}
}

// doubt returns why an unclaimed row may still not be an orphan; "": it is one.
func (c *claims) doubt(r *row) string {
	switch {
	case !r.Ours:
		return "nothing on it says whose it is"
	case !c.known:
		return foreignList
	case r.Kind == kindVolume && c.noVolumes != "":
		return c.noVolumes
	case r.Kind == kindSnapshot && len(c.contents) == 0:
		return "the file of --claimed has no VolumeSnapshotContent"
	case len(r.AttachedTo) > 0 || r.InUse != nil && *r.InUse:
		return "it is attached or in use"
	case r.Created == nil || r.Created.IsZero():
		return "nothing says when it was created"
	case r.Created.After(c.listed.Add(-settleTime)):
		return fmt.Sprintf("it was not created at least %s before %s", settleTime, c.since)
	case r.Kind == kindSnapshot && slices.ContainsFunc(c.contents, func(o object) bool {
		return o.handle() == "" && (r.SnapshotOf == "" || (&row{ID: r.SnapshotOf}).hasHandle(o.Spec.Source.VolumeHandle))
	}):
		return "a VolumeSnapshotContent of its volume has no snapshot yet"
	case r.Kind == kindVolume && slices.ContainsFunc(c.open, r.mayBeFor):
		return "a PersistentVolumeClaim has no PersistentVolume yet, and it may have been created for that"
	}
	return ""
}

// mayBeFor reports whether a volume may have been created for a claim. Clouds change and cut the names in tags; without them the volume
// may be for any claim.
func (r *row) mayBeFor(claim *object) bool {
	return matchesTag(claim.Metadata.Namespace, r.Namespace) && matchesTag(claim.Metadata.Name, r.Claim)
}

// matchesTag reports whether a tag may have been written for the name of an object.
func matchesTag(name, tag string) bool {
	plain := func(s string) string {
		return strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				return c
			}
			return '_'
		}, strings.ToLower(s))
	}
	return strings.HasPrefix(plain(name), plain(tag))
}
