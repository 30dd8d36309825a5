package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

const (
	// maxKnown is the maximum number of volumes that account stores, and reads with new credentials.
	maxKnown = 16
	// listEvery is the time between two lists of them, listAgain that after a list without one.
	listEvery, listAgain = time.Hour, 10 * time.Minute
	// listFor is the timeout of that list, which may have many pages.
	listFor = 5 * time.Minute
	// verifyFor is the timeout of each half of a verification of new credentials, for which requests wait. A verification that has
	// failed is repeated after verifyAgain.
	verifyFor, verifyAgain = 10 * time.Second, 30 * time.Second
)

// unknownAccount is in the response of /readyz until a volume of this cluster is known.
const unknownAccount = "no volume of this cluster is known, so credentials of another account would not be refused"

// account provides the credentials of one account: first those that the credentials file had at the start, and then new ones in the
// file once a volume of this cluster was read with them. Until then the earlier ones stay in use. In another account no volume of
// this cluster exists, and a delete or a detach of a volume that does not exist counts as done. While no volume is known, account
// accepts all credentials.
type account struct {
	cluster string
	file    func() (string, error)
	// open opens another backend with these credentials.
	open func(ctx context.Context, credentials string) (cloud.Cloud, closer, error)
	log  *zap.Logger

	verifying sync.Mutex // held by one request at a time; the others wait for a verification
	used      driver.Secret
	refused   driver.Secret // the content of the file, if it is not used
	again     time.Time     // when refused is verified again

	mu    sync.Mutex
	known []cloud.VolumeID
	err   error // why refused is not used
}

// newAccount returns the account of the credentials file of a configuration.
func newAccount(cfg config, log *zap.Logger) *account {
	return &account{
		cluster: cfg.clusterID, file: cfg.file.read, log: log,
		open: func(ctx context.Context, credentials string) (cloud.Cloud, closer, error) {
			cfg.token = func() (string, error) { return credentials, nil }
			return cfg.backend.open(ctx, cfg, surroundings{log: zap.NewNop(), registry: prometheus.NewRegistry()})
		},
	}
}

// credentials returns the credentials in use.
func (a *account) credentials() (string, error) {
	a.verifying.Lock()
	defer a.verifying.Unlock()
	text, err := a.file() // under the lock, or an older text could replace a newer one
	if err != nil {
		return "", err
	}
	switch used := a.used.Reveal(); {
	case used == "" || used == text:
		a.use(text)
	case text == a.refused.Reveal() && time.Now().Before(a.again):
	default:
		a.replace(text)
	}
	return a.used.Reveal(), nil
}

func (a *account) use(text string) {
	a.used, a.refused = driver.NewSecret(text), driver.Secret{}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = nil
}

// replace uses other credentials from now on if it can verify them.
func (a *account) replace(text string) {
	first := text != a.refused.Reveal()
	err := a.verify(text, first)
	if err == nil {
		a.use(text)
		a.log.Info("the credentials were replaced")
		return
	}
	err = fmt.Errorf("the new credentials are not used, and the program continues with the earlier ones: %w", err)
	if first {
		a.log.Warn("the credentials file has credentials that are not used", zap.Error(err))
	}
	a.refused, a.again = driver.NewSecret(text), time.Now().Add(verifyAgain)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// verify returns nil if a volume of this cluster can be read with other credentials, or if none is known. The first time it lists
// the volumes with the earlier credentials before that.
func (a *account) verify(text string, first bool) error {
	known := a.volumes()
	if first || len(known) == 0 {
		ids, err := a.list(known)
		switch {
		case err == nil:
			known = a.know(ids, known)
		case len(known) == 0 && fault.Of(err) != fault.Denied && fault.Of(err) != fault.NotFound:
			return fmt.Errorf("list volumes of this cluster with the earlier ones: %w", err)
		} // else they were revoked or never valid: the volumes of earlier lists have to suffice
	}
	if len(known) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), verifyFor)
	defer cancel()
	return a.with(ctx, text, func(c cloud.Cloud) error {
		for _, id := range known {
			if _, err := c.GetVolume(ctx, id); fault.Of(err) != fault.NotFound {
				return err // nil, or it is unknown whether the volume exists
			}
		}
		return fmt.Errorf("they are of another account, where volume %s and %d others of this cluster do not exist; correct the Secret, or restart the controller if it is right: %w",
			known[0], len(known)-1, fault.Denied)
	})
}

// list returns volumes that exist according to the earlier credentials: volumes of this cluster, or if there are none, known ones.
func (a *account) list(known []cloud.VolumeID) (ids []cloud.VolumeID, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), verifyFor)
	defer cancel()
	err = a.with(ctx, a.used.Reveal(), func(c cloud.Cloud) error {
		if ids, err = volumesOf(ctx, c, a.cluster); err != nil || len(ids) > 0 {
			return err
		}
		for _, id := range known {
			if _, err := c.GetVolume(ctx, id); fault.Of(err) != fault.NotFound {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

// with calls do with a backend that has these credentials.
func (a *account) with(ctx context.Context, credentials string, do func(cloud.Cloud) error) error {
	c, end, err := a.open(ctx, credentials)
	if err != nil {
		return err
	}
	defer func() { _ = end(ctx) }() // the backend has only read
	return do(c)
}

// watch lists volumes until ctx ends, because credentials that are revoked before they are replaced cannot list any more.
func (a *account) watch(ctx context.Context, c cloud.Cloud) {
	for {
		pause := listAgain
		err := ops.Guard(func() error {
			listing, cancel := context.WithTimeout(ctx, listFor)
			defer cancel()
			before := a.volumes()
			ids, err := volumesOf(listing, c, a.cluster)
			if len(ids) > 0 {
				pause = listEvery
				a.know(ids, before)
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			a.log.Info("could not list volumes to recognise the account", zap.Error(err))
		}
		if wait.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// know replaces the volumes that were known before a list with those of the list, and returns all that are known.
func (a *account) know(found, before []cloud.VolumeID) []cloud.VolumeID {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range a.known {
		if !slices.Contains(before, id) && !slices.Contains(found, id) { // created or attached during the list
			found = append(found, id)
		}
	}
	a.known = found[:min(len(found), maxKnown)]
	return slices.Clone(a.known)
}

func (a *account) volumes() []cloud.VolumeID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.known)
}

// refusal returns why the credentials in the file are not used; nil if they are.
func (a *account) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// note returns the text that /readyz adds to its response while no volume is known, else "".
func (a *account) note() string {
	if len(a.volumes()) > 0 {
		return ""
	}
	return unknownAccount
}

// noting is a backend that adds the volumes that it creates and attaches to the account. Lists lack the first ones of a new
// cluster, and those of a cluster whose volumes all have the mark of the vendor's driver.
type noting struct {
	cloud.Cloud

	account *account
}

func (n noting) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	v, err := n.Cloud.CreateVolume(ctx, req)
	if err == nil {
		n.account.remember(v.ID)
	}
	return v, err
}

func (n noting) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	device, err := n.Cloud.Attach(ctx, id, node)
	if err == nil {
		n.account.remember(id)
	}
	return device, err
}

// remember adds a volume to the known ones if there is space. The next list makes space.
func (a *account) remember(id cloud.VolumeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) < maxKnown && !slices.Contains(a.known, id) {
		a.known = append(a.known, id)
	}
}

// volumesOf returns up to maxKnown volumes of a cluster, from the first page of the list that has any.
func volumesOf(ctx context.Context, c cloud.Cloud, cluster string) ([]cloud.VolumeID, error) {
	var ids []cloud.VolumeID
	for page := (cloud.Page{}); ; {
		list, err := c.ListVolumes(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, v := range list.Volumes {
			// A cloud may ignore the case of tags.
			if len(ids) < maxKnown && strings.EqualFold(v.Mark.Cluster, cluster) {
				ids = append(ids, v.ID)
			}
		}
		if page.Token = list.Next; page.Token == "" || len(ids) > 0 {
			return ids, nil
		}
	}
}
