package linode

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// refusal is one of the API's refusals. Rules.Texts can replace its reason by its name.
type refusal struct {
	name   string
	status int
	field  string
	reason string
}

func bad(name, field, reason string) refusal {
	return refusal{name: name, status: http.StatusBadRequest, field: field, reason: reason}
}

// The refusals of the real API, in its own words. Where "assumed" is said, no public source quotes the
// words, so a client must not depend on them.
var (
	notFound      = refusal{"not_found", http.StatusNotFound, "", "Not found"}
	linodeBusy    = bad("linode_busy", "", "Linode busy.")
	noRegion      = bad("no_region", "", "Must provide a region or a Linode ID")
	unknownRegion = bad("unknown_region", "region", "region is not valid")
	badSize       = bad("bad_size", "size", "Must be 10-16384")
	noLabel       = bad("no_label", "label", "label is required")
	badFirst      = bad("bad_first", "label", "Must begin with a letter")
	taken         = bad("taken", "label", "Label must be unique among your volumes") // assumed: said so of other things
	attached      = bad("attached", "", "Volume is already attached to a Linode")    // assumed but for "is already attached"
	manyConfigs   = bad("many_configs", "config_id", "Couldn't choose a configuration profile to add this volume to. Please specify one.")
	badFilter     = bad("bad_filter", "", "Cannot filter on") // the field's name follows

	badLabel       = bad("bad_label", "label", "Must only use ASCII letters, numbers, underscores and dashes, no two of them in a row")   // assumed
	longLabel      = bad("long_label", "label", "Length must be 1-32 characters")                                                         // assumed
	badTags        = bad("bad_tags", "tags", "Tags must be 3-50 characters")                                                              // assumed
	noStorage      = bad("no_storage", "region", "The requested region does not support Block Storage")                                   // assumed
	noEncryption   = bad("no_encryption", "encryption", "The requested region does not support Block Storage encryption")                 // assumed
	badEncryption  = bad("bad_encryption", "encryption", "encryption must be enabled or disabled")                                        // assumed
	otherRegion    = bad("other_region", "linode_id", "Linode and volume must be in the same region")                                     // assumed
	attachLimit    = bad("attach_limit", "linode_id", "The maximum number of volumes and disks is attached to this Linode")               // assumed
	persistLimit   = bad("persist_limit", "linode_id", "No free device slot in the configuration profile")                                // assumed
	notRunning     = bad("not_running", "linode_id", "The Linode must be running to attach a volume that does not persist across boots")  // assumed
	configPersists = bad("config_persists", "config_id", "A configuration profile cannot be chosen when persist_across_boots is false")   // assumed
	badConfig      = bad("bad_config", "config_id", "config_id is not valid")                                                             // assumed
	shrink         = bad("shrink", "size", "Volumes can only be resized up")                                                              // assumed
	sameSize       = bad("same_size", "size", "Volume has this size already")                                                             // assumed
	stillAttached  = bad("still_attached", "", "Volume must be detached before it can be deleted")                                        // assumed
	locked         = bad("locked", "", "This volume cannot be deleted")                                                                   // assumed
	rotating       = bad("rotating", "", "The volume's key is being rotated")                                                             // assumed
	restricted     = refusal{"restricted", http.StatusForbidden, "", "Unauthorized"}                                                      // assumed
	notAttached    = bad("not_attached", "", "Volume is not attached")                                                                    // assumed
	notActive      = bad("not_active", "", "Volume must be active")                                                                       // assumed
	quota          = bad("quota", "", "Account limit reached. Please open a support ticket.")                                             // assumed
	badPage        = bad("bad_page", "page_size", "Must be 25-500")                                                                       // assumed
	badJSON        = bad("bad_json", "", "Invalid JSON")                                                                                  // assumed
	broken         = refusal{"broken", http.StatusInternalServerError, "", "An unexpected error occurred while processing your request."} // assumed
)

// refuse is the answer to a request that is refused.
func (c *Cloud) refuse(why refusal) answer {
	if text := c.rules.Texts[why.name]; text != "" {
		why.reason = text
	}
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
		reason := p.Message
		if reason == "" {
			reason = usual[p.Status]
		}
		if reason == "" {
			reason = broken.reason
		}
		list = append(list, wireError{Reason: reason, Field: p.ID})
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
	return answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}
}

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
	prefix + "/volumes": true, prefix + "/linode/instances": true, prefix + "/linode/instances/{linodeId}/disks": true,
	prefix + "/linode/instances/{linodeId}/configs": true, prefix + "/linode/instances/{linodeId}/volumes": true,
	prefix + "/linode/types": true, prefix + "/regions": true, prefix + "/account/events": true, prefix + "/volumes/types": true,
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
