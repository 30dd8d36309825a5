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
	// maxKnown is how many volumes Account remembers: those that it reads after the credentials have changed.
	maxKnown = 16
	// listEvery is how often Check lists volumes, listAgain after how long when the list has failed.
	listEvery, listAgain = time.Hour, 10 * time.Minute
	// maxChanges is how often the credentials may change during one verification.
	maxChanges = 3
)

// Account refuses changes with the credentials of another account. No volume of this cluster exists there, so each delete and
// each detach would be answered as done, and nothing would have been done.
//
// It remembers volumes of this cluster. After the credentials have changed, one of them has to exist in the account. While no
// volume is known, all credentials are accepted: see Known. It stands next to the backend, inside of Stack.
type Account struct {
	cloud.Cloud

	clusterID   string
	credentials func() (string, error)

	verifying chan struct{} // has a place for one verification

	mu       sync.Mutex
	accepted hash
	known    []cloud.VolumeID
	nextList time.Time
}

// hash is that of credentials.
type hash [sha256.Size]byte

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

// Learn lists volumes, so that those of this cluster are known and those that are gone are not.
func (a *Account) Learn(ctx context.Context) error {
	sum, err := a.accept(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.nextList = time.Now().Add(listAgain)
	a.mu.Unlock()
	ours, all, err := a.list(ctx)
	if err = a.same(sum, fault.Unavailable, err); err != nil {
		return fmt.Errorf("list volumes to recognise the account: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextList = time.Now().Add(listEvery)
	if len(ours) > 0 {
		a.known = ours[:min(len(ours), maxKnown)]
		return nil
	}
	a.known = slices.DeleteFunc(a.known, func(id cloud.VolumeID) bool { return !slices.Contains(all, id) })
	return nil
}

// list returns volumes of this cluster, those of the first page that has some, and else all volumes.
func (a *Account) list(ctx context.Context) (ours, all []cloud.VolumeID, err error) {
	var page cloud.Page
	for {
		list, err := a.ListVolumes(ctx, page)
		if err != nil {
			return nil, nil, err
		}
		for _, v := range list.Volumes {
			all = append(all, v.ID)
			if v.Mark == (cloud.Mark{Driver: true, Cluster: a.clusterID}) {
				ours = append(ours, v.ID)
			}
		}
		if page.Token = list.Next; page.Token == "" || len(ours) > 0 {
			return ours, all, nil
		}
	}
}

// now returns the hash of the present credentials, and whether they are accepted.
func (a *Account) now() (sum hash, accepted bool, err error) {
	text, err := a.credentials()
	if err != nil {
		return sum, false, fmt.Errorf("read the credentials: %w: %w", fault.Unavailable, err)
	}
	sum = sha256.Sum256([]byte(text))
	a.mu.Lock()
	defer a.mu.Unlock()
	return sum, sum == a.accepted, nil
}

// same returns err if the credentials are still those with this hash. If not, it is not known which ones the cloud has seen:
// the error is of this kind.
func (a *Account) same(sum hash, kind fault.Kind, err error) error {
	if present, _, readErr := a.now(); readErr != nil || present != sum {
		return fmt.Errorf("the credentials were replaced during the call: %w", errors.Join(kind, readErr, err))
	}
	return err
}

// verify returns the hash of credentials that are accepted, or in whose account the volume of the call exists, which proves
// nothing for other calls.
func (a *Account) verify(ctx context.Context, id cloud.VolumeID) (hash, error) {
	sum, accepted, err := a.now()
	if accepted || err != nil {
		return sum, err
	}
	if id != "" {
		if _, err := a.GetVolume(ctx, id); err == nil {
			return sum, nil
		}
	}
	return a.accept(ctx)
}

// accept accepts the credentials if they are those of this cluster's account, and returns their hash.
func (a *Account) accept(ctx context.Context) (hash, error) {
	select {
	case a.verifying <- struct{}{}:
		defer func() { <-a.verifying }()
	case <-ctx.Done():
		return hash{}, fmt.Errorf("verify the account of the credentials: %w", ctx.Err())
	}
	for range maxChanges {
		sum, accepted, err := a.now()
		if accepted || err != nil {
			return sum, err
		}
		if err := a.find(ctx); err != nil {
			return sum, err
		}
		if a.same(sum, fault.Unavailable, nil) == nil {
			a.mu.Lock()
			a.accepted = sum
			a.mu.Unlock()
			return sum, nil
		}
	}
	return hash{}, fmt.Errorf("verify the account of the credentials: they change all the time: %w", fault.Unavailable)
}

// find returns nil if a known volume exists, or none is known.
func (a *Account) find(ctx context.Context) error {
	a.mu.Lock()
	known := slices.Clone(a.known)
	a.mu.Unlock()
	if len(known) == 0 {
		return nil
	}
	var failed error
	for _, id := range known {
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
	return fmt.Errorf("the new credentials are of another account: volume %s and %d others do not exist there; correct the Secret, or restart the controller if the credentials are right: %w",
		known[0], len(known)-1, fault.Denied)
}

// remember makes a volume known.
func (a *Account) remember(id cloud.VolumeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) < maxKnown && !slices.Contains(a.known, id) {
		a.known = append(a.known, id)
	}
}

// forget removes a volume that was deleted, and reports whether it was the last that was known.
func (a *Account) forget(id cloud.VolumeID) (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.known)
	a.known = slices.DeleteFunc(a.known, func(known cloud.VolumeID) bool { return known == id })
	return before > 0 && len(a.known) == 0
}

// Check refuses the credentials of another account. What is not proved in the time of a check is proved before a change.
func (a *Account) Check(ctx context.Context) error {
	if err := a.Cloud.Check(ctx); err != nil {
		return err
	}
	if _, err := a.accept(ctx); fault.Of(err) == fault.Denied {
		return err
	}
	a.mu.Lock()
	due := !time.Now().Before(a.nextList)
	a.mu.Unlock()
	if due {
		_ = a.Learn(ctx) // a later check repeats it
	}
	return nil
}

// CreateVolume makes nothing in another account. A refusal is Uncertain, because an earlier call may have made the volume.
func (a *Account) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	sum, err := a.verify(ctx, "")
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w: %w", req.Name, fault.Uncertain, err)
	}
	vol, err := a.Cloud.CreateVolume(ctx, req)
	if err := a.same(sum, fault.Uncertain, err); err != nil {
		return cloud.Volume{}, err
	}
	a.remember(vol.ID)
	return vol, nil
}

// FindVolume finds nothing in another account, which does not mean that there is nothing.
func (a *Account) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	sum, err := a.verify(ctx, "")
	if err != nil {
		return cloud.Volume{}, err
	}
	vol, err := a.Cloud.FindVolume(ctx, name)
	return vol, a.same(sum, fault.Unavailable, err)
}

// Attach is an error where the volume does not exist.
func (a *Account) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	sum, accepted, _ := a.now()
	device, err := a.Cloud.Attach(ctx, id, node)
	if err == nil && accepted && a.same(sum, fault.Unavailable, nil) == nil {
		a.remember(id)
	}
	return device, err
}

// DeleteVolume is done only in this cluster's account.
func (a *Account) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	sum, err := a.verify(ctx, id)
	if err != nil {
		return err
	}
	err = a.same(sum, fault.Uncertain, a.Cloud.DeleteVolume(ctx, id))
	if gone := err == nil || fault.Of(err) == fault.NotFound; gone && a.forget(id) {
		_ = a.Learn(ctx) // else all credentials would be accepted, though the cluster has volumes
	}
	return err
}

// Detach is done only in this cluster's account.
func (a *Account) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	sum, err := a.verify(ctx, id)
	if err != nil {
		return err
	}
	return a.same(sum, fault.Uncertain, a.Cloud.Detach(ctx, id, node))
}

// CreateSnapshot makes nothing in another account. A refusal is Uncertain, as for CreateVolume.
func (a *Account) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	sum, err := a.verify(ctx, req.Volume)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("create snapshot %q: %w: %w", req.Name, fault.Uncertain, err)
	}
	snap, err := a.Cloud.CreateSnapshot(ctx, req)
	return snap, a.same(sum, fault.Uncertain, err)
}

// FindSnapshot finds nothing in another account, as FindVolume.
func (a *Account) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	sum, err := a.verify(ctx, "")
	if err != nil {
		return cloud.Snapshot{}, err
	}
	snap, err := a.Cloud.FindSnapshot(ctx, name)
	return snap, a.same(sum, fault.Unavailable, err)
}

// DeleteSnapshot is done only in this cluster's account.
func (a *Account) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	sum, err := a.verify(ctx, "")
	if err != nil {
		return err
	}
	return a.same(sum, fault.Uncertain, a.Cloud.DeleteSnapshot(ctx, id))
}

// ModifyVolume is an error where the volume does not exist.
func (a *Account) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	return cloud.Modify(ctx, a.Cloud, id, tags)
}
