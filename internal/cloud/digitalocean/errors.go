package digitalocean

import (
	"net/http"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The API says with a status what went wrong, and sometimes only the text tells two cases of one status
// apart. These are all the texts that are looked for; facts with sources are in docs/backends.
const (
	// textPending: 422, the droplet (or the volume) is busy with another action.
	textPending = "pending event"
	// textLimit: 403, a quota of the account; a 403 without it is about the token. A create that is refused with it in a region
	// that has volumes has met a quota too, whatever its status.
	textLimit = "limit"
	// textRegion: 422, a create is refused for its region. One that has volumes is full, or closed to the account.
	textRegion = "region"
	// textSlots: 422, the droplet has as many volumes as it can have.
	textSlots = "cannot attach more"
	// textNoResize: 422, the droplet does not let its volumes grow.
	textNoResize = "resizing is temporarily disabled"
	// textInterval: 429, a rule of one route, such as "one request per 10m0s" for snapshots.
	textInterval = "one request per"
)

// kindOf is the table of statuses and kinds. What 404 and 422 are about is known to the caller, who may
// read the state and answer something else.
func kindOf(a *api.Answer) fault.Kind {
	switch a.Status {
	case http.StatusUnauthorized:
		return fault.Denied
	case http.StatusForbidden:
		if a.Says(textLimit) {
			return fault.Exhausted
		}
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		switch {
		case a.Says(textPending):
			return fault.Busy
		case a.Says(textSlots):
			return fault.Exhausted
		}
		return fault.InvalidArgument
	default:
		return fault.Unavailable
	}
}

// longestWait is how long the limit of a minute asks to wait. The limit of an hour asks for more, with nothing remaining.
const longestWait = time.Minute

// throttled tells the API's rate limit from a rule of one route, such as that about snapshots, which has the same status
// and must not make other requests wait. The limit's answer says in its headers when there is budget again.
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
