package driver

import (
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Locks let one change at a time through for each volume, snapshot, name and path. No call waits for a lock: one that
// is held is fault.Busy, because the caller repeats the call and a handler that waits would only spend its deadline.
// Calls that only read hold nothing. The zero value works.
//
// The controller holds what it changes alone. On the node, stage, unstage and expand hold their volume alone; publish
// and unpublish share it with one another and hold their target path alone.
//
// The locks of the controller carry no correctness: another controller has its own.
type Locks struct {
	mu   sync.Mutex
	held map[string]int // alone, or how many share it; what is free has no entry
}

const alone = -1

// Lock is one thing to hold, alone or shared.
type Lock struct {
	name   string
	shared bool
}

// OfVolume holds a volume alone.
func OfVolume(id string) Lock { return Lock{name: "volume " + id} }

// ShareVolume holds a volume together with others that share it.
func ShareVolume(id string) Lock { return Lock{name: "volume " + id, shared: true} }

// OfSnapshot holds a snapshot.
func OfSnapshot(id string) Lock { return Lock{name: "snapshot " + id} }

// OfPath holds a path of the node.
func OfPath(path string) Lock { return Lock{name: "path " + path} }

// OfVolumeName holds the name of a volume that is being made and has no id yet.
func OfVolumeName(name string) Lock { return Lock{name: "volume-name " + name} }

// OfSnapshotName holds the name of a snapshot that is being made and has no id yet.
func OfSnapshotName(name string) Lock { return Lock{name: "snapshot-name " + name} }

// Acquire takes all of the locks at once, or none of them. The returned function frees them; it may be called from
// another goroutine, which is how work of the node that outlives its call keeps its volume.
func (l *Locks) Acquire(locks ...Lock) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range locks {
		if n := l.held[k.name]; n == alone || (n > 0 && !k.shared) {
			return nil, fmt.Errorf("%s is being worked on by another call, try again when it has ended: %w", k.name, fault.Busy)
		}
	}
	if l.held == nil {
		l.held = make(map[string]int)
	}
	for _, k := range locks {
		if k.shared {
			l.held[k.name]++
		} else {
			l.held[k.name] = alone
		}
	}
	return sync.OnceFunc(func() { l.free(locks) }), nil
}

func (l *Locks) free(locks []Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range locks {
		if n := l.held[k.name]; n > 1 {
			l.held[k.name] = n - 1
		} else {
			delete(l.held, k.name)
		}
	}
}
