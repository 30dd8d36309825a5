package rest

import "sync"

// Gate counts the requests that are being answered, so that a server can wait for them when it closes. The
// zero value is open.
type Gate struct {
	mu     sync.Mutex // guards closed, so that nothing enters while Close waits
	closed bool
	active sync.WaitGroup
}

// Enter reports whether a request may be answered; if so, Leave must follow.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.active.Add(1)
	return true
}

// Leave says that a request was answered.
func (g *Gate) Leave() { g.active.Done() }

// Close lets nothing enter any more and waits for what is inside.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.active.Wait()
}
