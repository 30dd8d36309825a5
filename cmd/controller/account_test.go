package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
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
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			if err := s.opens[key].DeleteVolume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := s.opens["key"].DeleteVolume(t.Context(), s.known[0]); err != nil {
			t.Fatal(err)
		}
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

// C15: the Secret gets a valid token of another account while a volume is attached.
func TestCredentialsOfAnotherAccount(t *testing.T) {
	for _, name := range accounts.Names() {
		if backends[name].checkSecret != nil {
			continue // its credentials are no token
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCredentialsOfAnotherAccount(t, startAccount(t, name, accounts.Options{Token: "ours", Machines: 1}), startAccount(t, name, accounts.Options{Token: "theirs", Machines: 1}))
		})
	}
}

// startAccount starts an account of a cloud, and serves its API until the test ends.
func startAccount(t *testing.T, name string, options accounts.Options) accounts.Account {
	t.Helper()
	account, err := accounts.Start(name, options)
	ok(t, err)
	t.Cleanup(func() { _ = account.Close() })
	ok(t, account.Listen(t.Context(), "127.0.0.1:0"))
	return account
}

func testCredentialsOfAnotherAccount(t *testing.T, ours, theirs accounts.Account) {
	// A cloud has one address for all accounts, and an account can have several tokens.
	const newer = "newer"
	var revoked atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + theirs.Token():
			theirs.Handler().ServeHTTP(w, r)
			return
		case "Bearer " + newer:
			r.Header.Set("Authorization", "Bearer "+ours.Token())
		default:
			if revoked.Load() {
				r.Header.Set("Authorization", "Bearer revoked")
			}
		}
		ours.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	file, endpoint, address := filepath.Join(dir, "token"), "unix://"+filepath.Join(dir, "c.sock"), drivertest.FreeAddress(t)
	use := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	use(ours.Token())
	flags := append(ours.Flags(), "--cloud="+ours.Name(), "--credentials-file="+file, "--api-endpoint="+api.URL, "--cluster-id=prod")
	cmd := program(t, append(flags, "--endpoint="+endpoint, "--http-endpoint="+address)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := csi.NewControllerClient(drivertest.Dial(t, endpoint))
	if _, err := client.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	wantPage(t, address, "readyz", http.StatusOK, unknownAccount)
	doctorSays(t, flags, "it has no volume of the cluster prod")
	unreadable := fmt.Sprintf("\ncloudblock_credentials_unreadable{driver_name=%q}", ours.Name()+".csi.cloudblock.io")

	node := ours.Machines()[0]
	create := func(name string) *csi.Volume {
		t.Helper()
		made, err := client.CreateVolume(ctx, createRequest(name))
		if err != nil {
			t.Fatal(err)
		}
		return made.GetVolume()
	}
	publish := func(vol *csi.Volume) {
		t.Helper()
		if _, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: vol.GetVolumeId(), NodeId: node, VolumeContext: vol.GetVolumeContext(), VolumeCapability: createRequest("").GetVolumeCapabilities()[0],
		}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(vol *csi.Volume) error {
		_, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()})
		return err
	}
	detach := func(vol *csi.Volume) error {
		_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: vol.GetVolumeId(), NodeId: node})
		return err
	}
	first, second := create("pvc-1"), create("pvc-2")
	publish(first)
	publish(second)
	wantPage(t, address, "readyz", http.StatusOK, "ok\n")
	doctorSays(t, flags, "it has volumes of the cluster prod")

	use(theirs.Token())
	if err := errors.Join(detach(first), remove(first)); err != nil {
		t.Errorf("with the token of another account in the file, the earlier one is not used: %v", err)
	}
	create("pvc-3")
	if made := theirs.Volumes(); len(made) != 0 || len(ours.Volumes()) != 2 {
		t.Errorf("with the token of another account in the file, that account has %+v, and ours %+v", made, ours.Volumes())
	}
	wantPage(t, address, "metrics", http.StatusOK, unreadable+" 1\n")
	wantPage(t, address, "readyz", http.StatusServiceUnavailable, "another account")

	revoked.Store(true)
	for call, do := range map[string]func(*csi.Volume) error{"DeleteVolume": remove, "ControllerUnpublishVolume": detach} {
		if err := do(second); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "CB-ACCESS-DENIED") {
			t.Errorf("%s with a revoked token, and that of another account in the file: %v, want PermissionDenied", call, err)
		}
	}
	if there := accounts.Find(ours, second.GetVolumeId()); there.Machine != node {
		t.Errorf("the volume is now %+v", there)
	}

	use(newer)
	if err := errors.Join(detach(second), remove(second)); err != nil {
		t.Errorf("with another token of this account: %v", err)
	}
	if left := ours.Volumes(); len(left) != 1 {
		t.Errorf("left are %+v, want pvc-3", left)
	}
	wantPage(t, address, "metrics", http.StatusOK, unreadable+" 0\n")
	wantPage(t, address, "readyz", http.StatusOK, "ok\n")

	// Another program finds the volumes itself.
	other := drivertest.FreeAddress(t)
	cmd = program(t, append(flags, "--endpoint="+endpoint+"2", "--http-endpoint="+other)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drivertest.Ready(t, drivertest.Dial(t, endpoint+"2"))
	eventually(t, "a program that was started with a volume in the account says that it is ready", func() bool {
		_, text := drivertest.Page(t, "http://"+other+"/readyz")
		return text == "ok\n"
	})
}

// wantPage fails the test unless a page of the program has this status and these words.
func wantPage(t *testing.T, address, page string, code int, says string) {
	t.Helper()
	if got, text := drivertest.Page(t, "http://"+address+"/"+page); got != code || !strings.Contains(text, says) {
		t.Errorf("/%s answers %d, want %d and %q:\n%s", page, got, code, says, text)
	}
}

// doctorSays fails the test unless doctor reports this about the account.
func doctorSays(t *testing.T, flags []string, says string) {
	t.Helper()
	report, exit := findings(t, flags...)
	for _, f := range report {
		if f.Check == "account" && strings.Contains(f.Message, says) && exit == 0 {
			return
		}
	}
	t.Errorf("doctor exits with %d and finds %+v, want of the account: %q", exit, report, says)
}
