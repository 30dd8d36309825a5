package node

import (
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// locks are the node's locks, one per volume and one per path. No call waits for a lock: a key that is held is
// fault.Busy, because the kubelet repeats the call and a handler that waits would only spend its deadline.
//
// Stage, unstage and expand hold their volume alone. Publish and unpublish share it with one
// another and hold their target path alone. Calls that only read hold nothing.
type locks struct {
	mu   sync.Mutex
	held map[string]int // alone, or how many share it; a free key has no entry
}

const alone = -1

// acquire takes several keys at once, or none of them. The returned function frees them; it may be
// called from another goroutine, which is how detached work keeps its volume.
func (l *locks) acquire(what string, keys ...lockKey) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if n := l.held[k.name]; n == alone || (n > 0 && !k.shared) {
			return nil, fmt.Errorf("%s: %s is being worked on by another call, try again when it has ended: %w",
				what, k.name, fault.Busy)
		}
	}
	if l.held == nil {
		l.held = make(map[string]int)
	}
	for _, k := range keys {
		if k.shared {
			l.held[k.name]++
		} else {
			l.held[k.name] = alone
		}
	}
	return sync.OnceFunc(func() { l.free(keys) }), nil
}

func (l *locks) free(keys []lockKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if n := l.held[k.name]; n > 1 {
			l.held[k.name] = n - 1
		} else {
			delete(l.held, k.name)
		}
	}
}

// lockKey is one thing to hold, alone or shared.
type lockKey struct {
	name   string
	shared bool
}

func wholeVolume(id string) lockKey  { return lockKey{name: "volume " + id} }
func sharedVolume(id string) lockKey { return lockKey{name: "volume " + id, shared: true} }
func wholePath(path string) lockKey  { return lockKey{name: "path " + path} }
