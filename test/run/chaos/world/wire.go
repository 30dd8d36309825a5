package world

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// ConnBuffer holds any request or answer of a run.
const ConnBuffer = 1 << 18

// wire is the way of one controller program to the account.
type wire struct {
	w       *World
	life    context.Context
	program Program
}

func (l *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	at := r.Method + " " + r.URL.Path
	if l.life.Err() == nil && l.w.in.Crashes(l.program.Number, trouble.BeforeEffect) {
		l.w.log("controller %d: killed before %s", l.program.Number, at)
		l.program.Kill()
	}
	if l.life.Err() != nil {
		return nil, errCut
	}
	ctx, cancel := joined(r.Context(), l.life)
	defer cancel() // the body is in memory
	answer, err := l.w.account.Memory().Web.RoundTrip(r.WithContext(ctx))
	if r.Method != http.MethodGet {
		l.w.changed()
	}
	if l.life.Err() == nil && l.w.in.Crashes(l.program.Number, trouble.AfterEffect) {
		l.w.log("controller %d: killed after %s", l.program.Number, at)
		l.program.Kill()
	}
	if l.life.Err() != nil {
		return nil, errCut
	}
	return answer, err
}

var errCut = errors.New("connection cut")

// joined is a context that ends with either of two.
func joined(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(life, cancel)
	return ctx, func() { stop(); cancel() }
}

// PlainProtocols are those of an account's API without TLS: HTTP and gRPC.
func PlainProtocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

// serveInMemory serves the account to one controller program, whose connections end with its life.
func (w *World) serveInMemory(life context.Context, p Program) func(context.Context, string) (net.Conn, error) {
	handler := &wireHandler{in: w.in, log: w.log, program: p, cloud: w.account.Handler(), life: life, changed: w.changed}
	server := &http.Server{Handler: handler, Protocols: PlainProtocols(), ReadHeaderTimeout: time.Hour}
	listener := bufconn.Listen(ConnBuffer)
	var once sync.Once
	return func(ctx context.Context, _ string) (net.Conn, error) {
		once.Do(func() {
			w.serving.Go(func() { _ = server.Serve(listener) }) // it ends with ErrServerClosed
			context.AfterFunc(life, func() { _ = server.Close() })
		})
		return listener.DialContext(ctx)
	}
}

// wireHandler is the way of a program that has connections to the cloud.
type wireHandler struct {
	in      *trouble.Injector
	log     func(format string, args ...any)
	program Program
	cloud   http.Handler
	// life is the program's, where it is no process; nil: its end cuts the connections.
	life context.Context
	// changed, where it is not nil, is called after every request.
	changed func()
}

// ServeHTTP passes a request on, unless the program is dead, or is to die before or after it.
func (h *wireHandler) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	at := r.Method + " " + r.URL.Path
	if h.life != nil && h.life.Err() != nil {
		return
	}
	if h.changed != nil {
		defer h.changed()
	}
	if h.in.Crashes(h.program.Number, trouble.BeforeEffect) {
		h.log("controller %d: killed before %s", h.program.Number, at)
		h.program.Kill()
		return
	}
	if h.in.Crashes(h.program.Number, trouble.AfterEffect) {
		h.cloud.ServeHTTP(nowhereWriter{http.Header{}}, r)
		h.log("controller %d: killed after %s", h.program.Number, at)
		h.program.Kill()
		return
	}
	h.cloud.ServeHTTP(to, r)
}

// nowhereWriter takes an answer that nobody gets.
type nowhereWriter struct{ header http.Header }

func (w nowhereWriter) Header() http.Header         { return w.header }
func (w nowhereWriter) WriteHeader(int)             {}
func (w nowhereWriter) Flush()                      {}
func (w nowhereWriter) Write(b []byte) (int, error) { return io.Discard.Write(b) }
