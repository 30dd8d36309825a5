package middleware

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// maxKnown is how many volumes Account remembers, and maxReads how many of them it reads after the credentials have changed.
	maxKnown, maxReads = 64, 8
	// listAgain is how often Check lists the volumes while none is known.
	listAgain = time.Hour
	// maxChanges is how often the credentials may change during one verification.
	maxChanges = 3
)

// Account refuses changes with the credentials of another account. No volume of this cluster exists there, so each delete and
// each detach would be answered as done, and nothing would have been done.
//
// It remembers volumes of this cluster. After the credentials have changed, one of them has to exist in the account, or any volume
// with this cluster's mark. While no volume is known, all credentials are accepted: see Known. It stands next to the backend, inside
// of Stack.
type Account struct {
	cloud.Cloud

	clusterID   string
	credentials func() (string, error)

	verifying chan struct{} // has a place for one verification

	mu       sync.Mutex
	accepted [sha256.Size]byte // of the credentials
	known    []cloud.VolumeID  // the newest last
	listed   time.Time         // when a list was complete or had a volume of this cluster
}

// NewAccount wraps c. credentials returns those that c uses now, clusterID is what c marks its volumes with.
func NewAccount(c cloud.Cloud, clusterID string, credentials func() (string, error)) *Account {
	return &Account{Cloud: c, clusterID: clusterID, credentials: credentials, verifying: make(chan struct{}, 1)}
}

// Known reports whether a volume is known, so that credentials of another account would be refused.
func (a *Account) Known() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.known) > 0
}

// Learn lists volumes of this cluster, so that they are known.
func (a *Account) Learn(ctx context.Context) error {
	if err := a.accept(ctx); err != nil {
		return err
	}
	ids, err := a.list(ctx)
	if err != nil {
		return err
	}
	if _, accepted, err := a.current(); err != nil || !accepted {
		return err // the list may be of another account
	}
	a.mu.Lock()
	a.listed = time.Now()
	a.mu.Unlock()
	for _, id := range ids {
		a.remember(id)
	}
	return nil
}

// current returns the hash of the present credentials, and whether they are accepted.
func (a *Account) current() (sum [sha256.Size]byte, accepted bool, err error) {
	text, err := a.credentials()
	if err != nil {
		return sum, false, fmt.Errorf("verify the account of the credentials: %w: %w", fault.Unavailable, err)
	}
	sum = sha256.Sum256([]byte(text))
	a.mu.Lock()
	defer a.mu.Unlock()
	return sum, sum == a.accepted, nil
}

// verify returns nil if the credentials are accepted, or if the volume of the call exists in their account, which proves nothing
// for other calls.
func (a *Account) verify(ctx context.Context, id cloud.VolumeID) error {
	if _, accepted, err := a.current(); accepted || err != nil {
		return err
	}
	if id != "" {
		if _, err := a.GetVolume(ctx, id); err == nil {
			return nil
		}
	}
	return a.accept(ctx)
}

// accept returns nil if the credentials are those of this cluster's account, and accepts them.
func (a *Account) accept(ctx context.Context) error {
	select {
	case a.verifying <- struct{}{}:
		defer func() { <-a.verifying }()
	case <-ctx.Done():
		return fmt.Errorf("verify the account of the credentials: %w", ctx.Err())
	}
	for range maxChanges {
		before, accepted, err := a.current()
		if accepted || err != nil {
			return err
		}
		if err := a.find(ctx); err != nil {
			return err
		}
		after, _, err := a.current()
		if err != nil {
			return err
		}
		if before == after {
			a.mu.Lock()
			a.accepted = after
			a.mu.Unlock()
			return nil
		}
	}
	return fmt.Errorf("verify the account of the credentials: they change all the time: %w", fault.Unavailable)
}

// find looks for a known volume, or any of this cluster.
func (a *Account) find(ctx context.Context) error {
	a.mu.Lock()
	known := slices.Clone(a.known)
	a.mu.Unlock()
	if len(known) == 0 {
		return nil
	}
	slices.Reverse(known)
	var failed error
	for _, id := range known[:min(len(known), maxReads)] {
		_, err := a.GetVolume(ctx, id)
		if err == nil {
			return nil
		}
		if fault.Of(err) != fault.NotFound && failed == nil {
			failed = fmt.Errorf("read volume %s to verify the account of the credentials: %w", id, err)
		}
	}
	if failed != nil {
		return failed
	}
	if ids, err := a.list(ctx); len(ids) > 0 || err != nil {
		return err
	}
	return fmt.Errorf("the new credentials are of another account: volume %s does not exist there, nor does any other of the cluster %q; correct the Secret, or restart the controller if they are right: %w",
		known[0], a.clusterID, fault.Denied)
}

// list returns volumes of this cluster: those of the first page that has some.
func (a *Account) list(ctx context.Context) (ids []cloud.VolumeID, err error) {
	var page cloud.Page
	for {
		list, err := a.ListVolumes(ctx, page)
		if fault.Of(err) == fault.NotFound { // of the folder, and not of the volume of a call
			return nil, fmt.Errorf("list volumes to verify the account of the credentials: %w: %s", fault.Unavailable, err.Error())
		}
		if err != nil {
			return nil, fmt.Errorf("list volumes to verify the account of the credentials: %w", err)
		}
		for _, v := range list.Volumes {
			if v.Mark == (cloud.Mark{Driver: true, Cluster: a.clusterID}) {
				ids = append(ids, v.ID)
			}
		}
		if page.Token = list.Next; page.Token == "" || len(ids) > 0 {
			return ids, nil
		}
	}
}

// remember makes a volume known, if it exists in this cluster's account.
func (a *Account) remember(id cloud.VolumeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = append(a.without(id), id)
	a.known = a.known[max(0, len(a.known)-maxKnown):]
}

// forget removes a volume that was deleted.
func (a *Account) forget(id cloud.VolumeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known = a.without(id); len(a.known) == 0 {
		a.listed = time.Time{}
	}
}

func (a *Account) without(id cloud.VolumeID) []cloud.VolumeID {
	return slices.DeleteFunc(a.known, func(other cloud.VolumeID) bool { return other == id })
}

// verified runs a change whose answer would be the same where the volume does not exist, and verifies the credentials before
// and after it.
func (a *Account) verified(ctx context.Context, id cloud.VolumeID, change func() error) error {
	if err := a.verify(ctx, id); err != nil {
		return err
	}
	err := change()
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return errors.Join(err, after(a.verify(ctx, id)))
}

// after is the error of a verification after a change.
func after(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the credentials were replaced during the call: %w: %w", fault.Uncertain, err)
}

// Check refuses the credentials of another account. What it cannot find out in its time is found out before a change.
func (a *Account) Check(ctx context.Context) error {
	if err := a.Cloud.Check(ctx); err != nil {
		return err
	}
	if err := a.accept(ctx); fault.Of(err) == fault.Denied {
		return err
	}
	a.mu.Lock()
	lists := len(a.known) == 0 && (a.listed.IsZero() || time.Since(a.listed) > listAgain)
	a.mu.Unlock()
	if lists {
		_ = a.Learn(ctx) // again with the next check
	}
	return nil
}

// CreateVolume makes nothing in another account.
func (a *Account) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	if err := a.verify(ctx, ""); err != nil {
		// Uncertain, because an earlier call may have made it in this cluster's account.
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w: %w", req.Name, fault.Uncertain, err)
	}
	vol, err := a.Cloud.CreateVolume(ctx, req)
	if err != nil {
		return vol, err
	}
	if err := after(a.verify(ctx, "")); err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	a.remember(vol.ID)
	return vol, nil
}

// Attach is an error where the volume does not exist.
func (a *Account) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	device, err := a.Cloud.Attach(ctx, id, node)
	if _, accepted, _ := a.current(); accepted && err == nil {
		a.remember(id)
	}
	return device, err
}

// DeleteVolume is done only in this cluster's account.
func (a *Account) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if err := a.verify(ctx, id); err != nil {
		return err
	}
	err := a.Cloud.DeleteVolume(ctx, id)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	a.forget(id)
	if replaced := after(a.verify(ctx, "")); replaced != nil {
		return errors.Join(err, replaced)
	}
	if !a.Known() {
		_ = a.Learn(ctx) // else new credentials would be accepted, though the cluster has volumes
	}
	return err
}

// Detach is done only in this cluster's account.
func (a *Account) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	return a.verified(ctx, id, func() error { return a.Cloud.Detach(ctx, id, node) })
}

// CreateSnapshot is Uncertain in another account, because an earlier call may have made the snapshot in this cluster's.
func (a *Account) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	if err := a.verify(ctx, req.Volume); err != nil {
		return cloud.Snapshot{}, fmt.Errorf("create snapshot %q: %w: %w", req.Name, fault.Uncertain, err)
	}
	return a.Cloud.CreateSnapshot(ctx, req)
}

// DeleteSnapshot is done only in this cluster's account.
func (a *Account) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return a.verified(ctx, "", func() error { return a.Cloud.DeleteSnapshot(ctx, id) })
}

// ModifyVolume is an error where the volume does not exist.
func (a *Account) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	return cloud.Modify(ctx, a.Cloud, id, tags)
}
