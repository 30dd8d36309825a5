package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// The HTTP endpoint is open to every pod of the cluster, so the resources of one client are limited: a request is read and
	// answered within httpTimeout each, and each connection serves one request.
	httpTimeout  = 10 * time.Second
	headerBytes  = 4 << 10
	readyTimeout = 5 * time.Second
)

// serveHealth serves /metrics, /healthz and /readyz until the returned function is called. From the end of ctx on, /readyz and
// Probe report that the program is not ready.
func serveHealth(ctx context.Context, cfg Config, id *identity, failed chan<- error) (func(), error) {
	stopWatch := context.AfterFunc(ctx, func() { id.draining.Store(true) })
	if cfg.HTTPEndpoint == "" {
		return func() { stopWatch() }, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", cfg.HTTPEndpoint)
	if err != nil {
		stopWatch()
		return nil, fmt.Errorf("listen on http endpoint %s: %w", cfg.HTTPEndpoint, err)
	}
	server := &http.Server{
		Handler: healthHandler(cfg, id), ConnState: (&connections{}).observe,
		ReadTimeout: httpTimeout, WriteTimeout: httpTimeout, MaxHeaderBytes: headerBytes,
	}
	server.SetKeepAlivesEnabled(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve http endpoint %s: %w", cfg.HTTPEndpoint, err)
		}
	}()
	cfg.Log.Info("serving http", zap.Stringer("address", listener.Addr()))
	return func() {
		stopWatch()
		if err := server.Close(); err != nil {
			cfg.Log.Warn("close http endpoint", zap.Error(err))
		}
		<-done
	}, nil
}

func healthHandler(cfg Config, id *identity) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newMetricsPage(cfg.Registry, cfg.Log))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if id.draining.Load() {
			say(w, http.StatusServiceUnavailable, "stopping")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if cfg.Ready != nil {
			if err := cfg.Ready(ctx); err != nil {
				say(w, http.StatusServiceUnavailable, fault.Text(err))
				return
			}
		}
		ok := "ok"
		if cfg.ReadyNote != nil {
			if note := cfg.ReadyNote(); note != "" {
				ok += ": " + note
			}
		}
		say(w, http.StatusOK, ok)
	})
	return mux
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// That the client has disconnected is not an error.
	_, _ = io.WriteString(w, text+"\n")
}

// metricsPage serves /metrics. It collects one page at a time, and every request that arrived before the start of a collection gets
// its page. So a client that sends requests without pause costs one collection at a time, and does not lock out others.
type metricsPage struct {
	registry prometheus.Gatherer
	log      *zap.Logger
	making   chan struct{} // held to write or read the following fields

	begun  time.Time
	format expfmt.Format
	body   []byte
	err    error
}

func newMetricsPage(registry prometheus.Gatherer, log *zap.Logger) *metricsPage {
	return &metricsPage{registry: registry, log: log, making: make(chan struct{}, 1), format: expfmt.NewFormat(expfmt.TypeTextPlain)}
}

func (p *metricsPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout/2)
	defer cancel()
	select {
	case p.making <- struct{}{}:
	case <-ctx.Done():
		say(w, http.StatusServiceUnavailable, "the metrics are still being collected for an earlier request")
		return
	}
	body, err := p.since(asked)
	if err != nil {
		p.log.Warn("collect metrics", zap.Error(err))
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", string(p.format))
	_, _ = w.Write(body) // that the client has disconnected is not an error
}

// since returns a page whose collection began after a moment, and releases making.
func (p *metricsPage) since(asked time.Time) ([]byte, error) {
	defer func() { <-p.making }()
	if !p.begun.After(asked) {
		p.begun = time.Now()
		p.body, p.err = nil, errors.New("a collector has panicked")
		p.body, p.err = p.collect()
	}
	return p.body, p.err
}

func (p *metricsPage) collect() ([]byte, error) {
	families, err := p.registry.Gather()
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	to := expfmt.NewEncoder(&body, p.format)
	for _, family := range families {
		if err := to.Encode(family); err != nil {
			return nil, err
		}
	}
	return body.Bytes(), nil
}

// connectionLimit is the maximum number of open connections of the HTTP endpoint, which take about 20 KiB each. A probe fails only
// if that many arrive between its connection and its request.
const connectionLimit = 512

// connections closes the oldest connection of an http.Server when a new one exceeds the limit. If new connections had to wait
// instead, idle clients could lock out the kubelet's probes.
type connections struct {
	mu sync.Mutex
	// Connections in idle have sent nothing yet; those in active have sent a byte of a request. The oldest is first.
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
			oldest := slices.Concat(c.idle, c.active)[0] // an active one only if none is idle
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
