package digitalocean

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
)

// A record has what the driver stores with a volume, with the keys that are tags in other clouds. It is a line in the volume's description:
// every token that can read the volume can read it, whereas tags need additional scopes, and a tag stays in the account when its
// volume is deleted.
type record map[string]string

// The keys of a record, in the order of the line.
var (
	ownKeys = []string{tags.Hash, tags.Cluster, tags.FromSnapshot, tags.FromVolume}
	// nameKeys are informational. One that does not fit is left out.
	nameKeys = []string{tags.Own + "pvc-namespace", tags.Own + "pvc", tags.Own + "pv"}
)

const (
	// description is the prefix of the line.
	description = "Created by cloudblock-csi"
	// maxDescription is the maximum length of the line. The cloud does not document one.
	maxDescription = 255
)

var (
	recordWord = regexp.MustCompile(`^[a-zA-Z0-9_.:-]+$`)
	fullHash   = regexp.MustCompile(`^[0-9a-v]{26}$`)
)

// line returns a record as text, such as "Created by cloudblock-csi; name-hash=...; cluster=prod; pvc-namespace=shop; pvc=data".
func (r record) line() string {
	line := description
	for _, key := range slices.Concat(ownKeys, nameKeys) {
		entry := "; " + strings.TrimPrefix(key, tags.Own) + "=" + r[key]
		if r[key] != "" && (slices.Contains(ownKeys, key) || len(line)+len(entry) <= maxDescription) {
			line += entry
		}
	}
	return line
}

// parseRecord parses a description; false if line did not write it.
func parseRecord(text string) (record, bool) {
	entries := strings.Split(text, "; ")
	r := record{}
	for _, entry := range entries[1:] {
		key, value, _ := strings.Cut(entry, "=")
		if !recordWord.MatchString(value) {
			return nil, false
		}
		r[tags.Own+key] = value
	}
	return r, r.line() == text && fullHash.MatchString(r[tags.Hash])
}

// newRecord returns the record of a new volume. Unusual characters in the names of Kubernetes objects become '_'.
func (c *Cloud) newRecord(req cloud.CreateVolumeRequest) record {
	r := record{
		tags.Hash: cloud.FullHash(req.Name), tags.Cluster: c.cluster,
		tags.FromSnapshot: string(req.Source.Snapshot), tags.FromVolume: string(req.Source.Volume),
	}
	for _, t := range req.Tags {
		if slices.Contains(nameKeys, t.Key) {
			r[t.Key] = tags.Safe(t.Value, recordWord, len(t.Value))
		}
	}
	return r
}

// madeFor reports whether this cluster created the volume for the request.
func (c *Cloud) madeFor(name string, v *volume) bool {
	r, ok := parseRecord(v.Description)
	return ok && r[tags.Hash] == cloud.FullHash(name) && r[tags.Cluster] == c.cluster
}

// ownerOf returns the Mark of a volume from its record, or without one from its tags. The cloud keeps the case in which a tag was first
// written, and anyone can add a tag.
func ownerOf(v *volume) cloud.Mark {
	if r, ok := parseRecord(v.Description); ok && r[tags.Cluster] != "" {
		return cloud.Mark{Driver: true, Cluster: r[tags.Cluster]}
	}
	return tags.MarkOf(v.Tags)
}

// wordsOf returns a volume's tags, and its record as tags.
func wordsOf(v *volume) []string {
	words := slices.Clone(v.Tags)
	if r, ok := parseRecord(v.Description); ok {
		for key, value := range r {
			words = append(words, key+":"+value)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// userWords returns the tags that users have requested, and the cluster's. Other tags of the driver are in the record or nowhere, because a
// tag that only one object has would stay in the account.
func (c *Cloud) userWords(all []cloud.Tag) ([]string, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(t cloud.Tag) bool { return strings.HasPrefix(t.Key, tags.Own) })
	return tagRule.Words(append(all, cloud.Tag{Key: tags.Cluster, Value: c.cluster}))
}
