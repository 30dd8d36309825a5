package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// C15: credentials can be revoked before they are replaced: then they cannot list volumes any more.
func TestAccountRemembersVolumesForRevokedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 3)
		s.watchFor(t)
		delete(s.opens, "key")
		s.text = "their key"
		s.want(t, "key", fault.Denied)
		s.text = "newer key"
		s.want(t, "newer key", nil)
	})
}

// Nor does the account wait for them if no volume was listed before.
func TestAccountTakesOtherCredentialsAfterRevokedOnes(t *testing.T) {
	for _, refuses := range []error{fault.Denied, fault.NotFound} { // a folder that the key may not see
		s := newSecrets(t, 3)
		s.refuses = refuses
		delete(s.opens, "key")
		s.text = "newer key"
		s.want(t, "newer key", nil)
	}
}

func TestAccountRemembersVolumesWhileTheListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 3)
		s.watchFor(t)
		s.noLists.Store(true)
		s.text = "newer key"
		s.want(t, "newer key", nil)
	})
}

// A user whose rights to volumes were removed may still list them, and gets none.
func TestAccountForgetsNothingForAnEmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 3)
		s.watchFor(t)
		s.emptyLists = true
		s.watchFor(t)
		s.text = "their key"
		s.want(t, "key", fault.Denied)
		s.noReads.Store(true)
		time.Sleep(verifyAgain)
		s.want(t, "key", fault.Unavailable)
		s.text = "their newer key"
		s.opens["their newer key"] = s.opens["their key"]
		s.want(t, "key", fault.Unavailable)
		s.noReads.Store(false)
		s.emptyLists = false
		s.deleteAll(t, "key")
		s.emptyLists = true
		s.text = "newer key"
		s.want(t, "newer key", nil)
	})
}

// No list has the first volumes of a cluster, or those of the vendor's driver, with the cluster's mark.
func TestAccountRemembersWhatIsMadeAndAttached(t *testing.T) {
	s := newSecrets(t, 0)
	n := noting{s.opens["key"], s.account}
	made, err := n.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "pvc", Size: cloud.GiB})
	if err != nil || !slices.Equal(s.volumes(), []cloud.VolumeID{made.ID}) {
		t.Fatalf("known are %v after %+v, %v", s.volumes(), made, err)
	}
	vendor, err := s.opens["key of two"].CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "vendor", Size: cloud.GiB})
	ok(t, err)
	for _, id := range []cloud.VolumeID{vendor.ID, made.ID} {
		if _, err := n.Attach(t.Context(), id, "node-1"); err != nil {
			t.Fatal(err)
		}
	}
	if want := []cloud.VolumeID{made.ID, vendor.ID}; !slices.Equal(s.volumes(), want) {
		t.Errorf("known are %v, want %v", s.volumes(), want)
	}
	if _, err := n.Attach(t.Context(), "vol-none", "node-1"); err == nil || len(s.volumes()) != 2 {
		t.Errorf("known are %v, after an attach that failed: %v", s.volumes(), err)
	}
	delete(s.opens, "key")
	s.text = "their key"
	s.want(t, "key", fault.Denied)
}

// A volume that is created during a list is not in that list, and is not forgotten.
func TestAccountRemembersWhatIsMadeDuringAList(t *testing.T) {
	a := &account{known: []cloud.VolumeID{"old", "stays", "during"}}
	want := []cloud.VolumeID{"stays", "listed", "during"}
	if got := a.know([]cloud.VolumeID{"stays", "listed"}, []cloud.VolumeID{"old", "stays"}); !slices.Equal(got, want) || !slices.Equal(a.volumes(), want) {
		t.Errorf("known are %v and %v, want %v", got, a.volumes(), want)
	}
}

// One of the known volumes may have been deleted.
func TestAccountReadsEachVolumeThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 2)
		s.watchFor(t)
		if len(s.known) != 2 {
			t.Fatalf("known are %v, want 2", s.known)
		}
		ok(t, s.opens["key"].DeleteVolume(t.Context(), s.known[0]))
		delete(s.opens, "key")
		s.text = "newer key"
		s.want(t, "newer key", nil)
		delete(s.opens, "newer key")
		s.opens["newest key"] = s.opens["key"]
		s.text = "newest key"
		s.want(t, "newer key", fault.Denied)
	})
}

// While the earlier credentials still work, their current list counts and not that of an hour ago.
func TestAccountListsWithTheEarlierCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 2)
		s.watchFor(t)
		s.deleteAll(t, "key")
		makeVolumes(t, s.opens["key"], "later", 1)
		s.text = "newer key"
		s.want(t, "newer key", nil)
		if now, err := volumesOf(t.Context(), s.opens["key"], "one"); err != nil || len(now) != 1 || !slices.Equal(s.volumes(), now) {
			t.Errorf("known are %v, want %v, %v", s.volumes(), now, err)
		}
	})
}

// A cluster begins without volumes.
func TestAccountTakesAllCredentialsWhileNoVolumeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 0)
		s.watchFor(t)
		if s.note() != unknownAccount {
			t.Errorf("the note is %q, want %q", s.note(), unknownAccount)
		}
		s.text = "their key"
		s.want(t, "their key", nil)
		makeVolumes(t, s.opens["their key"], "later", 1)
		s.watchFor(t)
		if s.note() != "" {
			t.Errorf("the note is %q, want none", s.note())
		}
		s.text = "key"
		s.want(t, "their key", fault.Denied)
	})
}

func TestAccountRemembersABoundedNumber(t *testing.T) {
	c := memory.NewAccount(memory.Config{}).Cluster("one")
	makeVolumes(t, c, "pvc", maxKnown+1)
	if ids, err := volumesOf(t.Context(), c, "one"); err != nil || len(ids) != maxKnown {
		t.Errorf("remembered are %v, %v, want %d", ids, err, maxKnown)
	}
}

func TestAccountRemembersABoundedNumberOfAttachedVolumes(t *testing.T) {
	a := &account{}
	for i := range maxKnown + 1 {
		a.remember(cloud.VolumeID(fmt.Sprint("vol-", i)))
	}
	if got := a.volumes(); len(got) != maxKnown {
		t.Errorf("remembered are %v, want %d", got, maxKnown)
	}
	if got := a.know([]cloud.VolumeID{"listed", "vol-0"}, nil); len(got) != maxKnown || slices.Index(got, "vol-0") != 1 || slices.Contains(got[2:], "vol-0") {
		t.Errorf("after a list known are %v, want %d, each once", got, maxKnown)
	}
}

func TestAccountListsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(t, 0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.watch(ctx, keyed{s.opens["key"], s})
		for _, step := range []struct {
			name   string
			wait   time.Duration
			before func()
			known  int
		}{
			{"no volume", 0, func() {}, 0},
			{"the first volumes", listAgain, func() { makeVolumes(t, s.opens["key"], "later", 20) }, 2}, // of one page
			{"all are gone, which is not noticed yet", listAgain, func() { s.deleteAll(t, "key") }, 2},
			{"others", listEvery - listAgain, func() { makeVolumes(t, s.opens["key"], "more", 20) }, 2},
			{"a list that fails", listEvery, func() { s.broken.Store(true) }, 2},
		} {
			step.before()
			time.Sleep(step.wait)
			synctest.Wait()
			if len(s.known) != step.known {
				t.Errorf("%s: known are %v, want %d", step.name, s.known, step.known)
			}
		}
	})
}
