package driver

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// connectionLimit bounds the open connections of the HTTP endpoint, which take about 20 KiB each. A probe fails only if as
// many arrive between its connection and its request.
const connectionLimit = 512

// connections closes the oldest connection of an http.Server when a new one exceeds the limit. A limit that makes new
// connections wait would let idle clients keep the kubelet's probes out.
type connections struct {
	mu sync.Mutex
	// idle have sent nothing yet; active have sent a byte of a request. The oldest is first.
	idle, active []net.Conn
}

// observe is the server's ConnState hook.
func (c *connections) observe(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(conn)
	switch state {
	case http.StateNew:
		if len(c.idle)+len(c.active) >= connectionLimit {
			oldest := slices.Concat(c.idle, c.active)[0] // an active one only where none is idle
			c.remove(oldest)
			_ = oldest.Close()
		}
		c.idle = append(c.idle, conn)
	case http.StateActive:
		c.active = append(c.active, conn)
	}
}

func (c *connections) remove(conn net.Conn) {
	same := func(other net.Conn) bool { return other == conn }
	c.idle = slices.DeleteFunc(c.idle, same)
	c.active = slices.DeleteFunc(c.active, same)
}
