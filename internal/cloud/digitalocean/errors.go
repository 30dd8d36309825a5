package digitalocean

import (
	"errors"
	"net/http"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The API says with a status what went wrong, and often only the text tells two cases of one status
// apart. These are all the texts that are looked for; facts with sources are in docs/backends.
const (
	// textPending: 422, the droplet (or the volume) is busy with another action.
	textPending = "pending event"
	// textLimit: 403, a quota of the account; a 403 without it is about the token.
	textLimit = "limit"
	// textSlots: 422, the droplet has as many volumes as it can have.
	textSlots = "cannot attach more"
	// textTooSoon: 429, a volume may be snapshotted once in 10 minutes. Not the API's rate limit.
	textTooSoon = "one request per"
)

// apiErrors gives the failures of requests their kinds.
var apiErrors = remote.Errors{Kind: kindOf, Parse: parseAnswer}

func parseAnswer(err error) *remote.Answer {
	var r *godo.ErrorResponse
	if !errors.As(err, &r) || r.Response == nil {
		return nil
	}
	return remote.NewAnswer(r.Response.StatusCode, r.Message, r.RequestID)
}

// answerOf, readError, writeError and refused are those of this API.
var (
	answerOf   = apiErrors.Of
	readError  = apiErrors.Read
	writeError = apiErrors.Write
	refused    = apiErrors.Refused
)

// kindOf is the table of statuses and kinds. What 404 and 422 are about is known to the caller, who may
// look and answer something else.
func kindOf(a *remote.Answer) fault.Kind {
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
	case http.StatusTooManyRequests:
		if a.Says(textTooSoon) {
			return fault.Precondition
		}
		return fault.Unavailable
	default:
		return fault.Unavailable
	}
}

// isBudget tells the API's rate limit from the rule about snapshots, which has the same status.
func isBudget(_ *http.Response, body []byte) bool {
	return !strings.Contains(strings.ToLower(string(body)), textTooSoon)
}
