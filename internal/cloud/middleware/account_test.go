package middleware_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// credentialed is a cloud that shows what the account of its credentials has.
type credentialed struct {
	cloud.Cloud

	token    string
	accounts map[string]cloud.Cloud
}

func (c *credentialed) replace(token string) { c.token, c.Cloud = token, c.accounts[token] }

// accounts are two: this cluster's, with tokens "old" and "new", and another one, with "theirs".
func accounts(ours, theirs *memory.Cloud) (*credentialed, *middleware.Account) {
	c := &credentialed{accounts: map[string]cloud.Cloud{"old": ours, "new": ours, "theirs": theirs}}
	c.replace("old")
	return c, middleware.NewAccount(c, "one", func() (string, error) { return c.token, nil })
}

// TestAccountRefusesTheCredentialsOfAnotherAccount: what is believed with these credentials, and what is done.
func TestAccountRefusesTheCredentialsOfAnotherAccount(t *testing.T) {
	ours, theirs := memory.NewAccount(memory.Config{}).Cluster("one"), memory.NewAccount(memory.Config{}).Cluster("one")
	create(t, theirs, small("of another cluster with the same id"))
	vol := create(t, ours, small("kept"))
	if _, err := ours.Attach(t.Context(), vol.ID, "node-1"); err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, ours, snapshotOf("kept", vol.ID))
	c, a := accounts(ours, theirs)
	wantKind(t, "Check at start", a.Check(t.Context()), fault.None)
	if !a.Known() {
		t.Error("the start remembers no volume, and the account has one of this cluster")
	}
	// What has the same id there is another one's.
	if err := theirs.DeleteVolume(t.Context(), vol.ID); err != nil {
		t.Fatal(err)
	}

	c.replace("theirs")
	calls := map[string]func() error{
		"Detach":         func() error { return a.Detach(t.Context(), vol.ID, "node-1") },
		"DeleteVolume":   func() error { return a.DeleteVolume(t.Context(), vol.ID) },
		"DeleteSnapshot": func() error { return a.DeleteSnapshot(t.Context(), snap.ID) },
		"Check":          func() error { return a.Check(t.Context()) },
	}
	for call, do := range calls {
		err := do()
		wantKind(t, call+" with another account's credentials", err, fault.Denied)
		if err != nil && (!strings.Contains(err.Error(), string(vol.ID)) || fault.ReasonOf(err) != fault.AccessDenied) {
			t.Errorf("%s = %v, which does not name the volume, or has no reason", call, err)
		}
	}
	_, err := a.CreateVolume(t.Context(), small("new"))
	wantKind(t, "CreateVolume with another account's credentials", err, fault.Uncertain)
	if n := count(t, theirs); n != 0 || fault.ReasonOf(err) != fault.AccessDenied {
		t.Errorf("a create in another account: %v, and it has %d volumes", err, n)
	}

	c.replace("new")
	for _, call := range []string{"Check", "Detach", "DeleteSnapshot", "DeleteVolume"} {
		wantKind(t, call+" with new credentials of this account", calls[call](), fault.None)
	}
	if n := count(t, ours); n != 0 {
		t.Errorf("%d volumes are left", n)
	}
}

// TestAccountRemembersWhatItWorksWith: volumes that nobody's list marks as this cluster's, such as those of a driver that
// was there before, are known from their first attach.
func TestAccountRemembersWhatItWorksWith(t *testing.T) {
	for how, learn := range map[string]func(t *testing.T, a *middleware.Account, foreign cloud.Volume){
		"a create": func(t *testing.T, a *middleware.Account, _ cloud.Volume) { create(t, a, small("new")) },
		"an attach": func(t *testing.T, a *middleware.Account, foreign cloud.Volume) {
			if _, err := a.Attach(t.Context(), foreign.ID, "node-1"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			account := memory.NewAccount(memory.Config{})
			foreign := create(t, account.Cluster("another"), small("foreign"))
			c, a := accounts(account.Cluster("one"), memory.New(memory.Config{}))
			wantKind(t, "Check", a.Check(t.Context()), fault.None)
			if a.Known() {
				t.Error("a volume is known, and this cluster has none")
			}
			learn(t, a, foreign)
			c.replace("theirs")
			wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), "vol-of-ours"), fault.Denied)
		})
	}
}

// TestAccountKnowsOneOfManyVolumes: of what it remembers most may have been deleted by hand.
func TestAccountKnowsOneOfManyVolumes(t *testing.T) {
	ours := memory.NewAccount(memory.Config{}).Cluster("one")
	c, a := accounts(ours, memory.New(memory.Config{}))
	var made []cloud.Volume
	for _, name := range strings.Fields("a b c d e f g h i j") {
		made = append(made, create(t, a, small(name)))
	}
	wantKind(t, "DeleteVolume", a.DeleteVolume(t.Context(), made[9].ID), fault.None)
	for _, v := range made[:8] {
		wantKind(t, "a delete by hand", ours.DeleteVolume(t.Context(), v.ID), fault.None)
	}
	c.replace("new")
	wantKind(t, "Detach", a.Detach(t.Context(), made[0].ID, "node-1"), fault.None)
	wantKind(t, "the last delete by hand", ours.DeleteVolume(t.Context(), made[8].ID), fault.None)
	c.replace("old")
	wantKind(t, "Detach when all are gone", a.Detach(t.Context(), made[0].ID, "node-1"), fault.Denied)
}

// TestAccountDoesNotBelieveWhatItCouldNotLookUp: the credentials are replaced during a call, and while the cloud does not answer.
func TestAccountDoesNotBelieveWhatItCouldNotLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := memory.NewAccount(memory.Config{}).Cluster("one")
		vol := create(t, ours, small("kept"))
		theirs := memory.New(memory.Config{})
		c, a := accounts(ours, theirs)
		ours.Account().Arm(memory.CallListVolumes, memory.Refuse(fault.Unavailable))
		wantKind(t, "a detach without an answer to the look", a.Detach(t.Context(), vol.ID, "node-1"), fault.Unavailable)
		wantKind(t, "Check, which proves the credentials only", a.Check(t.Context()), fault.None)

		release := make(chan struct{})
		ours.Account().Arm(memory.CallDetach, memory.Hold(release))
		done := make(chan error)
		go func() { done <- a.Detach(t.Context(), vol.ID, "node-1") }()
		synctest.Wait()
		c.replace("theirs")
		close(release)
		wantKind(t, "a detach during which the credentials were replaced", <-done, fault.Denied)

		theirs.Account().Arm(memory.CallGetVolume, memory.Hold(make(chan struct{})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Detach(ctx, vol.ID, "node-1"); err == nil || ctx.Err() == nil {
			t.Errorf("a detach while the look hangs = %v, after its time: %v", err, ctx.Err())
		}
	})
}
