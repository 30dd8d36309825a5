package api_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
)

// silent is a connection of which a router has forgotten: what is written to it is lost, without an error.
type silent struct {
	net.Conn

	forgotten *atomic.Bool
}

func (s silent) Write(p []byte) (int, error) {
	if s.forgotten.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

// P14: requests share a connection of HTTP/2, and one that times out does not close it: without a ping all of them would fail for as long as
// TCP keeps the connection, about 15 minutes (kubernetes/kubernetes#95981, golang/go#36026).
func TestAConnectionThatIsLostIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var plain http.Protocols
		plain.SetUnencryptedHTTP2(true)
		conns := make(listener)
		server := &http.Server{Protocols: &plain, ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		})}
		go func() { _ = server.Serve(conns) }() // it ends with ErrServerClosed
		defer func() { _ = server.Close() }()
		var forgotten atomic.Bool
		first := true
		transport := api.DefaultTransport()
		defer transport.CloseIdleConnections()
		transport.Protocols = &plain
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			conns <- theirs
			if first {
				ours, first = silent{ours, &forgotten}, false
			}
			return ours, nil
		}
		c := client(transport)
		c.Endpoint = "http://api.example"
		read := func() error {
			var answer struct{}
			return c.Do(t.Context(), api.Request{Method: http.MethodGet, Path: "/volumes"}, &answer)
		}
		must(t, read())
		forgotten.Store(true)
		lost := time.Now()
		for err := read(); err != nil; err = read() {
			if took := time.Since(lost); took > time.Minute {
				t.Fatalf("after %s: %v", took, err)
			}
		}
	})
}
