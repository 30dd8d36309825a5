package pool

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// recordTags returns a record as tags.
func recordTags(r Record) ([]string, error) {
	data, err := r.encode()
	if err == nil && len(data) > maxGroupRecord {
		err = fmt.Errorf("the record of %.200q with its tags has %d bytes, in LVM the maximum is %d: %w", r.Name, len(data), maxGroupRecord, fault.InvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	var tags []string
	for part := range slices.Chunk([]byte(base64.RawURLEncoding.EncodeToString(data)), recordPart) {
		tags = append(tags, fmt.Sprintf("%s%02d.%s", recordTag, len(tags), part))
	}
	return tags, nil
}

// errNoRecord: a logical volume has no tags with a record.
var errNoRecord = errors.New("its tags with the record are missing")

// recordOf reads the record from the tags of a logical volume, with the size of that.
func recordOf(id ID, v logicalVolume) (Record, error) {
	var text strings.Builder
	for _, tag := range slices.Sorted(slices.Values(v.tags())) {
		if rest, found := strings.CutPrefix(tag, recordTag); found {
			_, part, _ := strings.Cut(rest, ".")
			text.WriteString(part)
		}
	}
	if text.Len() == 0 {
		return Record{}, errNoRecord
	}
	data, err := base64.RawURLEncoding.DecodeString(text.String())
	if err != nil {
		return Record{}, err
	}
	r, err := decodeRecord(volumeRef(id), data)
	if err == nil {
		r.Size = v.Size
	}
	return r, err
}
