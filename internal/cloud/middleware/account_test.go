package middleware_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// twoAccounts is a cloud with this cluster's account, for the credentials "old" and "new", and another one, for "theirs", which has a
// cluster with the same id.
type twoAccounts struct {
	cloud.Cloud // of the present credentials

	ours, theirs *memory.Cloud
	credentials  string
	// during is run once, in the next create, delete, read or list of volumes, before the cloud has it; ended after the next delete or read.
	during, ended func()
	gets, lists   int
}

// newTwoAccounts returns them with the decorator of a controller of the cluster "one".
func newTwoAccounts(t *testing.T) (*twoAccounts, *middleware.Account) {
	t.Helper()
	c := &twoAccounts{ours: memory.NewAccount(memory.Config{}).Cluster("one"), theirs: memory.NewAccount(memory.Config{}).Cluster("one")}
	for i := range 100 { // whose ids are others
		if err := c.theirs.DeleteVolume(t.Context(), create(t, c.theirs, small(fmt.Sprint(i))).ID); err != nil {
			t.Fatal(err)
		}
	}
	c.replace("old")
	return c, c.controller()
}

func (c *twoAccounts) controller() *middleware.Account {
	return middleware.NewAccount(c, "one", func() (string, error) { return c.credentials, nil })
}

func (c *twoAccounts) replace(credentials string) {
	c.credentials, c.Cloud = credentials, c.ours
	if credentials == "theirs" {
		c.Cloud = c.theirs
	}
}

func once(hook *func()) {
	if run := *hook; run != nil {
		*hook = nil
		run()
	}
}

func (c *twoAccounts) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	once(&c.during)
	return c.Cloud.CreateVolume(ctx, req)
}

func (c *twoAccounts) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	c.gets++
	once(&c.during)
	defer once(&c.ended)
	return c.Cloud.GetVolume(ctx, id)
}

func (c *twoAccounts) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	once(&c.during)
	err := c.Cloud.DeleteVolume(ctx, id)
	once(&c.ended)
	return err
}

func (c *twoAccounts) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	c.lists++
	once(&c.during)
	return c.Cloud.ListVolumes(ctx, page)
}

func TestAccountRefusesTheCredentialsOfAnotherAccount(t *testing.T) {
	c, a := newTwoAccounts(t)
	vol := create(t, c.ours, small("kept"))
	snap := snapshot(t, c.ours, snapshotOf("kept", vol.ID))
	wantKind(t, "Check at start", a.Check(t.Context()), fault.None)
	if !a.Known() || c.lists != 1 || c.gets != 0 {
		t.Errorf("the start knows a volume: %t, with %d lists and %d reads, want one list", a.Known(), c.lists, c.gets)
	}
	calls := map[string]func() error{
		"Detach":         func() error { return a.Detach(t.Context(), vol.ID, "node-1") },
		"DeleteVolume":   func() error { return a.DeleteVolume(t.Context(), vol.ID) },
		"DeleteSnapshot": func() error { return a.DeleteSnapshot(t.Context(), snap.ID) },
		"Check":          func() error { return a.Check(t.Context()) },
	}
	creates := map[string]func() error{
		"CreateVolume": func() error { _, err := a.CreateVolume(t.Context(), small("new")); return err },
		"CreateSnapshot": func() error {
			_, err := middleware.NewIdempotent(a).CreateSnapshot(t.Context(), snapshotOf("kept", vol.ID))
			return err
		},
	}

	c.replace("theirs")
	foreign := create(t, c.theirs, small("of another cluster"))
	if _, err := a.Attach(t.Context(), foreign.ID, "node-1"); err != nil {
		t.Errorf("Attach of a volume that exists there = %v", err)
	}
	for call, do := range calls {
		err := do()
		wantKind(t, call+" with another account's credentials", err, fault.Denied)
		if err != nil && (!strings.Contains(err.Error(), string(vol.ID)) || fault.ReasonOf(err) != fault.AccessDenied) {
			t.Errorf("%s = %v, which does not name the volume, or has no reason", call, err)
		}
	}
	for call, do := range creates {
		err := do()
		wantKind(t, call+" with another account's credentials", err, fault.Uncertain)
		if fault.ReasonOf(err) != fault.AccessDenied {
			t.Errorf("%s = %v, which has no reason", call, err)
		}
	}
	if n := count(t, c.theirs); n != 1 {
		t.Errorf("the other account has %d volumes, want 1", n)
	}

	c.replace("new")
	c.gets, c.lists = 0, 0
	wantKind(t, "Check with new credentials of this account", calls["Check"](), fault.None)
	if c.gets != 1 || c.lists != 0 {
		t.Errorf("new credentials cost %d reads and %d lists, want one read", c.gets, c.lists)
	}
	for _, call := range []string{"Detach", "DeleteSnapshot", "DeleteVolume"} {
		wantKind(t, call+" with new credentials of this account", calls[call](), fault.None)
	}
	if n := count(t, c.ours); n != 0 || c.gets != 1 {
		t.Errorf("%d volumes are left, and accepted credentials cost %d reads", n, c.gets-1)
	}
}

// TestAccountKnowsWhatItUses: what the start could not list, such as volumes of a driver that was there before.
func TestAccountKnowsWhatItUses(t *testing.T) {
	for how, use := range map[string]func(t *testing.T, a *middleware.Account, foreign cloud.Volume){
		"a create": func(t *testing.T, a *middleware.Account, _ cloud.Volume) { create(t, a, small("new")) },
		"an attach": func(t *testing.T, a *middleware.Account, foreign cloud.Volume) {
			if _, err := a.Attach(t.Context(), foreign.ID, "node-1"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			c, a := newTwoAccounts(t)
			foreign := create(t, c.ours.Account().Cluster("another"), small("foreign"))
			wantKind(t, "Check", a.Check(t.Context()), fault.None)
			if a.Known() {
				t.Error("a volume is known, and this cluster has none")
			}
			use(t, a, foreign)
			c.replace("theirs")
			wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), "vol-of-ours"), fault.Denied)
		})
	}
}

// TestAccountKnowsTheRestOfManyVolumes: volumes come and go, by this controller and by another one.
func TestAccountKnowsTheRestOfManyVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newTwoAccounts(t)
		old := create(t, c.ours, small("old"))
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		var jobs []cloud.Volume
		for i := range 70 {
			jobs = append(jobs, create(t, a, small(fmt.Sprint("job-", i))))
		}
		for _, v := range jobs[:40] {
			wantKind(t, "a delete by another controller", c.ours.DeleteVolume(t.Context(), v.ID), fault.None)
		}
		c.replace("new")
		wantKind(t, "Check after what was made next is gone", a.Check(t.Context()), fault.None)
		for _, v := range jobs {
			wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), v.ID), fault.None)
		}
		create(t, c.ours, small("by another controller"))
		time.Sleep(time.Hour)
		wantKind(t, "Check an hour later", a.Check(t.Context()), fault.None)
		wantKind(t, "a delete by another controller", c.ours.DeleteVolume(t.Context(), old.ID), fault.None)
		c.replace("old")
		wantKind(t, "Check after the oldest is gone", a.Check(t.Context()), fault.None)
		c.replace("theirs")
		wantKind(t, "DeleteVolume of what another controller has made", a.DeleteVolume(t.Context(), "vol-of-ours"), fault.Denied)
	})
}

// TestAccountForgetsWhatIsGone: all volumes were deleted by another controller, those that have no mark too.
func TestAccountForgetsWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newTwoAccounts(t)
		foreign := create(t, c.ours.Account().Cluster("another"), small("foreign"))
		if _, err := a.Attach(t.Context(), foreign.ID, "node-1"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		if _, err := a.Attach(t.Context(), foreign.ID, "node-1"); err != nil || !a.Known() {
			t.Fatalf("Attach = %v, known: %t", err, a.Known())
		}
		time.Sleep(time.Hour)
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		if !a.Known() {
			t.Error("a volume that exists is no longer known")
		}
		wantKind(t, "Detach", c.ours.Detach(t.Context(), foreign.ID, "node-1"), fault.None)
		wantKind(t, "DeleteVolume", c.ours.DeleteVolume(t.Context(), foreign.ID), fault.None)
		time.Sleep(time.Hour)
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		c.replace("new")
		wantKind(t, "Check of an empty cluster with new credentials", a.Check(t.Context()), fault.None)
	})
}

// TestAccountAcceptsForTheVolumeOfACall: the controller began with wrong credentials and knows a volume of their account.
func TestAccountAcceptsForTheVolumeOfACall(t *testing.T) {
	c, a := newTwoAccounts(t)
	vol := create(t, c.ours.Account().Cluster("before"), small("kept"))
	c.replace("theirs")
	wantKind(t, "Check", a.Check(t.Context()), fault.None)
	create(t, a, small("at the wrong place"))
	c.replace("old")
	wantKind(t, "Check with the right ones", a.Check(t.Context()), fault.Denied)
	wantKind(t, "Detach", a.Detach(t.Context(), vol.ID, "node-1"), fault.None)
	wantKind(t, "Detach of another one", a.Detach(t.Context(), "vol-another", "node-1"), fault.Denied)
	wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), vol.ID), fault.None)
}

// TestAccountMeetsNewCredentialsDuringACall: which ones the cloud has seen is not known then.
func TestAccountMeetsNewCredentialsDuringACall(t *testing.T) {
	start := func(t *testing.T) (*twoAccounts, *middleware.Account, cloud.Volume) {
		t.Helper()
		c, a := newTwoAccounts(t)
		vol := create(t, c.ours, small("kept"))
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		return c, a, vol
	}
	t.Run("the delete of the only volume", func(t *testing.T) {
		c, a, vol := start(t)
		c.during = func() { c.replace("theirs") }
		wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), vol.ID), fault.Uncertain)
		wantKind(t, "DeleteVolume again", a.DeleteVolume(t.Context(), vol.ID), fault.Denied)
		c.replace("new")
		c.ended = func() { c.replace("old") }
		wantKind(t, "DeleteVolume with new credentials that change", a.DeleteVolume(t.Context(), vol.ID), fault.Uncertain)
	})
	t.Run("a create", func(t *testing.T) {
		c, a, vol := start(t)
		stack := middleware.NewIdempotent(a)
		c.during = func() { c.replace("theirs") }
		_, err := stack.CreateVolume(t.Context(), small("new"))
		wantKind(t, "CreateVolume", err, fault.Uncertain)
		if n := count(t, c.theirs); n != 1 {
			t.Fatalf("the other account has %d volumes, want that of the create", n)
		}
		wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), vol.ID), fault.Denied)
		_, err = stack.CreateVolume(t.Context(), small("new"))
		wantKind(t, "CreateVolume again", err, fault.Uncertain)
	})
	t.Run("the first create", func(t *testing.T) {
		c, a := newTwoAccounts(t)
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		c.during = func() { c.replace("theirs") }
		_, err := a.CreateVolume(t.Context(), small("new"))
		wantKind(t, "CreateVolume", err, fault.Uncertain)
		if a.Known() {
			t.Error("a volume is known of a create of which the account is not")
		}
	})
	t.Run("a refused create", func(t *testing.T) {
		c, a, vol := start(t)
		snapshot(t, c.ours, snapshotOf("s", vol.ID)) // by an earlier call
		c.during = func() { c.replace("theirs") }
		req := small("copy")
		req.Source.Volume = vol.ID
		_, err := middleware.NewIdempotent(a).CreateVolume(t.Context(), req)
		wantKind(t, "CreateVolume of what does not exist there", err, fault.Uncertain)
		_, err = middleware.NewIdempotent(a).CreateSnapshot(t.Context(), snapshotOf("s", vol.ID))
		wantKind(t, "CreateSnapshot of what does not exist there", err, fault.Uncertain)
	})
	t.Run("a list", func(t *testing.T) {
		c, a := newTwoAccounts(t)
		create(t, c.theirs, small("of a cluster with the same id"))
		wantKind(t, "a call that needs no list", a.Detach(t.Context(), "vol-gone", "node-1"), fault.None)
		c.during = func() { c.replace("theirs") }
		wantKind(t, "Learn", a.Learn(t.Context()), fault.Unavailable)
		if a.Known() {
			t.Error("a volume of the other account is known")
		}
	})
	t.Run("a verification", func(t *testing.T) {
		c, a, vol := start(t)
		c.replace("theirs")
		c.during = func() { c.replace("old") } // the read has the old ones
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		c.replace("new")
		c.ended = func() { c.replace("theirs") } // after the read
		wantKind(t, "Check", a.Check(t.Context()), fault.Denied)
		wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), vol.ID), fault.Denied)
	})
}

// TestAccountDoesNotBelieveWhatItCouldNotRead: the cloud refuses or hangs while new credentials are verified.
func TestAccountDoesNotBelieveWhatItCouldNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newTwoAccounts(t)
		vol := create(t, c.ours, small("kept"))
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		c.replace("theirs")
		theirs := c.theirs.Account()
		theirs.Arm(memory.CallGetVolume, memory.Refuse(fault.Unavailable), memory.Refuse(fault.Unavailable))
		wantKind(t, "Detach without a read", a.Detach(t.Context(), vol.ID, "node-1"), fault.Unavailable)
		release := make(chan struct{})
		theirs.Arm(memory.CallGetVolume, memory.Refuse(fault.NotFound), memory.Hold(release))
		hanging := make(chan error)
		go func() { hanging <- a.Detach(t.Context(), vol.ID, "node-1") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.DeleteSnapshot(ctx, "snap-gone"); err == nil || ctx.Err() == nil {
			t.Errorf("a delete while a verification hangs = %v, at the end of its time: %v", err, ctx.Err())
		}
		close(release)
		wantKind(t, "the detach whose verification hung", <-hanging, fault.Denied)
	})
}

// TestAccountListsSeldom: a list that fails does not make the check of the credentials fail, nor a call wait.
func TestAccountListsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newTwoAccounts(t)
		vol := create(t, c.ours, small("kept"))
		c.ours.Account().Arm(memory.CallListVolumes, memory.Refuse(fault.NotFound))
		wantKind(t, "Check", a.Check(t.Context()), fault.None)
		wantKind(t, "Detach", a.Detach(t.Context(), vol.ID, "node-1"), fault.None)
		if a.Known() {
			t.Error("a volume is known from a list that failed")
		}
		minutes := func(n, lists int) {
			c.lists = 0
			for range n {
				time.Sleep(time.Minute)
				wantKind(t, "Check", a.Check(t.Context()), fault.None)
			}
			if c.lists != lists {
				t.Errorf("%d lists in %d minutes, want %d", c.lists, n, lists)
			}
		}
		minutes(9, 0)
		minutes(1, 1)
		if !a.Known() {
			t.Error("no volume is known after a list")
		}
		minutes(60, 1)
		c.lists = 0
		wantKind(t, "DeleteVolume of the last one", a.DeleteVolume(t.Context(), vol.ID), fault.None)
		wantKind(t, "DeleteVolume of what is gone", a.DeleteVolume(t.Context(), vol.ID), fault.None)
		if c.lists != 1 {
			t.Errorf("the last volume and one more cost %d lists, want one", c.lists)
		}
		minutes(60, 1)
	})
}

func TestAccountReadsEachPage(t *testing.T) {
	account := memory.NewAccount(memory.Config{PageSize: 3})
	for i := range 10 {
		create(t, account.Cluster("another"), small(fmt.Sprint(i)))
	}
	create(t, account.Cluster("one"), small("ours"))
	for i := range 10 {
		create(t, account.Cluster("another"), small(fmt.Sprint("later ", i)))
	}
	c := &twoAccounts{Cloud: account.Cluster("one")}
	a := c.controller()
	if err := a.Learn(t.Context()); err != nil || !a.Known() || c.lists != 4 {
		t.Errorf("Learn = %v after %d pages, known: %t, want the fourth page to be the last", err, c.lists, a.Known())
	}
}
