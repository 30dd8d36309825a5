package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// maxKnown is how many volumes account remembers, and at most reads with new credentials.
	maxKnown = 16
	// listEvery is how often they are listed, and listAgain after how long where no volume was found.
	listEvery, listAgain = time.Hour, 10 * time.Minute
	// listFor bounds that list, which may have many pages.
	listFor = 5 * time.Minute
	// verifyFor bounds each half of a verification of new credentials, which requests wait for. One that failed is repeated
	// after verifyAgain.
	verifyFor, verifyAgain = 20 * time.Second, 30 * time.Second
)

// unknownAccount is what /readyz says until the account has a volume of this cluster.
const unknownAccount = "no volume of this cluster is known, so credentials of another account would not be refused"

// account hands out credentials of one account only: those that the credentials file had at first, and later ones after a volume
// of this cluster was read with them. Until then the earlier ones stay in use. In another account no volume of this cluster
// exists, and a delete or a detach of a volume that does not exist counts as done.
type account struct {
	cluster string
	file    func() (string, error)
	// open makes a second backend with these credentials.
	open func(ctx context.Context, credentials string) (cloud.Cloud, closer, error)
	log  *zap.Logger

	mu    sync.Mutex // also held during a verification, so that requests wait for its outcome
	used  driver.Secret
	known []cloud.VolumeID
	// What the file has, if it is not used: why, and when it is verified again.
	refused driver.Secret
	err     error
	again   time.Time
}

// newAccount watches over the credentials file of a configuration.
func newAccount(cfg config, log *zap.Logger) *account {
	return &account{
		cluster: cfg.clusterID, file: cfg.file.read, log: log,
		open: func(ctx context.Context, credentials string) (cloud.Cloud, closer, error) {
			cfg.token = func() (string, error) { return credentials, nil }
			return cfg.backend.open(ctx, cfg, surroundings{log: zap.NewNop(), registry: prometheus.NewRegistry()})
		},
	}
}

// credentials returns those to be used now.
func (a *account) credentials() (string, error) {
	text, err := a.file()
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch used := a.used.Reveal(); {
	case used == "" || used == text:
		a.used, a.refused, a.err = driver.NewSecret(text), driver.Secret{}, nil
	case text == a.refused.Reveal() && time.Now().Before(a.again):
	default:
		a.replace(text)
	}
	return a.used.Reveal(), nil
}

// replace uses other credentials from now on if they are verified.
func (a *account) replace(text string) {
	err := a.verify(text)
	if err == nil {
		a.used, a.refused, a.err = driver.NewSecret(text), driver.Secret{}, nil
		a.log.Info("the credentials were replaced")
		return
	}
	a.err = fmt.Errorf("the new credentials are not used, and the program continues with the earlier ones: %w", err)
	if a.refused.Reveal() != text {
		a.log.Warn("the new credentials are not used, and the program continues with the earlier ones", zap.Error(err))
	}
	a.refused, a.again = driver.NewSecret(text), time.Now().Add(verifyAgain)
}

// verify returns nil if a volume of this cluster can be read with other credentials, or if none is known.
func (a *account) verify(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), verifyFor)
	defer cancel()
	err := a.with(ctx, a.used.Reveal(), func(c cloud.Cloud) error {
		ids, err := volumesOf(ctx, c, a.cluster)
		if err == nil {
			a.known = ids
		}
		return err
	})
	// Credentials that were revoked list nothing: what was listed before has to do.
	if err != nil && len(a.known) == 0 && fault.Of(err) != fault.Denied {
		return fmt.Errorf("list volumes of this cluster with the earlier ones: %w", err)
	}
	if len(a.known) == 0 {
		return nil
	}
	ctx, cancel = context.WithTimeout(context.Background(), verifyFor)
	defer cancel()
	return a.with(ctx, text, func(c cloud.Cloud) error {
		for _, id := range a.known {
			if _, err := c.GetVolume(ctx, id); fault.Of(err) != fault.NotFound {
				return err // nil, or it is not known whether the volume exists
			}
		}
		return fmt.Errorf("they are of another account, where volume %s and %d others of this cluster do not exist; correct the Secret, or restart the controller if it is right: %w",
			a.known[0], len(a.known)-1, fault.Denied)
	})
}

// with calls do with a backend that has these credentials.
func (a *account) with(ctx context.Context, credentials string, do func(cloud.Cloud) error) error {
	c, end, err := a.open(ctx, credentials)
	if err != nil {
		return err
	}
	defer func() { _ = end(ctx) }() // it has only read
	return do(c)
}

// watch lists volumes until ctx ends: credentials that are revoked before they are replaced cannot list any more.
func (a *account) watch(ctx context.Context, c cloud.Cloud) {
	for {
		wait := listAgain
		listing, cancel := context.WithTimeout(ctx, listFor)
		ids, err := volumesOf(listing, c, a.cluster)
		cancel()
		if len(ids) > 0 {
			wait = listEvery
		}
		if err != nil {
			a.log.Info("could not list volumes to recognise the account", zap.Error(err))
		} else {
			a.mu.Lock()
			a.known = ids
			a.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// refusal is why the credentials in the file are not used; nil: they are.
func (a *account) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// note is what /readyz says beside "ok".
func (a *account) note() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) > 0 {
		return ""
	}
	return unknownAccount
}

// volumesOf returns up to maxKnown volumes of a cluster, of the first page of the list that has some.
func volumesOf(ctx context.Context, c cloud.Cloud, cluster string) ([]cloud.VolumeID, error) {
	var ids []cloud.VolumeID
	for page := (cloud.Page{}); ; {
		list, err := c.ListVolumes(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, v := range list.Volumes {
			if len(ids) < maxKnown && v.Mark == (cloud.Mark{Driver: true, Cluster: cluster}) {
				ids = append(ids, v.ID)
			}
		}
		if page.Token = list.Next; page.Token == "" || len(ids) > 0 {
			return ids, nil
		}
	}
}
