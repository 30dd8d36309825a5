package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// probe answers an HTTP health check by asking the driver.
type probe struct {
	driver  csi.IdentityClient
	timeout time.Duration
}

func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), p.timeout)
	defer cancel()
	reply, err := p.driver.Probe(ctx, &csi.ProbeRequest{})
	switch {
	case err != nil:
		log.Printf("the driver does not answer: %v", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case reply.GetReady() != nil && !reply.GetReady().GetValue():
		http.Error(w, "the driver says that it is not ready", http.StatusInternalServerError)
	default:
		fmt.Fprintln(w, "ok")
	}
}

// serveHealth serves /healthz at an address until ctx ends.
func serveHealth(ctx context.Context, address string, health http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("/healthz", health)
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
