package account

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// SiteConfig says what a Site serves.
type SiteConfig struct {
	// Cloud is its name.
	Cloud string
	// Machines is what its machines are called in the path of their metadata services: "/droplets/<id>".
	Machines string
	// API is the cloud's API. HTTP2 says that it is gRPC.
	API   http.Handler
	HTTP2 bool
	// Faults and Exchanges are those of the API.
	Faults    *faults.Set
	Exchanges func() []rest.Exchange
	// Metadata adds the metadata services of all machines, each below its path.
	Metadata func(*http.ServeMux)
	// Control adds to the owner's side what Site does not know.
	Control func(Control)
}

// Site is an account as it is seen over the network: its API, the metadata services of its machines, whose
// ids are of type K, and its owner's side, on any number of addresses.
type Site[K any] struct {
	// URL of the API, without a path (nor a version that clients add) and without a slash at its end.
	URL string

	cfg       SiteConfig
	listeners *rest.Listeners
}

// NewSite returns what serves nothing yet.
func NewSite[K any](cfg SiteConfig) Site[K] {
	return Site[K]{URL: "http://" + cfg.Cloud + ".invalid", cfg: cfg, listeners: &rest.Listeners{HTTP2: cfg.HTTP2}}
}

// Listen serves the API, the metadata services and the control endpoint on a loopback address.
func (s *Site[K]) Listen(ctx context.Context, address string) error {
	url, err := s.listeners.Serve(ctx, address, s.Handler())
	if err == nil {
		s.URL = url
	}
	return err
}

// ListenTLS serves the same at another address, over TLS. It returns the URL there and the PEM text of
// the certificate that a client must trust.
func (s *Site[K]) ListenTLS(ctx context.Context, address string, hosts ...string) (url string, authority []byte, err error) {
	return s.listeners.ServeTLS(ctx, address, s.Handler(), hosts...)
}

// ServeOn serves the same to whoever connects to a listener.
func (s *Site[K]) ServeOn(listener net.Listener) { s.listeners.ServeOn(listener, s.Handler()) }

func (s *Site[K]) metadataPath(machine K) string {
	return fmt.Sprintf("/%s/%v", s.cfg.Machines, machine)
}

// Metadata returns the base URL of a machine's metadata service: what --metadata-endpoint takes.
func (s *Site[K]) Metadata(machine K) string { return s.URL + s.metadataPath(machine) }

// ListenMetadata serves a machine's metadata service at an address of its own, where the paths are the
// real ones: a network that leads 169.254.169.254 there is like the machine's.
func (s *Site[K]) ListenMetadata(ctx context.Context, machine K, address string) (url string, err error) {
	mux := http.NewServeMux()
	s.cfg.Metadata(mux)
	return s.listeners.Serve(ctx, address, http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		r.URL.Path = s.metadataPath(machine) + r.URL.Path
		mux.ServeHTTP(answer, r)
	}))
}

// Handler returns everything that the account serves.
func (s *Site[K]) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.cfg.API)
	mux.Handle("/"+s.cfg.Machines+"/", http.NotFoundHandler())
	s.cfg.Metadata(mux)
	control := NewControl(mux)
	Show(control, "exchanges", s.cfg.Exchanges)
	Show(control, "faults", s.cfg.Faults.Armed)
	control.Do("POST faults", func(body []byte, _ *http.Request) (any, error) {
		var fault faults.Fault
		if err := ReadJSON(body, &fault); err != nil {
			return nil, err
		}
		s.Arm(fault)
		return s.cfg.Faults.Armed(), nil
	})
	control.Do("DELETE faults", func([]byte, *http.Request) (any, error) { s.Disarm(); return []faults.Fault{}, nil })
	s.cfg.Control(control)
	return mux
}

// StopListening ends all connections. WaitListening returns when nothing is served any more, which the
// handlers that run must allow.
func (s *Site[K]) StopListening() error { return s.listeners.Close() }

// WaitListening waits for what StopListening ended.
func (s *Site[K]) WaitListening() { s.listeners.Wait() }

// Arm lets something go wrong from now on.
func (s *Site[K]) Arm(fault faults.Fault) *faults.Armed { return s.cfg.Faults.Arm(fault) }

// Disarm removes all faults.
func (s *Site[K]) Disarm() { s.cfg.Faults.Disarm() }

// Exchanges returns the API requests since the last reset, in the order in which they ended.
func (s *Site[K]) Exchanges() []rest.Exchange { return s.cfg.Exchanges() }
