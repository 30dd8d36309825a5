package account

import (
	"net/http"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
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

// Web is the site of an account whose API is HTTP, with that API in it. A cloud with such an API embeds it.
type Web struct {
	Site[int]
	// Token that requests must bear.
	Token string
	// Server of the API, for the cloud.
	Server *rest.Server

	cloud     string
	check     *contract.Checker
	unchecked string
}

// NewWeb returns what serves nothing yet but Client.
func NewWeb(cfg WebConfig) (*Web, error) {
	w := &Web{Token: cfg.API.Token, cloud: cfg.Cloud}
	var err error
	if w.check, w.unchecked, err = contract.Open(cfg.Description); err != nil {
		return nil, err
	}
	cfg.API.Check = w.checkExchange
	w.Server = rest.New(cfg.API)
	w.Server.SetLimits(cfg.Limits...)
	w.Site = NewSite[int](SiteConfig{
		Cloud: cfg.Cloud, Machines: cfg.Machines, API: w.Server, Faults: w.Server.Faults, Exchanges: w.Server.Exchanges,
		Metadata: cfg.Metadata,
		Control: func(control Control) {
			Show(control, "contract", w.Contract)
			cfg.Control(control)
		},
	})
	return w, nil
}

// Client returns an HTTP client that reaches the API in memory. It adds no token.
func (w *Web) Client() *http.Client { return &http.Client{Transport: w.Server} }

// Close stops serving and waits for the requests that are being answered.
func (w *Web) Close() error {
	err := w.StopListening()
	w.Server.Close()
	w.WaitListening()
	return err
}

// SetLimits replaces the rate limits and forgets what was counted; none means no limit.
func (w *Web) SetLimits(all ...rest.Limit) { w.Server.SetLimits(all...) }

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
		if _, said := sayOnce.LoadOrStore(w.cloud, true); !said {
			t.Logf("%s", w.unchecked)
		}
		return
	}
	totals := w.Contract()
	for _, detail := range totals.Details {
		t.Errorf("against the official description: %s", detail)
	}
	t.Logf("%s", totals)
	if err := w.check.Close(w.cloud + " " + t.Name()); err != nil {
		t.Errorf("report the totals: %v", err)
	}
}
