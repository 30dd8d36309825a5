package digitalocean

import (
	"net/http"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Some statuses of the API have several meanings that only the text distinguishes. The driver matches these texts; the facts with their
// sources are in docs/contributing/clouds.md.
const (
	// textPending: 422, the droplet (or the volume) is busy with another action.
	textPending = "pending event"
	// textLimit: 403, a quota of the account; a 403 without it is about the token. A create that is refused with it in a region that has
	// volumes exceeds a quota too, with any status.
	textLimit = "limit"
	// textRegion: 422, a create is refused because of its region. A region that has volumes is full or closed to the account.
	textRegion = "region"
	// textSlots: 422, the droplet is at its attach limit.
	textSlots = "cannot attach more"
	// textNoResize: 422, the droplet does not let its volumes grow.
	textNoResize = "resizing is temporarily disabled"
	// textInterval: 429, a rule of one route, such as "one request per 10m0s" for snapshots.
	textInterval = "one request per"
)

// kindOf maps answers to kinds.
func kindOf(a *api.Answer) fault.Kind {
	switch kind := a.Kind(); {
	case kind == fault.InvalidArgument && a.Says(textPending):
		return fault.Busy
	case kind == fault.InvalidArgument && a.Says(textSlots), a.Status == http.StatusForbidden && a.Says(textLimit):
		return fault.Exhausted
	default:
		return kind
	}
}

// longestWait is the maximum wait for the limit of a minute. For the limit of an hour the cloud asks to wait longer, with nothing remaining.
const longestWait = time.Minute

// throttled reports whether a 429 is about the API's rate limit, as opposed to a rule of one route, such as that for snapshots, for which
// other requests must not wait. For the rate limit, the headers tell when there is budget again.
func throttled(r api.Request, resp *http.Response, a *api.Answer) bool {
	rate := budget.StandardRate(resp)
	switch {
	case a.Says(textInterval), rate.Remaining > 0 && rate.RetryAfter > longestWait:
		return false
	case rate.RetryAfter > 0, resp.Header.Get("Ratelimit-Remaining") == "0":
		return true
	}
	return r.Method != http.MethodPost || !strings.HasSuffix(r.Path, "/snapshots")
}
