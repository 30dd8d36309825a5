package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// ListVolumes returns the volumes in the order of their ids. An image without a readable record is a
// volume too, with its id as the name: its data exists, so a list without it would be incomplete.
func (l *Local) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	after, err := l.parseToken(page.Token, "volumes")
	if err != nil {
		return cloud.VolumeList{}, err
	}
	entries, err := l.entries(ctx, pool.Storage.List)
	if err != nil {
		return cloud.VolumeList{}, err
	}
	var list cloud.VolumeList
	var last pool.ID
	for _, e := range entries {
		if !hasData(e.Entry) || e.ID <= after {
			continue
		}
		if page.Most > 0 && len(list.Volumes) == page.Most {
			list.Next = l.token("volumes", last)
			break
		}
		list.Volumes, last = append(list.Volumes, volume(e.Storage, e.Entry)), e.ID
	}
	return list, nil
}

// entry is an entry and its pool.
type entry struct {
	pool.Storage
	pool.Entry
}

// entries lists all pools, in the order of the ids. While a pool is missing it returns an error.
func (l *Local) entries(ctx context.Context, list func(pool.Storage, context.Context) ([]pool.Entry, error)) ([]entry, error) {
	usable, err := l.pools.Pools(ctx)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, p := range usable {
		some, err := l.pools.List(ctx, p, list)
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			all = append(all, entry{p, e})
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all, nil
}

// token returns the page token after the entry last, which may be deleted before the next page is read. The
// check digits reject tokens of other lists.
func (l *Local) token(list string, last pool.ID) string {
	sum := sha256.Sum256([]byte(l.node + "/" + list + "/" + string(last)))
	return string(last) + "-" + hex.EncodeToString(sum[:4])
}

func (l *Local) parseToken(word, list string) (pool.ID, error) {
	if word == "" {
		return "", nil
	}
	digits, _, _ := strings.Cut(word, "-")
	id, err := pool.ParseID(digits)
	if err != nil || l.token(list, id) != word {
		return "", fmt.Errorf("page token %.80q: %w", word, fault.StalePage)
	}
	return id, nil
}

// hasData reports whether an entry of the pool has an image with data.
func hasData(e pool.Entry) bool {
	return e.Kind == pool.Whole || e.Kind == pool.NoRecord || ((e.Kind == pool.Damaged || e.Kind == pool.Newer) && e.Size > 0)
}

func volume(p pool.Storage, e pool.Entry) cloud.Volume {
	v := cloud.Volume{
		ID:         cloud.VolumeID(p.Handle(e.ID).String()),
		Name:       e.Record.Name,
		Size:       cloud.Bytes(e.Record.Size),
		Created:    e.Record.Created,
		Zone:       p.Node(),
		Source:     sourceOf(p, e.Record),
		Parameters: []cloud.Parameter{{Name: ParamPool, Value: p.Name()}},
		Device:     cloud.Device{Name: e.File},
		Health:     health(e),
	}
	if e.Kind != pool.Whole {
		v.Name, v.Size = string(e.ID), cloud.Bytes(e.Size)
	}
	for _, t := range e.Record.Tags {
		v.Tags = append(v.Tags, cloud.Tag{Key: t.Name, Value: t.Value})
	}
	return v
}

func pairs(tags []cloud.Tag) []pool.Pair {
	var out []pool.Pair
	for _, t := range tags {
		out = append(out, pool.Pair{Name: t.Key, Value: t.Value})
	}
	return out
}

// health returns the health of an entry of the pool.
func health(e pool.Entry) cloud.Health {
	const hint = "; look at it with `cloudblock-controller volumes`"
	switch e.Kind {
	case pool.NoRecord:
		return cloud.Health{Kind: cloud.Inaccessible, Reason: "RecordMissing", Message: e.Problem + "; the data is there, put the record back to use it"}
	case pool.NoImage:
		return cloud.Health{Kind: cloud.DataLoss, Reason: "ImageMissing", Message: e.Problem + hint}
	case pool.Newer:
		return cloud.Health{Kind: cloud.Inaccessible, Reason: "RecordNewer", Message: e.Problem}
	case pool.Damaged:
		if e.Size == 0 {
			return cloud.Health{Kind: cloud.DataLoss, Reason: "ImageEmpty", Message: e.Problem + hint}
		}
		return cloud.Health{Kind: cloud.Inaccessible, Reason: "Damaged", Message: e.Problem + hint}
	}
	return cloud.Health{}
}
