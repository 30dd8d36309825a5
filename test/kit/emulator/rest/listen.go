package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Listeners are the addresses where an account is served. The zero value is none.
type Listeners struct {
	// HTTP2 is for an API that is gRPC: HTTP/2 as well, with and without TLS.
	HTTP2 bool

	mu      sync.Mutex
	servers []*http.Server
	served  sync.WaitGroup
}

// Serve serves a handler at an address and returns the URL there.
func (l *Listeners) Serve(ctx context.Context, address string, handler http.Handler) (url string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	l.ServeOn(listener, handler)
	return "http://" + listener.Addr().String(), nil
}

// ServeTLS serves a handler over TLS, with a certificate for some hosts. It also returns the PEM text of
// that certificate, which is what a client must trust.
func (l *Listeners) ServeTLS(ctx context.Context, address string, handler http.Handler, hosts ...string) (url string, authority []byte, err error) {
	certificate, authority, err := Certificate(hosts...)
	if err != nil {
		return "", nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if l.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	l.ServeOn(tls.NewListener(listener, config), handler)
	return "https://" + listener.Addr().String(), authority, nil
}

// ServeOn serves a handler to whoever connects to a listener.
func (l *Listeners) ServeOn(listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	if l.HTTP2 {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetHTTP2(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	l.mu.Lock()
	l.servers = append(l.servers, server)
	l.mu.Unlock()
	l.served.Go(func() { _ = server.Serve(listener) }) // it ends with ErrServerClosed
}

// Close stops listening and cuts the connections.
func (l *Listeners) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var failures []error
	for _, server := range l.servers {
		failures = append(failures, server.Close())
	}
	return errors.Join(failures...)
}

// Wait returns when nothing listens any more: after Close, and after the server whose handlers run has
// been closed.
func (l *Listeners) Wait() { l.served.Wait() }
