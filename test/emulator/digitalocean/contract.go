package digitalocean

import (
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
)

// description says what is known about the official description of the API.
var description = contract.Config{
	File: "digitalocean.json",
	Exceptions: []contract.Exception{
		{
			Method: "GET", Route: "/v2/snapshots", Contains: `unknown query parameter "region"`,
			Why: "the official SDK sends it (ListSnapshotsOptions.Region)",
		},
	},
	Borrowed: map[string]string{
		"GET /v2/actions":                    "GET /v2/volumes/{volume_id}/actions",
		"DELETE /v2/tags/{tag_id}/resources": "POST /v2/tags/{tag_id}/resources",
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
	if err := c.check.Close(fmt.Sprintf("digitalocean %s", t.Name())); err != nil {
		t.Errorf("report the totals: %v", err)
	}
}
