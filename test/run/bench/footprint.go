package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const mib = 1 << 20

// The bars of the two programs, in MiB.
var bars = map[string]struct{ binary, idle float64 }{
	"controller": {binary: 26, idle: 30},
	"node":       {binary: 16, idle: 20},
}

func sizes(t *table, bin string) error {
	for _, name := range []string{"controller", "node"} {
		info, err := os.Stat(filepath.Join(bin, "cloudblock-"+name))
		if err != nil {
			return err
		}
		t.row(name+" program, stripped", float64(info.Size())/mib, bars[name].binary, "MiB")
	}
	return nil
}

func memory(t *table, pair *programs.Pair) error {
	for name, program := range map[string]*programs.Program{"controller": pair.Controller, "node": pair.Node} {
		rss, err := residentMiB(program.PID())
		if err != nil {
			return err
		}
		t.row(name+" program, resident when idle", rss, bars[name].idle, "MiB")
	}
	return nil
}

// residentMiB reads VmRSS (proc_pid_status(5)).
func residentMiB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}

// idle measures what the programs occupy: on the disk, and in memory when there is nothing to do.
func (b *cloudBench) idle(ctx context.Context) (err error) {
	if err := sizes(b.table, b.bin); err != nil {
		return err
	}
	acc, pair, err := b.start(ctx, filepath.Join(b.dir, "idle"), setting{machines: machines}, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, acc.Close()) }()
	defer pair.Stop()
	rss, err := mostResident(ctx, pair.Controller, time.Second)
	if err != nil {
		return err
	}
	b.table.row("controller program, resident when idle", rss, bars["controller"].idle, "MiB")
	return nil
}

const (
	held     = 1000
	holdBar  = 80 // MiB
	holdTime = 8 * time.Second
	// forever is longer than the bench takes.
	forever = time.Hour
)

// A crowd is calls that wait in the program, each for another volume.
type crowd struct {
	what string
	setting
	// limits is the flag with the limits of the API.
	limits string
	// prepared: the volumes are there already.
	prepared bool
	call     func(ctx context.Context, client csi.ControllerClient, number int, id, machine string) error
}

// crowds wait for their machine's turn or the end of an operation, and for the API budget or an answer.
var crowds = []crowd{
	{"publishes on 100 machines", setting{machines: 100, takes: forever}, unlimited, true,
		func(ctx context.Context, client csi.ControllerClient, _ int, id, machine string) error {
			return publishVolume(ctx, client, id, machine)
		}},
	{"creates", setting{machines: 1, made: forever, answers: forever}, "", false,
		func(ctx context.Context, client csi.ControllerClient, number int, _, _ string) error {
			_, err := createVolume(ctx, client, fmt.Sprint("waits-", number))
			return err
		}},
}

// holding measures what the program occupies while a thousand calls wait in it.
func (b *cloudBench) holding(ctx context.Context) error {
	b.table.section(fmt.Sprintf("memory while %d calls wait", held))
	for i, c := range crowds {
		most, err := b.hold(ctx, filepath.Join(b.dir, fmt.Sprint("crowd-", i)), c)
		if err != nil {
			return err
		}
		b.table.row(fmt.Sprintf("controller program, resident with %d %s", held, c.what), most, holdBar, "MiB")
	}
	return nil
}

func (b *cloudBench) hold(ctx context.Context, dir string, c crowd) (most float64, err error) {
	acc, pair, err := b.start(ctx, dir, c.setting, c.limits)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, acc.Close()) }()
	defer pair.Stop()
	client, on := csi.NewControllerClient(pair.Controller.Conn), acc.Machines()
	ids := make([]string, held)
	for i := range ids {
		if !c.prepared {
			break
		}
		// Not by the API, whose limits would make that take minutes.
		if ids[i], err = acc.AddVolume(accounts.Volume{Name: fmt.Sprint("held-", i)}); err != nil {
			return 0, err
		}
	}
	waiting, end := context.WithCancel(ctx)
	defer end()
	answered := make(chan error, held)
	var group sync.WaitGroup
	for i := range held {
		group.Go(func() { answered <- c.call(waiting, client, i, ids[i], on[i%len(on)]) })
	}
	most, err = mostResident(ctx, pair.Controller, holdTime)
	select {
	case answer := <-answered:
		err = errors.Join(err, fmt.Errorf("one of the %d %s did not wait: %w", held, c.what, answer))
	default:
	}
	pair.Controller.Kill() // it would wait for its calls
	end()
	group.Wait()
	return most, err
}

// mostResident watches a program for a while.
func mostResident(ctx context.Context, p *programs.Program, d time.Duration) (most float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		rss, err := residentMiB(p.PID())
		if err != nil {
			return 0, err
		}
		most = max(most, rss)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return most, nil
		}
	}
}
