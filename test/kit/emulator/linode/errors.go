package linode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// refusal is one of the API's refusals.
type refusal struct {
	status int
	field  string
	reason string
}

func bad(field, reason string) refusal {
	return refusal{status: http.StatusBadRequest, field: field, reason: reason}
}

// The refusals of the real API, in its own words. Where "assumed" is said, no public source quotes the
// words, so a client must not depend on them.
var (
	notFound      = refusal{http.StatusNotFound, "", "Not found"}
	linodeBusy    = bad("", "Linode busy.")
	noRegion      = bad("", "Must provide a region or a Linode ID")
	unknownRegion = bad("region", "region is not valid")
	badSize       = bad("size", "Must be 10-16384")
	noLabel       = bad("label", "label is required")
	badFirst      = bad("label", "Must begin with a letter")
	taken         = bad("label", "Label must be unique among your volumes") // assumed: said so of other things
	attached      = bad("", "Volume is already attached to a Linode")       // assumed but for "is already attached"
	manyConfigs   = bad("config_id", "Couldn't choose a configuration profile to add this volume to. Please specify one.")
	badFilter     = bad("X-Filter", "Cannot filter on") // the field's name follows

	badLabel      = bad("label", "Must only use ASCII letters, numbers, underscores and dashes, no two of them in a row")      // assumed
	longLabel     = bad("label", "Length must be 1-32 characters")                                                             // assumed
	badTags       = bad("tags", "Tags must be 3-50 characters")                                                                // assumed
	noStorage     = bad("region", "The requested region does not support Block Storage")                                       // assumed
	noEncryption  = bad("encryption", "The requested region does not support Block Storage encryption")                        // assumed
	badEncryption = bad("encryption", "encryption must be enabled or disabled")                                                // assumed
	otherRegion   = bad("linode_id", "Linode and volume must be in the same region")                                           // assumed
	attachLimit   = bad("linode_id", "The maximum number of volumes and disks is attached to this Linode")                     // assumed
	persistLimit  = bad("linode_id", "No free device slot in the configuration profile")                                       // assumed
	notRunning    = bad("linode_id", "The Linode must be running to attach a volume that does not persist across boots")       // assumed
	shrink        = bad("size", "Volumes can only be resized up")                                                              // assumed
	sameSize      = bad("size", "Volume has this size already")                                                                // assumed
	locked        = bad("", "This volume cannot be deleted")                                                                   // assumed
	rotating      = bad("", "The volume's key is being rotated")                                                               // assumed
	restricted    = refusal{http.StatusForbidden, "", "Unauthorized"}                                                          // assumed
	notAttached   = bad("", "Volume is not attached")                                                                          // assumed
	notActive     = bad("", "Volume must be active")                                                                           // assumed
	quota         = bad("", "Account limit reached. Please open a support ticket.")                                            // assumed
	badPage       = bad("page_size", "Must be 25-500")                                                                         // assumed
	badJSON       = bad("", "Invalid JSON")                                                                                    // assumed
	broken        = refusal{http.StatusInternalServerError, "", "An unexpected error occurred while processing your request."} // assumed
)

// refuse is the answer to a request that is refused.
func (c *Cloud) refuse(why refusal) answer {
	return problem(rest.Problem{Status: why.status, ID: why.field, Message: why.reason}, "")
}

// NoErrors as the ID of a fault makes an error answer whose list of errors is empty.
const NoErrors = "no-errors"

// usual are the words that a status has when nothing else is said.
var usual = map[int]string{
	http.StatusUnauthorized:       "Invalid Token",
	http.StatusForbidden:          "Unauthorized",
	http.StatusNotFound:           notFound.reason,
	http.StatusTooManyRequests:    "Too many requests",
	http.StatusServiceUnavailable: "Service unavailable.",
}

// problem is the answer to a request that the server or a fault refuses. A gateway's error is a page, not
// JSON.
func problem(p rest.Problem, _ string) answer {
	if p.Status == http.StatusBadGateway || p.Status == http.StatusGatewayTimeout {
		words := fmt.Sprintf("%d %s", p.Status, http.StatusText(p.Status))
		return answer{
			Status: p.Status, Header: http.Header{"Content-Type": {"text/html"}},
			Body: fmt.Appendf(nil, "<html><head><title>%s</title></head><body><h1>%s</h1><hr>nginx</body></html>\n", words, words),
		}
	}
	type wireError struct {
		Reason string `json:"reason"`
		Field  string `json:"field,omitempty"`
	}
	list := []wireError{}
	if p.ID != NoErrors {
		list = append(list, wireError{Reason: cmp.Or(p.Message, usual[p.Status], broken.reason), Field: p.ID})
	}
	return reply(p.Status, map[string]any{"errors": list})
}

// reply is an answer with a JSON body.
func reply(status int, body any) answer {
	text, err := json.Marshal(body)
	if err != nil { // no type of this package can fail
		return answer{Status: http.StatusInternalServerError, Body: []byte(err.Error())}
	}
	// The official SDK takes an error for one of the API only under exactly this content type.
	return answer{Status: status, Header: http.Header{"Content-Type": {jsonType}}, Body: text}
}

const jsonType = "application/json"

func ok(body any) answer { return reply(http.StatusOK, body) }

// class is for the limits that count some requests only.
func class(r *request) string {
	switch {
	case r.Method == http.MethodPost && r.Route == prefix+"/volumes":
		return ClassCreate
	case r.Method == http.MethodGet && lists[r.Route]:
		return ClassList
	}
	return ""
}

// lists are the routes that answer with pages.
var lists = map[string]bool{
	prefix + "/volumes": true, prefix + "/linode/instances/{linodeId}/disks": true, prefix + "/linode/instances/{linodeId}/volumes": true,
	prefix + "/regions": true, prefix + "/account/events": true,
}

// limited adds the rate headers: those of the limit that refused the request, else of the narrowest.
func (c *Cloud) limited(header http.Header, all []rest.Budget, refused *rest.Budget) {
	if len(all) == 0 {
		return
	}
	shown := all[0]
	for _, budget := range all {
		if budget.Requests < shown.Requests {
			shown = budget
		}
	}
	if refused != nil {
		shown = *refused
	}
	header.Set("X-Ratelimit-Limit", strconv.Itoa(shown.Requests))
	header.Set("X-Ratelimit-Remaining", strconv.Itoa(max(shown.Remaining, 0)))
	header.Set("X-Ratelimit-Reset", strconv.FormatInt(shown.Reset.Add(time.Second-1).Unix(), 10))
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused != nil && c.rules.RetryAfter {
		wait := time.Until(refused.Reset) + time.Second - 1
		header.Set("Retry-After", strconv.Itoa(max(1, int(wait.Seconds()))))
	}
}
