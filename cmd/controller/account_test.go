package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// secrets are the credentials in a file, and the accounts for them.
type secrets struct {
	*account

	text       string                   // the content of the file
	opens      map[string]*memory.Cloud // no entry: credentials that the cloud refuses
	refuses    error                    // with this error
	emptyLists bool

	broken, noLists, noReads atomic.Bool // every request is Unavailable, or each list, or each read of a volume
	reads, lists             int
}

// keyed is the backend for some credentials.
type keyed struct {
	*memory.Cloud

	of *secrets
}

func (k keyed) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	if err := k.fails(); err != nil || k.of.noLists.Load() {
		return cloud.VolumeList{}, cmp.Or(err, error(fault.Unavailable))
	}
	k.of.lists++
	if k.of.emptyLists {
		return cloud.VolumeList{}, nil
	}
	return k.Cloud.ListVolumes(ctx, page)
}

func (k keyed) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	k.of.reads++
	if err := k.fails(); err != nil || k.of.noReads.Load() {
		return cloud.Volume{}, cmp.Or(err, error(fault.Unavailable))
	}
	return k.Cloud.GetVolume(ctx, id)
}

func (k keyed) fails() error {
	if k.Cloud == nil {
		return k.of.refuses
	}
	if k.of.broken.Load() {
		return fault.Unavailable
	}
	return nil
}

// newSecrets returns two keys of an account that has volumes of the clusters one and two, and a key of an account without any of
// cluster one.
func newSecrets(t *testing.T, volumes int) *secrets {
	t.Helper()
	ours, theirs := memory.NewAccount(memory.Config{PageSize: 2}), memory.NewAccount(memory.Config{})
	s := &secrets{text: "key", refuses: fault.Denied, opens: map[string]*memory.Cloud{
		"key": ours.Cluster("one"), "newer key": ours.Cluster("one"), "their key": theirs.Cluster("one"), "key of two": ours.Cluster("two"),
	}}
	s.account = &account{
		cluster: "one", log: zap.NewNop(),
		file: func() (string, error) {
			if s.verifying.TryLock() {
				t.Error("the file is read without the lock: what is read first may be used last")
			}
			return s.text, nil
		},
		open: func(_ context.Context, key string) (cloud.Cloud, closer, error) {
			return keyed{s.opens[key], s}, func(context.Context) error { return nil }, nil
		},
	}
	makeVolumes(t, ours.Cluster("two"), "two", 4)
	makeVolumes(t, ours.Cluster("one"), "one", volumes)
	makeVolumes(t, theirs.Cluster("two"), "two", 4) // so that volumes of the two accounts have different ids
	s.want(t, "key", nil)
	return s
}

func makeVolumes(t *testing.T, c cloud.Cloud, name string, count int) {
	t.Helper()
	for i := range count {
		if _, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: fmt.Sprint(name, "-", i), Size: cloud.GiB}); err != nil {
			t.Fatal(err)
		}
	}
}

// deleteAll deletes the volumes of the cluster that a key can list.
func (s *secrets) deleteAll(t *testing.T, key string) {
	t.Helper()
	for {
		ids, err := volumesOf(t.Context(), s.opens[key], "one")
		ok(t, err)
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			ok(t, s.opens[key].DeleteVolume(t.Context(), id))
		}
	}
}

// want fails the test unless these credentials are in use, and those in the file are refused with this kind.
func (s *secrets) want(t *testing.T, key string, refused error) {
	t.Helper()
	for range 2 {
		if got, err := s.credentials(); err != nil || got != key {
			t.Errorf("the file has %q, and in use is %q, %v, want %q", s.text, got, err, key)
		}
		if err := s.refusal(); !errors.Is(err, refused) || (err == nil) != (refused == nil) {
			t.Errorf("the file has %q, which is refused with %v, want %v", s.text, err, refused)
		}
	}
}

// watchFor runs watch for one list.
func (s *secrets) watchFor(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go s.watch(ctx, keyed{s.opens[s.used.Reveal()], s})
	synctest.Wait()
	cancel()
	synctest.Wait()
}

func TestAccountTakesOtherCredentialsOfTheSameAccount(t *testing.T) {
	s := newSecrets(t, 3)
	s.text = "newer key"
	s.want(t, "newer key", nil)
	if s.reads != 1 {
		t.Errorf("%d volumes were read, want one", s.reads)
	}
	s.text = "key"
	s.want(t, "key", nil)
}

// C15: credentials of another account are refused once a volume is known.
func TestAccountRefusesTheCredentialsOfAnotherAccount(t *testing.T) {
	s := newSecrets(t, 3)
	s.text = "their key"
	s.want(t, "key", fault.Denied)
	if err := s.refusal(); !strings.Contains(err.Error(), "another account") || strings.Contains(err.Error(), "their key") {
		t.Errorf("the refusal %v does not say why, or shows the credentials", err)
	}
	s.text = "newer key"
	s.want(t, "newer key", nil)
	s.text = "their key"
	s.want(t, "newer key", fault.Denied)
	s.text = "newer key"
	s.want(t, "newer key", nil)
}

func TestAccountRefusesCredentialsThatTheCloudRefuses(t *testing.T) {
	s := newSecrets(t, 1)
	s.text = "no key"
	s.want(t, "key", fault.Denied)
}

// Credentials that cannot be verified now are not used, and are verified again.
func TestAccountRepeatsAVerificationThatFailed(t *testing.T) {
	for name, known := range map[string]bool{"volumes are known": true, "none is known": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSecrets(t, 1)
				if known {
					s.watchFor(t)
				}
				s.broken.Store(true)
				s.text = "newer key"
				s.want(t, "key", fault.Unavailable)
				time.Sleep(verifyAgain)
				s.want(t, "key", fault.Unavailable)
				s.broken.Store(false)
				s.want(t, "key", fault.Unavailable)
				time.Sleep(verifyAgain)
				s.want(t, "newer key", nil)
			})
		})
	}
}

// A repeated verification reads volumes and lists none: lists take most of the requests in a crowded account.
func TestAccountListsOnceForTheSameCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 2)
		s.text = "their key"
		s.want(t, "key", fault.Denied)
		lists, reads := s.lists, s.reads
		time.Sleep(verifyAgain)
		s.want(t, "key", fault.Denied)
		if s.lists != lists || s.reads != reads+2 {
			t.Errorf("a repeat has read %d pages and %d volumes, want 0 and 2", s.lists-lists, s.reads-reads)
		}
	})
}

func TestAccountVerifiesOnceForAllRequests(t *testing.T) {
	s := newSecrets(t, 2)
	s.text = "their key"
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, err := s.credentials(); err != nil || got != "key" {
				t.Errorf("in use is %q, %v, want those of before", got, err)
			}
		})
	}
	all.Wait()
	if s.reads != 2 || s.lists != 3 {
		t.Errorf("%d volumes and %d pages were read, want 2 and 3", s.reads, s.lists)
	}
}
