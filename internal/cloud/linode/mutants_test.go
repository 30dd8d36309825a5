package linode_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// mutants are what is broken, with a part of the name of the subtest of Crashes.Faults that has to find it.
var mutants = map[string]string{
	"takes an attachment that a detach is undoing for one": "an attach waits for a detach",
	"takes what is free for detached":                      "an attach that arrives late",
	"leaves a failed create behind":                        "a create that failed leaves nothing",
	"finds a volume that is not ready":                     "a volume is found once it is ready",
	"loses an entry that moves to an earlier page":         "a list is complete",
	"takes 429 for a failure":                              "has no budget for",
	"names a volume like its request":                      "names that the cloud forbids",
	"takes any answer for a deletion":                      "no answer that is not the cloud's",
	"takes any answer for the volume":                      "another volume",
	takesList:                                              "a list that lacks everything",
	takesList + " that failed":                             "a list that fails",
	"answers a create with what has the name":              "each call is one write",
	"an account that allows all names":                     "names that the cloud forbids",
	"an account that fails nothing":                        "a create that failed leaves nothing",
	"an account whose list is one page":                    "a list is complete",
}

// takesList begins the names of mutants that read a list and take an attach for done, whatever the list has.
const takesList = "takes a list for the end of an attach"

// TestTheSuiteFindsEveryMutant proves that Crashes.Faults can fail, in processes of their own.
func TestTheSuiteFindsEveryMutant(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the suite once for each mutant, which takes minutes: make verify does, -short does not")
	}
	for breaks, caught := range mutants {
		t.Run(breaks, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutant$", "-test.v", "-test.timeout=120s")
			// What a broken controller asks for may break the API's description, too.
			child.Env = append(os.Environ(), "CLOUDTEST_MUTANT="+breaks, contract.Folder+"=")
			out, err := child.CombinedOutput()
			if err == nil || !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
				return strings.Contains(line, "--- FAIL: ") && strings.Contains(line, strings.ReplaceAll(caught, " ", "_"))
			}) {
				t.Errorf("no subtest %q has failed (%v), but\n%s", caught, err, out)
			}
		})
	}
}

// TestMutant is the child process.
func TestMutant(t *testing.T) {
	breaks := os.Getenv("CLOUDTEST_MUTANT")
	if breaks == "" {
		return // there is nothing to test in the parent
	}
	cr := crashes(clock.Fixed(2*time.Millisecond), emulator.Rules{})
	fresh := cr.Fresh
	cr.Fresh = func(t *testing.T) cloudtest.Account {
		return mutantAccount{crashed: fresh(t).(crashed), breaks: breaks}
	}
	cr.HTTP = func(t *testing.T, account cloudtest.Account, over func(http.RoundTripper) http.RoundTripper) cloud.Cloud {
		a := account.(mutantAccount)
		a.lists = make(chan struct{}, 1)
		return mutant{open(t, a.Cloud, func(cfg *linode.Config) { cfg.Transport = a.watched(over(cfg.Transport)) }), a}
	}
	if breaks == "an account whose list is one page" {
		cr.Page /= 5
	}
	cr.Faults(t)
}

// mutantAccount is an account that is broken, or whose controllers are.
type mutantAccount struct {
	crashed

	breaks string
	// lists has a value when there was a list that a mutant takes for the end of an attach.
	lists chan struct{}
}

// watched is a transport that puts into lists what a mutant takes for the end of an attach.
func (a mutantAccount) watched(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		res, err := base.RoundTrip(r)
		if err == nil && r.Header.Get("X-Filter") != "" && (res.StatusCode == http.StatusOK) == (a.breaks == takesList) {
			select {
			case a.lists <- struct{}{}:
			default: // there is one
			}
		}
		return res, err
	})
}

func (a mutantAccount) Open(t *testing.T, around cloudtest.Around) cloud.Cloud {
	return mutant{open(t, a.Cloud, func(cfg *linode.Config) {
		cfg.OrphanAge, cfg.Lateness = time.Nanosecond, time.Millisecond
		base := cloudtest.OverHTTP(cfg.Transport, around)
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := base.RoundTrip(r)
			if err == nil && res.StatusCode == http.StatusTooManyRequests && a.breaks == "takes 429 for a failure" {
				res.StatusCode = http.StatusServiceUnavailable
			}
			return res, err
		})
	}), a}
}

func (a mutantAccount) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	return a.crashed.Left(t, c.(mutant).Cloud)
}

func (a mutantAccount) Arm(next cloudtest.Change, f cloudtest.Fault) (struck func() bool) {
	if f.Fail && a.breaks == "an account that fails nothing" {
		return func() bool { return false }
	}
	return a.crashed.Arm(next, f)
}

func (a mutantAccount) Add(name string) (cloud.VolumeID, error) {
	id, err := a.crashed.Add(name)
	if err != nil && a.breaks == "an account that allows all names" {
		return "1", nil
	}
	return id, err
}

// mutant is a controller that is broken.
type mutant struct {
	cloud.Cloud

	of mutantAccount
}

func (m mutant) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	vol, err := m.Cloud.CreateVolume(ctx, req)
	switch {
	case m.of.breaks == "names a volume like its request":
		vol.Name = req.Name
	case errors.Is(err, fault.Conflict) && m.of.breaks == "answers a create with what has the name":
		return m.Cloud.FindVolume(ctx, req.Name)
	case err != nil && m.of.breaks == "leaves a failed create behind":
		_, _ = m.of.crashed.Add("left")
	}
	return vol, err
}

func (m mutant) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	if m.of.breaks == "finds a volume that is not ready" {
		list, _ := m.Cloud.ListVolumes(ctx, cloud.Page{})
		for _, vol := range list.Volumes {
			return vol, nil
		}
	}
	return m.Cloud.FindVolume(ctx, name)
}

func (m mutant) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	vol, err := m.Cloud.GetVolume(ctx, id)
	if errors.Is(err, fault.Unavailable) && m.of.breaks == "takes any answer for the volume" {
		return vol, nil
	}
	return vol, err
}

func (m mutant) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	err := m.Cloud.DeleteVolume(ctx, id)
	if errors.Is(err, fault.Uncertain) && m.of.breaks == "takes any answer for a deletion" {
		return nil
	}
	return err
}

func (m mutant) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	list, err := m.Cloud.ListVolumes(ctx, page)
	if n := len(list.Volumes); n > 500 && m.of.breaks == "loses an entry that moves to an earlier page" {
		list.Volumes = slices.Delete(list.Volumes, 500, 501)
	}
	return list, err
}

func (m mutant) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	if m.of.breaks == "takes an attachment that a detach is undoing for one" && m.of.At(id) == node {
		return cloud.Device{}, nil
	}
	if !strings.HasPrefix(m.of.breaks, takesList) || m.of.lists == nil {
		return m.Cloud.Attach(ctx, id, node)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-m.of.lists:
			stop()
		case <-ctx.Done():
		}
	}()
	dev, err := m.Cloud.Attach(ctx, id, node)
	listed := ctx.Err() != nil
	stop()
	<-done
	if listed {
		return dev, nil
	}
	return dev, err
}

func (m mutant) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if vol, err := m.GetVolume(ctx, id); err == nil && len(vol.AttachedTo) == 0 && m.of.breaks == "takes what is free for detached" {
		return nil
	}
	return m.Cloud.Detach(ctx, id, node)
}
