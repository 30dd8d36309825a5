package lvm

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// recordTags returns the tags of a volume.
func recordTags(r pool.Record) ([]string, error) {
	tags := []string{nameTag + escape(r.Name), createdTag + strconv.FormatInt(r.Created.Unix(), 10)}
	for _, t := range r.Tags {
		tags = append(tags, pairTag+escape(t.Name)+":"+escape(t.Value))
	}
	total := 0
	for _, tag := range tags {
		if len(tag) > maxTag {
			return nil, fmt.Errorf("the tag %.100q of %.100q has %d characters, in LVM the maximum is %d: %w", tag, r.Name, len(tag), maxTag, fault.InvalidArgument)
		}
		total += len(tag)
	}
	if total > maxGroupRecord {
		return nil, fmt.Errorf("the tags of %.100q have %d bytes, the maximum is %d: %w", r.Name, total, maxGroupRecord, fault.InvalidArgument)
	}
	return tags, nil
}

// errNoRecord: a logical volume has no tag with its name.
var errNoRecord = errors.New("its tag with the name is missing")

// recordOf reads the record of a volume from the tags of its logical volume.
func recordOf(id pool.ID, v logicalVolume) (pool.Record, error) {
	r := pool.Record{ID: id, Size: v.Size, State: pool.Ready}
	for _, tag := range v.tags() {
		var err error
		if text, found := strings.CutPrefix(tag, nameTag); found {
			r.Name, err = unescape(text)
		}
		if text, found := strings.CutPrefix(tag, createdTag); found {
			var seconds int64
			seconds, err = strconv.ParseInt(text, 10, 64)
			r.Created = time.Unix(seconds, 0).UTC()
		}
		if text, found := strings.CutPrefix(tag, pairTag); found {
			var p pool.Pair
			name, value, _ := strings.Cut(text, ":")
			var nameErr, valueErr error
			p.Name, nameErr = unescape(name)
			p.Value, valueErr = unescape(value)
			r.Tags, err = append(r.Tags, p), errors.Join(nameErr, valueErr)
		}
		if err != nil {
			return pool.Record{}, fmt.Errorf("tag %q: %w", tag, err)
		}
	}
	if r.Name == "" {
		return pool.Record{}, errNoRecord
	}
	slices.SortFunc(r.Tags, func(a, b pool.Pair) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return r, pool.CheckObjectName(r.Name)
}

// escape writes what a tag cannot have, and the characters that separate its parts, as + and two digits.
func escape(s string) string {
	s = strings.NewReplacer("+", "%20", "~", "%7E").Replace(url.QueryEscape(s))
	return strings.ReplaceAll(s, "%", "+")
}

func unescape(s string) (string, error) { return url.QueryUnescape(strings.ReplaceAll(s, "+", "%")) }
