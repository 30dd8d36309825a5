package middleware

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// remembered is how many volumes Account remembers. One would do, were volumes never deleted by hand.
const remembered = 8

// Account refuses to work with the credentials of another account. There, no volume of this cluster exists, so each delete
// and each detach would be answered as done, and nothing would have been done.
//
// It remembers volumes that the credentials have shown. New credentials have to show one of them before an answer is believed.
// While no volume is known it believes all credentials: see Known. It stands next to the backend, inside of Stack.
type Account struct {
	cloud.Cloud

	clusterID string
	token     func() (string, error)

	looking chan struct{}     // has a place for one call that looks whose the credentials are
	sum     [sha256.Size]byte // of the credentials that are believed

	mu    sync.Mutex
	known []cloud.VolumeID // the newest last
}

// NewAccount wraps c. token returns the credentials that c uses at the moment, clusterID is what c marks its volumes with.
func NewAccount(c cloud.Cloud, clusterID string, token func() (string, error)) *Account {
	return &Account{Cloud: c, clusterID: clusterID, token: token, looking: make(chan struct{}, 1)}
}

// same returns nil if the credentials are those that are believed, or show a volume that those before have shown.
func (a *Account) same(ctx context.Context) error {
	select {
	case a.looking <- struct{}{}:
		defer func() { <-a.looking }()
	case <-ctx.Done():
		return fmt.Errorf("look whose the credentials are: %w", ctx.Err())
	}
	token, err := a.token()
	if err != nil {
		return fmt.Errorf("look whose the credentials are: %w: %w", fault.Unavailable, err)
	}
	sum := sha256.Sum256([]byte(token))
	if sum == a.sum {
		return nil
	}
	if known := a.volumes(); len(known) > 0 {
		err = a.recognise(ctx, known)
	} else {
		err = a.learn(ctx)
	}
	if err == nil {
		a.sum = sum
	}
	return err
}

// learn remembers volumes of this cluster, if there are any.
func (a *Account) learn(ctx context.Context) error {
	var page cloud.Page
	for {
		list, err := a.ListVolumes(ctx, page)
		if err != nil {
			return fmt.Errorf("look for a volume of this cluster: %w", err)
		}
		for _, v := range list.Volumes {
			if v.Mark.Driver && v.Mark.Cluster == a.clusterID && !v.Mark.Temporary {
				a.remember(v.ID)
			}
		}
		if page.Token = list.Next; page.Token == "" || a.Known() {
			return nil
		}
	}
}

// recognise looks for one of the volumes that are known.
func (a *Account) recognise(ctx context.Context, known []cloud.VolumeID) error {
	for _, id := range slices.Backward(known) {
		_, err := a.GetVolume(ctx, id)
		if err == nil || !errors.Is(err, fault.NotFound) {
			return err
		}
	}
	return fmt.Errorf("the credentials were replaced, and the new ones show none of the volumes that the old ones did (%v): they are of another account; put those of this cluster's into the Secret, or restart the controller if all of these volumes were deleted by hand: %w",
		known, fault.Denied)
}

func (a *Account) remember(id cloud.VolumeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = append(without(a.known, id), id)
	a.known = a.known[max(0, len(a.known)-remembered):]
}

func (a *Account) forget(id cloud.VolumeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = without(a.known, id)
}

func without(ids []cloud.VolumeID, id cloud.VolumeID) []cloud.VolumeID {
	return slices.DeleteFunc(ids, func(other cloud.VolumeID) bool { return other == id })
}

func (a *Account) volumes() []cloud.VolumeID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.known)
}

// believed sends a change, and returns its answer if the credentials were of this account before it and are after it.
func (a *Account) believed(ctx context.Context, change func() error) error {
	if err := a.same(ctx); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	return a.same(ctx)
}

// Known reports whether a volume is known, so that credentials of another account would be noticed.
func (a *Account) Known() bool { return len(a.volumes()) > 0 }

// Check refuses the credentials of another account too.
func (a *Account) Check(ctx context.Context) error {
	if err := a.Cloud.Check(ctx); err != nil {
		return err
	}
	if err := a.same(ctx); fault.Of(err) == fault.Denied {
		return err
	}
	return nil // what could not be found out in the time of a check is found out before a change
}

// CreateVolume makes nothing in another account.
func (a *Account) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	if err := a.same(ctx); err != nil {
		// An earlier call may have made the volume in this cluster's account.
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w: %w", req.Name, fault.Uncertain, err)
	}
	vol, err := a.Cloud.CreateVolume(ctx, req)
	if err == nil {
		a.remember(vol.ID)
	}
	return vol, err
}

// Attach remembers the volume. In another account it is not found, which is an error.
func (a *Account) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	device, err := a.Cloud.Attach(ctx, id, node)
	if err == nil {
		a.remember(id)
	}
	return device, err
}

// DeleteVolume is answered as done only in this cluster's account.
func (a *Account) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	err := a.believed(ctx, func() error { return a.Cloud.DeleteVolume(ctx, id) })
	if err == nil {
		a.forget(id)
	}
	return err
}

// Detach is answered as done only in this cluster's account.
func (a *Account) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	return a.believed(ctx, func() error { return a.Cloud.Detach(ctx, id, node) })
}

// DeleteSnapshot is answered as done only in this cluster's account.
func (a *Account) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return a.believed(ctx, func() error { return a.Cloud.DeleteSnapshot(ctx, id) })
}

// ModifyVolume passes the call on: in another account the volume is not found, which is an error.
func (a *Account) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	return cloud.Modify(ctx, a.Cloud, id, tags)
}
