package linode

import (
	"net/http"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Almost every refusal of this API is a 400, told apart by a text and at times by the field that it is
// about. These are all the texts that are looked for; facts with sources are in docs/backends.
const (
	// textBusy: 400, the Linode is busy with another change.
	textBusy = "linode busy"
	// textLimit and textQuota are in what is said of an account that may not have more.
	textLimit, textQuota = "limit", "quota"
)

// apiErrors gives the failures of requests their kinds.
var apiErrors = remote.Errors{Kind: kindOf}

// kindOf is the table of statuses and kinds. What 400 and 404 are about is known to the caller, who may look
// and answer something else.
func kindOf(a *remote.Answer) fault.Kind {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		switch {
		case a.Says(textBusy):
			return fault.Busy
		case slices.Contains(a.Fields, "size"):
			return fault.OutOfRange
		case len(a.Fields) == 0 && (a.Says(textLimit) || a.Says(textQuota)):
			return fault.Exhausted
		}
		return fault.InvalidArgument
	default:
		return fault.Unavailable
	}
}

// isAbout reports whether the cloud names a part of the request.
func isAbout(err error, field string) bool {
	a := apiErrors.Of(err)
	return a != nil && slices.Contains(a.Fields, field)
}

// statusNotFound is what an API says of what does not exist.
func statusNotFound(err error) bool {
	a := apiErrors.Of(err)
	return a != nil && a.Status == http.StatusNotFound
}
