package account

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
)

// WebConfig says how a cloud's Web differs.
type WebConfig struct {
	// Cloud is its name.
	Cloud string
	// Machines is what its machines are called in the path of their metadata services: "/droplets/<id>".
	Machines string
	// Metadata adds the metadata services of all machines, each below its path.
	Metadata func(*http.ServeMux)
	// Control adds to the owner's side what Web does not know.
	Control func(Control)
	// API serves the cloud's API; Web sets its Check.
	API rest.Config
	// Limits of the API at the start.
	Limits []rest.Limit
	// Description says what is known about the official description of the API.
	Description contract.Config
}

// Web is an account as it is seen over HTTP: its API, its machines' metadata services and its owner's side,
// on any number of addresses or in memory. A cloud with such an API embeds it.
type Web struct {
	// URL of the API, without a path (nor a version that clients add) and without a slash at its end.
	URL string
	// Token that requests must bear.
	Token string
	// Server of the API, for the cloud.
	Server *rest.Server

	cfg       WebConfig
	listeners rest.Listeners
	check     *contract.Checker
	unchecked string
}

// NewWeb returns what serves nothing yet but Client.
func NewWeb(cfg WebConfig) (*Web, error) {
	w := &Web{URL: "http://" + cfg.Cloud + ".invalid", Token: cfg.API.Token, cfg: cfg}
	var err error
	if w.check, w.unchecked, err = contract.Open(cfg.Description); err != nil {
		return nil, err
	}
	cfg.API.Check = w.checkExchange
	w.Server = rest.New(cfg.API)
	w.Server.SetLimits(cfg.Limits...)
	return w, nil
}

// Listen serves the API, the metadata services and the control endpoint on a loopback address.
func (w *Web) Listen(ctx context.Context, address string) error {
	url, err := w.listeners.Serve(ctx, address, w.Handler())
	if err == nil {
		w.URL = url
	}
	return err
}

// ListenTLS serves the same at another address, over TLS. It returns the URL there and the PEM text of
// the certificate that a client must trust.
func (w *Web) ListenTLS(ctx context.Context, address string, hosts ...string) (url string, authority []byte, err error) {
	return w.listeners.ServeTLS(ctx, address, w.Handler(), hosts...)
}

// Metadata returns the base URL of a machine's metadata service: what --metadata-endpoint takes.
func (w *Web) Metadata(machine int) string {
	return fmt.Sprintf("%s/%s/%d", w.URL, w.cfg.Machines, machine)
}

// ListenMetadata serves a machine's metadata service at an address of its own, where the paths are the
// real ones: a network that leads 169.254.169.254 there is like the machine's.
func (w *Web) ListenMetadata(ctx context.Context, machine int, address string) (url string, err error) {
	mux := http.NewServeMux()
	w.cfg.Metadata(mux)
	return w.listeners.Serve(ctx, address, http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		r.URL.Path = fmt.Sprintf("/%s/%d%s", w.cfg.Machines, machine, r.URL.Path)
		mux.ServeHTTP(answer, r)
	}))
}

// Handler returns everything that the account serves.
func (w *Web) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", w.Server)
	mux.Handle("/"+w.cfg.Machines+"/", http.NotFoundHandler())
	w.cfg.Metadata(mux)
	control := NewControl(mux)
	Show(control, "exchanges", w.Exchanges)
	Show(control, "contract", w.Contract)
	Show(control, "faults", w.Server.Faults.Armed)
	control.Do("POST faults", func(body []byte, _ *http.Request) (any, error) {
		var fault faults.Fault
		if err := ReadJSON(body, &fault); err != nil {
			return nil, err
		}
		w.Arm(fault)
		return w.Server.Faults.Armed(), nil
	})
	control.Do("DELETE faults", func([]byte, *http.Request) (any, error) { w.Disarm(); return []faults.Fault{}, nil })
	w.cfg.Control(control)
	return mux
}

// Client returns an HTTP client that reaches the API in memory. It adds no token.
func (w *Web) Client() *http.Client { return &http.Client{Transport: w.Server} }

// Close stops serving and waits for the requests that are being answered.
func (w *Web) Close() error {
	err := w.listeners.Close()
	w.Server.Close()
	w.listeners.Wait()
	return err
}

// Arm lets something go wrong from now on.
func (w *Web) Arm(fault faults.Fault) *faults.Armed { return w.Server.Faults.Arm(fault) }

// Disarm removes all faults.
func (w *Web) Disarm() { w.Server.Faults.Disarm() }

// SetLimits replaces the rate limits and forgets what was counted; none means no limit.
func (w *Web) SetLimits(all ...rest.Limit) { w.Server.SetLimits(all...) }

// Exchanges returns the API requests since the last reset, in the order in which they ended.
func (w *Web) Exchanges() []rest.Exchange { return w.Server.Exchanges() }

// Contract returns how the exchanges so far compare with the official description of the API. Without
// OPENAPI_DIR nothing is counted.
func (w *Web) Contract() contract.Totals { return w.check.Totals() }

// Unchecked says why exchanges are not checked; empty when they are.
func (w *Web) Unchecked() string { return w.unchecked }

func (w *Web) checkExchange(r *rest.Request, a rest.Answer) {
	w.check.Check(contract.Exchange{
		Request: r.Request, Route: r.Route, RequestBody: r.Body, Status: a.Status, Header: a.Header, Body: a.Body,
	})
}

// sayOnce has, for each cloud, that its description was missing: worth one line per process, not one per
// account.
var sayOnce sync.Map

// Report fails the test for each exchange that breaks the description.
func (w *Web) Report(t Testing) {
	t.Helper()
	if w.check == nil {
		if _, said := sayOnce.LoadOrStore(w.cfg.Cloud, true); !said {
			t.Logf("%s", w.unchecked)
		}
		return
	}
	totals := w.Contract()
	for _, detail := range totals.Details {
		t.Errorf("against the official description: %s", detail)
	}
	t.Logf("%s", totals)
	if err := w.check.Close(w.cfg.Cloud + " " + t.Name()); err != nil {
		t.Errorf("report the totals: %v", err)
	}
}
