package world

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// UnreadDelete is the fault of a backend of Linode that deletes a volume without the read that shows it detached.
const UnreadDelete = "unread-delete"

// unread is a backend with this fault, and its transport: while it deletes a volume, each read of that volume shows it detached. So
// the delete is sent wherever the volume is, and all else is as in the real backend.
type unread struct {
	cloud.Cloud

	base http.RoundTripper

	mu       sync.Mutex
	deleting map[cloud.VolumeID]int
}

func (u *unread) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	u.count(id, 1)
	defer u.count(id, -1)
	return u.Cloud.DeleteVolume(ctx, id)
}

// Sweep is the backend's own.
func (u *unread) Sweep(ctx context.Context) error { return SweepOf(u.Cloud)(ctx) }

func (u *unread) count(id cloud.VolumeID, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.deleting[id] += n
}

// hides reports whether a request reads a volume that is being deleted.
func (u *unread) hides(r *http.Request) bool {
	id, is := strings.CutPrefix(r.URL.Path, "/v4/volumes/")
	u.mu.Lock()
	defer u.mu.Unlock()
	return is && r.Method == http.MethodGet && u.deleting[cloud.VolumeID(id)] > 0
}

func (u *unread) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := u.base.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || !u.hides(r) {
		return answer, err
	}
	var shown map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&shown); err != nil {
		return nil, err
	}
	shown["linode_id"], shown["linode_label"], shown["io_ready"] = nil, nil, false
	text, err := json.Marshal(shown)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return answer, err
}

// sweeper is a backend that removes what broken-off calls have left.
type sweeper interface {
	Sweep(ctx context.Context) error
}

// SweepOf is what the outermost of some backends does that can.
func SweepOf(backends ...cloud.Cloud) func(context.Context) error {
	for _, c := range backends {
		if s, can := c.(sweeper); can {
			return s.Sweep
		}
	}
	return func(context.Context) error { return nil }
}
