package pool

import (
	"context"
	"fmt"
)

// The floor is this share of the filesystem, within these bounds: the filesystem needs some room for
// what it writes about the volumes, and the node for what else it keeps there.
const (
	floorShare       = 50
	leastFloor int64 = 64 << 20
	mostFloor  int64 = 4 << 30
)

// Free returns how many more bytes of volumes have room: what the filesystem has free, less what
// existing volumes were promised and do not occupy at the moment, less the floor. Never negative.
func (p *Pool) Free(ctx context.Context) (int64, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	entries, err := p.settle()
	if err != nil {
		return 0, err
	}
	return p.free(entries)
}

// free is Free under the lock. A volume occupies less than its size when blocks were given back
// (a discard, a zeroing of the filesystem inside) or when its growth was interrupted.
func (p *Pool) free(entries []Entry) (int64, error) {
	s, err := p.disk.statfs(p.dir)
	if err != nil {
		return 0, fmt.Errorf("read free space of pool %s: %w", p.dir, kindOf(err))
	}
	free := s.free - floor(s.total)
	for _, e := range entries {
		free -= e.promise()
	}
	return max(0, free), nil
}

func floor(total int64) int64 { return min(max(total/floorShare, leastFloor), mostFloor) }
