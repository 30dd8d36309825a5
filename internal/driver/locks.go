package driver

import (
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Locks serialize the changes of each volume, snapshot, name and path. No call waits for a lock: if one is held, the error is
// fault.Busy, because the caller repeats the call and a waiting handler would only use up its deadline. Calls that only read
// acquire no lock. The zero value is ready to use.
//
// The controller acquires its locks exclusively. On the node, stage, unstage and expand acquire the lock of the volume exclusively;
// publish and unpublish share it and acquire that of the target path exclusively.
//
// Correctness does not depend on the controller's locks: another controller has its own.
type Locks struct {
	mu   sync.Mutex
	held map[string]int // alone, or the number of calls that share the lock; no entry: free
}

const alone = -1

// Lock is a lock to acquire, exclusively or shared.
type Lock struct {
	name   string
	shared bool
}

// OfVolume locks a volume exclusively.
func OfVolume(id string) Lock { return Lock{name: "volume " + id} }

// ShareVolume locks a volume together with other calls that share it.
func ShareVolume(id string) Lock { return Lock{name: "volume " + id, shared: true} }

// OfSnapshot locks a snapshot.
func OfSnapshot(id string) Lock { return Lock{name: "snapshot " + id} }

// OfPath locks a path of the node.
func OfPath(path string) Lock { return Lock{name: "path " + path} }

// OfVolumeName locks the name of a volume that is being created and has no id yet.
func OfVolumeName(name string) Lock { return Lock{name: "volume-name " + name} }

// OfSnapshotName locks the name of a snapshot that is being created and has no id yet.
func OfSnapshotName(name string) Lock { return Lock{name: "snapshot-name " + name} }

// Acquire acquires all of the locks at once, or none. The returned function releases them. Another goroutine may call it, so that
// work of the node that continues after its call keeps its volume locked.
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
