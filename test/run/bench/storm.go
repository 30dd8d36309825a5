package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
)

const (
	// moved is how many volumes have to leave their machines, after a while of a flood of creates.
	moved      = 30
	afterwards = 5 * time.Second
)

// storm measures, in simulated time, how detaches fare when the API budget is spent by a flood of creates:
// pods wait on other machines until the volumes are free.
func (b *cloudBench) storm(t *testing.T) (err error) {
	b.table.section(fmt.Sprintf("%d detaches %s after %d creates, limits %s (in simulated time, in one process)", moved, afterwards, b.target.flood, b.target.bounds()))
	synctest.Test(t, func(t *testing.T) {
		err = b.inStorm(t.Context())
	})
	return err
}

func (b *cloudBench) inStorm(ctx context.Context) (err error) {
	acc, err := setting{machines: moved, takes: 2 * time.Second, made: 2 * time.Second, limits: b.target.limits, inMemory: true}.start(ctx, b.target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, acc.Close()) }()
	client, end, err := serve(ctx, acc, nil, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	on := acc.Machines()
	ids, failed := together(moved, func(i int) (string, error) {
		id, err := createVolume(ctx, client, fmt.Sprint("moves-", i))
		return id, errors.Join(err, publishVolume(ctx, client, id, on[i]))
	})
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	pause(ctx, 2*time.Minute) // the budget is whole again
	acc.ResetStats()
	var creates sync.WaitGroup
	began := time.Now()
	creates.Go(func() {
		_, failed = together(b.target.flood, func(i int) (string, error) { return createVolume(ctx, client, fmt.Sprint("new-", i)) })
	})
	pause(ctx, afterwards)
	asked := time.Now()
	_, stayed := together(moved, func(i int) (string, error) { return "", unpublishVolume(ctx, client, ids[i], on[i]) })
	free := time.Since(asked)
	creates.Wait()
	b.table.storm(acc, asked, free, time.Since(began))
	b.table.zero("calls that failed", len(failed)+len(stayed))
	return nil
}

// storm prints how it went.
func (t *table) storm(acc accounts.Account, asked time.Time, free, took time.Duration) {
	var last time.Time
	for _, c := range changesOf(acc) {
		if c.what == callUnpublish && c.accepted.After(last) {
			last = c.accepted
		}
	}
	before := 0
	for _, c := range changesOf(acc) {
		if c.what == callCreate && c.accepted.After(asked) && c.accepted.Before(last) {
			before++
		}
	}
	t.zero("creates that went before a waiting detach", before)
	t.row("the last detach was sent after", last.Sub(asked).Seconds(), 0, "s")
	t.row("the last unpublish was answered after", free.Seconds(), 0, "s")
	t.row("all creates were answered after", took.Seconds(), 0, "s")
	t.routes(countedOf(acc))
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// together makes all calls at once and returns the errors of those that failed.
func together(n int, do func(i int) (string, error)) ([]string, []error) {
	ids, failures := make([]string, n), make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { ids[i], failures[i] = do(i) })
	}
	group.Wait()
	return ids, slices.DeleteFunc(failures, func(err error) bool { return err == nil })
}
