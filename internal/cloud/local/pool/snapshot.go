package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NewSnapshots asks for a snapshot of each of some volumes, all of the same instant.
type NewSnapshots struct {
	// Name is unique among the snapshots of the pool; those of a group share it.
	Name string
	// Volumes are the volumes, each once; exactly one unless Group.
	Volumes []ID
	// Group makes a group of them, be it of one.
	Group bool
	Tags  []Pair
}

// CreateSnapshots makes the snapshots, in the order of the volumes, or none. Where the filesystem has
// reflinks it takes an instant, also of a volume in use: frozen for that instant where the node program
// answers, else with what a power loss would have left (Record.Frozen tells). Elsewhere the data is
// copied, of a volume in use only while the node program keeps it frozen.
//
// fault.Conflict when the name is taken, fault.NotFound without one of the volumes, fault.Exhausted
// when there is no room for what the volumes may write once their content is shared, fault.Precondition
// when a volume in use cannot be frozen as needed, or a group cannot be made at one instant. Then
// nothing is left behind. When the context ends a copy goes on, as for Create.
func (p *Pool) CreateSnapshots(ctx context.Context, req NewSnapshots) ([]Record, error) {
	if err := p.checkSnapshots(req); err != nil {
		return nil, err
	}
	var from []item
	for _, id := range req.Volumes {
		from = append(from, ofVolume(id))
	}
	return p.copyFrom(ctx, snapshots, req.Name, from, func(sources []source) (*making, error) {
		if err := p.admitSnapshots(req, sources); err != nil {
			return nil, err
		}
		m := &making{sources: sources, fill: p.shape}
		if req.Group {
			m.group = NewID()
		}
		created := now()
		for _, src := range sources {
			if req.Group && src.used && src.freeze == nil {
				return nil, fmt.Errorf("snapshot %q of a group: %s is in use and not frozen: %w: %w", req.Name, p.name(src.item), fault.Precondition, src.unfrozen)
			}
			m.records = append(m.records, Record{
				ID: NewID(), Name: req.Name, Size: src.record.Size, State: Creating, Created: created, Volume: src.item.id,
				Group: m.group, Frozen: !src.used || src.freeze != nil, BlockSize: src.record.BlockSize, Tags: req.Tags,
			})
		}
		return m, nil
	})
}

func (p *Pool) checkSnapshots(req NewSnapshots) error {
	err := checkName(req.Name)
	seen := map[ID]bool{}
	for _, id := range req.Volumes {
		if seen[id] {
			err = fmt.Errorf("volume %s is named twice", p.Handle(id))
		}
		seen[id] = true
	}
	switch {
	case err != nil:
	case len(req.Volumes) == 0:
		err = errors.New("no volume is named")
	case len(req.Volumes) > 1 && !req.Group:
		err = errors.New("several volumes make a group")
	case req.Group && !p.reflink:
		return fmt.Errorf("snapshot %q of a group: the filesystem of pool %s has no reflinks, so the snapshots cannot be of one instant; use a pool on xfs or btrfs: %w",
			req.Name, p.dir, fault.Precondition)
	}
	if err != nil {
		return fmt.Errorf("snapshot %.200q: %w: %w", req.Name, fault.InvalidArgument, err)
	}
	return nil
}

// admitSnapshots refuses a name that is taken and snapshots for which there is no room. A copy takes
// what is written; a reflink takes nothing, but every place that it shares may be needed once more.
func (p *Pool) admitSnapshots(req NewSnapshots, sources []source) error {
	entries, err := p.settle()
	if err != nil {
		return err
	}
	if err := p.checkFree(entries, snapshots, req.Name); err != nil {
		return err
	}
	var shared []ID
	need := int64(0)
	if p.reflink {
		shared = req.Volumes
	} else if _, need, err = written(sources[0].file, sources[0].record.Size); err != nil {
		return fmt.Errorf("snapshot %q: %w", req.Name, kindOf(err))
	}
	room, err := p.room(entries, shared)
	if err != nil {
		return err
	}
	if room < need {
		return fmt.Errorf("snapshot %q on node %s: the pool %s lacks %d bytes for it, and for what the volumes may still write: %w",
			req.Name, p.node, p.dir, need-room, fault.Exhausted)
	}
	return nil
}

// shape makes an image of shared places durable as a snapshot. Places that are only reserved go back:
// they read as zeros either way, and what shares them could be written only with new space.
func (p *Pool) shape(_ context.Context, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	places, _, err := extents(f, st.Size())
	if err != nil {
		return err
	}
	for _, m := range places {
		if m.flags&fiemapUnwritten == 0 {
			continue
		}
		p.disk.step("punch")
		err := retryEINTR(func() error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, m.start, m.length)
		})
		if err != nil {
			return fmt.Errorf("give back what is not written of %s: %w", f.Name(), err)
		}
	}
	p.disk.step("sync image")
	return f.Sync()
}

// commit makes all snapshots of a group ready at one moment: when this file is there they are, whoever
// writes their records. It is durable after all images and before any record.
func (p *Pool) commit(group ID) error {
	data, err := Record{ID: group}.encode()
	if err != nil {
		return err
	}
	return p.disk.replace(p.file(ofSnapshot(group), commitExt), data)
}

func (p *Pool) committed(group ID) bool {
	_, err := os.Lstat(p.file(ofSnapshot(group), commitExt))
	return err == nil
}

// finishCommits removes the commits of groups whose records all say "ready" by themselves.
func (p *Pool) finishCommits(commits []ID, entries []Entry) {
	for _, group := range commits {
		waiting := slices.ContainsFunc(entries, func(e Entry) bool {
			return e.Record.Group == group && !p.saysReady(e.item())
		})
		if !waiting {
			// If it stays, the next one removes it.
			_ = p.disk.remove(p.file(ofSnapshot(group), commitExt))
		}
	}
}

// saysReady reports whether a record on the disk is final. One that cannot be read is not made better
// by waiting for it.
func (p *Pool) saysReady(it item) bool {
	data, err := readFile(p.file(it, recordExt))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	r, err := decodeRecord(it, data)
	return err != nil || r.State == Ready
}
