package linode

import (
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
)

// description says what is known about the official description of the API.
var description = contract.Config{
	File: "linode.json",
	Exceptions: []contract.Exception{
		{
			Method: "GET", Contains: `parameter "X-Filter" in header has an error: empty value`,
			Why: "the official SDK sends the header also when there is no filter",
		},
		{
			Method: "GET", Route: prefix + "/linode/types", Contains: `unknown query parameter "page"`,
			Why: "the official SDK asks for pages of every list",
		},
		{
			Method: "GET", Route: prefix + "/regions", Contains: `unknown query parameter "page"`,
			Why: "the official SDK asks for pages of every list",
		},
		{
			Method: "POST", Route: prefix + "/volumes/{volumeId}/detach", Contains: "request body not allowed",
			Why: "the official SDK sends an empty object, and the real API takes it",
		},
		{
			Contains: `Content-Type has unexpected value: "text/html"`,
			Why:      "a gateway in front of the API answers for it with a page",
		},
		{
			Method: "GET", Contains: `property "site_type" is unsupported`,
			Why: "the description calls it site-type; the real API and the official SDK say site_type",
		},
	},
}

func (c *Cloud) openContract() error {
	checker, skipped, err := contract.Open(description)
	c.check, c.unchecked = checker, skipped
	return err
}

func (c *Cloud) checkExchange(r *request, a answer) {
	c.check.Check(contract.Exchange{
		Request: r.Request, Route: r.Route, RequestBody: r.Body, Status: a.Status, Header: a.Header, Body: a.Body,
	})
}

// Contract returns how the exchanges so far compare with the official description of the API. Without
// OPENAPI_DIR nothing is counted.
func (c *Cloud) Contract() contract.Totals { return c.check.Totals() }

// Unchecked says why exchanges are not checked; empty when they are.
func (c *Cloud) Unchecked() string { return c.unchecked }

// sayOnce: that nothing is checked is worth one line per process, not one per account.
var sayOnce sync.Once

// reportContract fails the test for each exchange that breaks the description.
func (c *Cloud) reportContract(t Testing) {
	t.Helper()
	if c.check == nil {
		sayOnce.Do(func() { t.Logf("%s", c.unchecked) })
		return
	}
	totals := c.Contract()
	for _, detail := range totals.Details {
		t.Errorf("against the official description: %s", detail)
	}
	t.Logf("%s", totals)
	if err := c.check.Close(fmt.Sprintf("linode %s", t.Name())); err != nil {
		t.Errorf("report the totals: %v", err)
	}
}
