package digitalocean

import (
	"net/http"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestEachAnswerBecomesItsKind(t *testing.T) {
	tests := map[string]struct {
		status int
		words  string
		want   fault.Kind
	}{
		"a token that is not accepted":              {401, "Unable to authenticate you.", fault.Denied},
		"a token without the permission":            {403, "You are not authorized to perform this operation", fault.Denied},
		"the account's quota":                       {403, "failed to create volume: volume/snapshot capacity limit exceeded", fault.Exhausted},
		"the account's number of volumes":           {403, "volume limit reached", fault.Exhausted},
		"something that does not exist":             {404, "The resource you requested could not be found.", fault.NotFound},
		"a name that is taken":                      {409, "already exists", fault.Conflict},
		"a droplet that is busy":                    {422, "Droplet already has a pending event", fault.Busy},
		"a droplet that is full":                    {422, "cannot attach more volumes to the Droplet", fault.Exhausted},
		"a droplet that is full, in older words":    {422, "cannot attach more than 7 volumes to a single Droplet", fault.Exhausted},
		"a refusal for another reason":              {422, "This volume is already attached", fault.InvalidArgument},
		"a request that is wrong":                   {400, "bad", fault.InvalidArgument},
		"a rule of one route":                       {429, "come back later", fault.Unavailable},
		"a failure of the cloud":                    {500, "Unexpected server-side error", fault.Unavailable},
		"a status that the cloud does not document": {418, "teapot", fault.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := kindOf(&api.Answer{Status: tc.status, Words: tc.words}); got != tc.want {
				t.Errorf("kindOf(%d %q) = %q, want %q", tc.status, tc.words, got, tc.want)
			}
		})
	}
}

// The limits of the API and the rules of single routes are both 429.
func TestTheBudgetIsToldFromTheRulesOfRoutes(t *testing.T) {
	const rule, other = "this operation is rate-limited - one request per 10m0s", "too many requests"
	snapshot := api.Request{Method: http.MethodPost, Path: "/v2/volumes/x/snapshots"}
	attach := api.Request{Method: http.MethodPost, Path: "/v2/volumes/x/actions"}
	left := func(n, after string) http.Header {
		return http.Header{"Ratelimit-Limit": {"5000"}, "Ratelimit-Remaining": {n}, "Retry-After": {after}}
	}
	tests := map[string]struct {
		request api.Request
		words   string
		header  http.Header
		want    bool
	}{
		"the budget of a minute":             {snapshot, other, http.Header{"Retry-After": {"1"}}, true},
		"the same with its remaining":        {attach, other, left("4711", "60"), true},
		"the budget of an hour":              {snapshot, other, http.Header{"Ratelimit-Remaining": {"0"}}, true},
		"the same with its wait":             {attach, other, left("0", "600"), true},
		"a long wait of a cloud that is mum": {attach, other, http.Header{"Retry-After": {"600"}}, true},
		"a long wait with budget left":       {attach, other, left("4711", "600"), false},
		"the rule about snapshots":           {snapshot, other, left("4711", ""), false},
		"the same in its words":              {snapshot, rule, left("4711", "30"), false},
		"the same without headers":           {snapshot, other, nil, false},
		"any other request without headers":  {attach, other, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := throttled(tc.request, &http.Response{Header: tc.header}, &api.Answer{Status: 429, Words: tc.words}); got != tc.want {
				t.Errorf("throttled = %v, want %v", got, tc.want)
			}
		})
	}
}

// Scopes is the table of scopes by route.
var Scopes = scopes

func TestRoutesHaveNoIds(t *testing.T) {
	const id = "506f78a4-e098-11e5-ad9f-000f53306ae1"
	for path, want := range map[string]string{
		"/v2/volumes":                    "/v2/volumes",
		"/v2/volumes/" + id:              "/v2/volumes/{id}",
		"/v2/volumes/" + id + "/actions": "/v2/volumes/{id}/actions",
		"/v2/actions/72531856":           "/v2/actions/{id}",
		"/v2/droplets/7":                 "/v2/droplets/{id}",
		"/v2/snapshots/" + id:            "/v2/snapshots/{id}",
	} {
		if got := routeOf(path); got != want {
			t.Errorf("routeOf(%q) = %q, want %q", path, got, want)
		}
	}
}
