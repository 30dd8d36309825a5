package lvm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

const (
	// zeroStep is how many bytes are zeroed between two checks for the end of the program.
	zeroStep int64 = 256 << 20
	// notePause is the time between two records of the progress in LVM's metadata. After a kill the zeroing goes on from the last.
	notePause = 30 * time.Second
	// progressPause is the time between two reports of progress.
	progressPause = 5 * time.Second
)

func bytesOf(n int64) string { return strconv.FormatInt(n, 10) }

// zeroJob zeroes a logical volume. It continues after the call that started it, until the process ends. It has the device open
// exclusively, which lvs shows: a volume that has creatingTag and is not open was left by a process that has ended.
type zeroJob struct {
	volume logicalVolume
	done   chan struct{}
	at     atomic.Int64
	err    error // set before done is closed
}

// zero starts a job. When everything reads as zeros, the job removes the device and calls then under the pool's lock. The caller holds
// the lock.
func (p *Pool) zero(v logicalVolume, then func(logicalVolume) error) (*zeroJob, error) {
	if err := p.activate(v); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Uncertain, err)
	}
	disk, err := p.lvm.Open(p.device(v), p.kernelUUID(v))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Uncertain, err)
	}
	j := &zeroJob{volume: v, done: make(chan struct{})}
	j.at.Store(v.zeroed())
	p.jobs.Go(func() {
		defer close(j.done)
		err := p.writeZeros(j, disk)
		// Close must not cancel this: it waits for it.
		_, ended := locked(context.WithoutCancel(p.zeroing), p, func() (struct{}, error) {
			// Closed under the lock, so that no other call mistakes a finished job for one whose process has died.
			var noted error
			if err != nil {
				noted = p.note(j)
			}
			ended := errors.Join(noted, disk.Close(), p.change("lvchange", "-y", "-an", p.target(v.Name)))
			if err != nil || ended != nil {
				return struct{}{}, ended
			}
			return struct{}{}, then(j.volume)
		})
		if err = errors.Join(err, ended); err != nil {
			j.err = fmt.Errorf("write zeros to %s: %w: %w", p.target(v.Name), fault.Uncertain, err)
		}
		p.report(j, true)
	})
	return j, nil
}

// writeZeros continues where an earlier job has stopped.
func (p *Pool) writeZeros(j *zeroJob, disk pool.ZeroedDevice) error {
	reported, noted := time.Now(), time.Now()
	p.report(j, false)
	for at := j.at.Load(); at < j.volume.Size; at = j.at.Load() {
		if err := p.zeroing.Err(); err != nil {
			return err
		}
		n := min(zeroStep, j.volume.Size-at)
		if err := disk.Zero(at, n); err != nil {
			return err
		}
		j.at.Store(at + n)
		if time.Since(reported) > progressPause {
			p.report(j, false)
			reported = time.Now()
		}
		if time.Since(noted) > notePause {
			if _, err := locked(p.zeroing, p, func() (struct{}, error) { return struct{}{}, p.note(j) }); err != nil {
				return err
			}
			noted = time.Now()
		}
	}
	return nil
}

// note records the progress of a job in LVM's metadata.
func (p *Pool) note(j *zeroJob) error {
	at := zeroedTag + bytesOf(j.at.Load())
	if j.volume.has(at) {
		return nil
	}
	args := []string{"--addtag", at}
	var tags []string
	for _, tag := range j.volume.tags() {
		if strings.HasPrefix(tag, zeroedTag) {
			args = append(args, "--deltag", tag)
			continue
		}
		tags = append(tags, tag)
	}
	err := p.change("lvchange", append(args, p.target(j.volume.Name))...)
	if err == nil {
		j.volume.Tags = strings.Join(append(tags, at), ",")
	}
	return err
}

func (p *Pool) report(j *zeroJob, ended bool) {
	if p.progress != nil {
		p.progress(pool.Progress{Target: p.target(j.volume.Name), Done: j.at.Load(), Total: j.volume.Size, Ended: ended, Err: j.err})
	}
}

// wait waits for a job. The job continues when the context ends.
func (p *Pool) wait(ctx context.Context, j *zeroJob) error {
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return fmt.Errorf("zeros are still being written to %s, %d of %d bytes are: %w: %w",
			p.target(j.volume.Name), j.at.Load(), j.volume.Size, fault.Uncertain, ctx.Err())
	}
}

// Grow makes a volume at least this large, in whole extents, and returns its size. It never shrinks. The new space is a separate
// logical volume until it is zeroed, so the volume's device never shows the old bytes of its extents. fault.OutOfRange if the space
// does not suffice; then nothing has changed. When the context ends it returns fault.Uncertain, the zeroing goes on, and a repeat
// waits for it.
func (p *Pool) Grow(ctx context.Context, id pool.ID, size int64) (int64, error) {
	type growth struct {
		has int64
		job *zeroJob // nil: it is large enough
	}
	for {
		g, err := within(ctx, p, func(s groupState) (growth, error) {
			e, err := p.whole(s, id)
			if err != nil || size <= e.Size {
				return growth{has: e.Size}, err
			}
			j, err := p.grow(s, e, size)
			return growth{e.Size, j}, err
		})
		switch {
		case errors.Is(err, fault.Busy):
			if ctxErr := wait.Sleep(ctx, pool.ZeroPoll); ctxErr != nil {
				return 0, fmt.Errorf("grow volume %s: %w: %w", p.Handle(id), fault.Uncertain, err)
			}
			continue
		case err != nil:
			return 0, fmt.Errorf("grow volume %s to %d bytes: %w", p.Handle(id), size, err)
		case g.job == nil:
			return g.has, nil
		}
		if err := p.wait(ctx, g.job); err != nil {
			return 0, fmt.Errorf("grow volume %s: %w", p.Handle(id), err)
		}
	}
}

// grow starts the zeroing of the new space of a volume, or continues that of an interrupted growth.
func (p *Pool) grow(s groupState, e pool.Entry, size int64) (*zeroJob, error) {
	if err := s.find(e.File).checkAlone(); err != nil {
		return nil, err
	}
	name := growthName(e.ID)
	g := s.find(name)
	if g == nil {
		want, err := pool.RoundUp(size)
		switch want = s.roundUp(want); {
		case err != nil:
		case want > pool.LargestVolume:
			err = fmt.Errorf("in whole extents of %d it has %d bytes, the maximum is %d: %w", s.Extent, want, pool.LargestVolume, fault.OutOfRange)
		default:
			err = p.checkSpace(s, want-e.Size, fault.PoolFull.Explain(fault.OutOfRange))
		}
		if err == nil {
			err = p.makeLV(name, want-e.Size)
		}
		if err != nil {
			return nil, err
		}
		made, err := p.made(name)
		if err != nil {
			return nil, err
		}
		g = &made
	}
	if g.beingZeroed() {
		return nil, fmt.Errorf("zeros are being written to %s, %d of %d bytes are: %w", p.target(name), g.zeroed(), g.Size, fault.Busy)
	}
	return p.zero(*g, func(g logicalVolume) error { return p.extend(g, e.File) })
}

// extend moves the zeroed extents of a growth to its volume. After a kill in between they are free, and the next growth zeroes
// extents again.
func (p *Pool) extend(g logicalVolume, volume string) error {
	type segment struct {
		Extents string `json:"seg_pe_ranges"` // such as /dev/vda:100-199, several with spaces between them
	}
	segments, err := report[segment](p, "seg", "lvs", "--segments", "-o", "seg_pe_ranges", p.target(g.Name))
	if err != nil {
		return err
	}
	args := []string{"-y", "--alloc", "normal", "-L", "+" + bytesArg(g.Size), p.target(volume)}
	none := len(args)
	for _, segment := range segments {
		args = append(args, strings.Fields(segment.Extents)...)
	}
	if len(args) == none {
		return fmt.Errorf("lvm names no extents of %s: %w", p.target(g.Name), fault.Unavailable)
	}
	if err := p.remove(g.Name); err != nil {
		return err
	}
	return p.change("lvextend", args...)
}
