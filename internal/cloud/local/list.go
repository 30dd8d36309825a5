package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ListVolumes returns the volumes in the order of their ids. An image without a readable record is a
// volume too, under its id for a name: the data is there, and a list that hid it would not be complete.
func (l *Local) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	after, err := l.parseToken(page.Token)
	if err != nil {
		return cloud.VolumeList{}, err
	}
	entries, err := l.pool.List(ctx)
	if err != nil {
		return cloud.VolumeList{}, err
	}
	var list cloud.VolumeList
	var last pool.ID
	for _, e := range entries {
		if !hasData(e) || e.ID <= after {
			continue
		}
		if page.Most > 0 && len(list.Volumes) == page.Most {
			list.Next = l.token(last)
			break
		}
		list.Volumes, last = append(list.Volumes, l.volume(e)), e.ID
	}
	return list, nil
}

// token names the last volume of a page, which may be gone when the next one is asked for. The
// check digits make sure that it is a token of this pool and no other word.
func (l *Local) token(last pool.ID) string {
	sum := sha256.Sum256([]byte(l.pool.Handle(last).String()))
	return string(last) + "-" + hex.EncodeToString(sum[:4])
}

func (l *Local) parseToken(token string) (pool.ID, error) {
	if token == "" {
		return "", nil
	}
	word, _, _ := strings.Cut(token, "-")
	id, err := pool.ParseID(word)
	if err != nil || l.token(id) != token {
		return "", fmt.Errorf("page token %.80q: %w", token, fault.StalePage)
	}
	return id, nil
}

// hasData reports whether an entry of the pool is a volume: something with bytes under an id.
func hasData(e pool.Entry) bool {
	return e.Kind == pool.Whole || e.Kind == pool.NoRecord || (e.Kind == pool.Damaged && e.Size > 0)
}

func (l *Local) volume(e pool.Entry) cloud.Volume {
	v := cloud.Volume{
		ID:     cloud.VolumeID(l.pool.Handle(e.ID).String()),
		Name:   e.Record.Name,
		Size:   cloud.Bytes(e.Record.Size),
		Zone:   l.pool.Node(),
		Device: cloud.Device{Name: e.ID.ImageName()},
	}
	if e.Kind != pool.Whole {
		v.Name, v.Size = string(e.ID), cloud.Bytes(e.Size)
	}
	for _, p := range e.Record.Parameters {
		v.Parameters = append(v.Parameters, cloud.Parameter{Name: p.Name, Value: p.Value})
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
