package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// The HTTP endpoint is open to every pod of the cluster, so what one client can occupy is bounded: a request is read
	// and answered within httpTimeout each, and each connection carries one request.
	httpTimeout  = 10 * time.Second
	headerBytes  = 4 << 10
	readyTimeout = 5 * time.Second
)

// serveHealth serves /metrics, /healthz and /readyz until the function it returns is called. From
// the moment ctx ends /readyz and Probe answer that the program is not ready.
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
	// A client that went away is no failure of ours.
	_, _ = io.WriteString(w, text+"\n")
}
