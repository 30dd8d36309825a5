package digitalocean

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

type problem = rest.Problem

// The refusals of the real API, in its own words. Where "assumed" is said, no public source quotes the
// words, so a client must not depend on them.
var (
	volumeNameTaken   = refusal(http.StatusConflict, "conflict", "volume already exists")
	volumeAttached    = refusal(http.StatusConflict, "conflict", "A volume that's attached to a Droplet cannot be deleted. Please detach it first before deleting.")
	snapshotNameTaken = refusal(http.StatusConflict, "conflict", "snapshot already exists") // assumed
	capacityExceeded  = refusal(http.StatusForbidden, "forbidden", "volume/snapshot capacity limit exceeded")

	alreadyAttached  = unprocessable("This volume is already attached")
	pendingEvent     = unprocessable("Droplet already has a pending event")
	volumePending    = unprocessable("Volume already has a pending event") // assumed
	tooManyVolumes   = unprocessable("cannot attach more volumes to the Droplet")
	notAttached      = unprocessable("Attachment not found")
	noStorage        = unprocessable("Storage is not supported for this region")
	resizeRefused    = unprocessable("Block Storage resizing is temporarily disabled for this Droplet. Please contact support for more information.")
	otherRegion      = unprocessable("Droplet and Volume must be in the same region")                                                           // assumed
	snapshotRegion   = unprocessable("snapshot is not available in this region")                                                                // assumed
	unknownRegion    = unprocessable("region is invalid")                                                                                       // assumed
	badVolumeName    = unprocessable("name must be lower case letters, digits and hyphens, begin with a letter and have at most 64 characters") // assumed
	badVolumeSize    = unprocessable("size_gigabytes must be between 1 and 16384")                                                              // assumed
	badVolumeShrink  = unprocessable("size_gigabytes must be larger than the current size")                                                     // assumed
	badTag           = unprocessable("tag names can contain letters, numbers, colons, dashes and underscores")                                  // assumed
	badSnapshotName  = unprocessable("name is required")                                                                                        // assumed
	badActionType    = unprocessable("type must be attach, detach or resize")                                                                   // assumed
	tooManySnapshots = unprocessable("snapshot limit reached for this volume")                                                                  // assumed
	badRequestBody   = refusal(http.StatusBadRequest, "bad_request", "unable to parse the request body")                                        // assumed

	notFound = problem{Status: http.StatusNotFound}
)

func refusal(status int, id, message string) problem {
	return problem{Status: status, ID: id, Message: message}
}

func unprocessable(message string) problem {
	return refusal(http.StatusUnprocessableEntity, "unprocessable_entity", message)
}

// snapshotTooSoon is a 429 that is not about the API's rate limit.
func snapshotTooSoon(interval time.Duration) problem {
	return refusal(http.StatusTooManyRequests, "too_many_requests",
		fmt.Sprintf("failed to create snapshot: this operation is rate-limited - one request per %s", interval))
}

// usual are the id and words that a status has when nothing else is said.
var usual = map[int]problem{
	http.StatusBadRequest:          badRequestBody,
	http.StatusUnauthorized:        {ID: "Unauthorized", Message: "Unable to authenticate you"},
	http.StatusForbidden:           {ID: "forbidden", Message: "You are not authorized to perform this operation."},
	http.StatusNotFound:            {ID: "not_found", Message: "The resource you requested could not be found."},
	http.StatusConflict:            {ID: "conflict", Message: "The request could not be completed."},
	http.StatusUnprocessableEntity: {ID: "unprocessable_entity", Message: "The request could not be processed."},
	http.StatusTooManyRequests:     {ID: "too_many_requests", Message: "API rate limit exceeded."},
	http.StatusInternalServerError: {ID: "server_error", Message: "Unexpected server-side error"},
	http.StatusServiceUnavailable:  {ID: "service_unavailable", Message: "Service unavailable."},
}

// refuse is the answer to a request that is refused.
func refuse(p problem, requestID string) rest.Answer {
	words := usual[p.Status]
	p.ID, p.Message = cmp.Or(p.ID, words.ID, "server_error"), cmp.Or(p.Message, words.Message)
	made := reply(p.Status, map[string]string{"id": p.ID, "message": p.Message, "request_id": requestID}, requestID)
	if p.Status == http.StatusUnauthorized { // the gateway in front of the API answers it in its own form (test/check/recorded)
		made = reply(p.Status, map[string]string{"id": p.ID, "message": p.Message}, requestID)
		made.Header.Set("Content-Type", "application/json")
	}
	return made
}

// reply is an answer with a JSON body; nil means no body.
func reply(status int, body any, requestID string) rest.Answer {
	made := rest.Answer{Status: status, Header: http.Header{}}
	made.Header.Set("X-Request-Id", requestID)
	if body == nil {
		return made
	}
	made.Header.Set("Content-Type", "application/json; charset=utf-8")
	text, err := json.Marshal(body)
	if err != nil { // no type of this package can fail
		return refuse(problem{Status: http.StatusInternalServerError, Message: err.Error()}, requestID)
	}
	made.Body = text
	return made
}

// limited adds the rate headers: those of the longest window, and retry-after only when the limit of the
// minute has refused the request.
func limited(header http.Header, all []rest.Budget, refused *rest.Budget) {
	if len(all) == 0 {
		return
	}
	longest := all[0]
	for _, budget := range all {
		if budget.Window > longest.Window {
			longest = budget
		}
	}
	header.Set("Ratelimit-Limit", strconv.Itoa(longest.Requests))
	header.Set("Ratelimit-Remaining", strconv.Itoa(max(longest.Remaining, 0)))
	header.Set("Ratelimit-Reset", strconv.FormatInt(longest.Reset.Add(time.Second-1).Unix(), 10))
	if refused != nil && refused.Window <= minute {
		wait := time.Until(refused.Reset) + time.Second - 1
		header.Set("Retry-After", strconv.Itoa(max(1, int(wait.Seconds()))))
	}
}
