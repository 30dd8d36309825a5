package digitalocean_test

import (
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"testing"
	"time"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

// The facts of this file are of two exchanges of June 2022, GET /v2/account with a token that is wrong and with one that is right,
// which JupiterOne/graph-digitalocean keeps at commit 342810e: src/__recordings__/client-id-auth-error_233254982/recording.har and
// src/steps/account/__recordings__/fetch-account_4032489637/recording.har. The files are under MPL-2.0 and not copied: only
// facts are here.

// Of the recorded headers these are not compared: those of the connection and of the proxy in front of the API (Cf-*, Expect-Ct, Server,
// Set-Cookie), X-Gateway and X-Response-From, which name the part of the cloud that has answered, X-Runtime and Traceparent.
// Neither the SDK nor a driver reads them.

var requestID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// TestUnknownTokenIsRefusedByTheGateway: the recorded 401 has an id with a capital letter, no request_id and no rate limit.
func TestUnknownTokenIsRefusedByTheGateway(t *testing.T) {
	a := account{t, emulator.Start(t, emulator.Options{Limits: emulator.RealLimits()})}
	status, header, answer := a.exchange(http.MethodGet, "/v2/account", "", "another token")
	want := any(map[string]any{"id": "Unauthorized", "message": "Unable to authenticate you"})
	if status != http.StatusUnauthorized || !reflect.DeepEqual(answer, want) {
		t.Errorf("the answer is %d %v, want 401 %v", status, answer, want)
	}
	for name, form := range map[string]*regexp.Regexp{
		"Date": regexp.MustCompile(` GMT$`), "Content-Type": regexp.MustCompile(`^application/json$`), "X-Request-Id": requestID,
		"Ratelimit-Limit": nil, "Ratelimit-Remaining": nil, "Ratelimit-Reset": nil, "Retry-After": nil,
	} {
		compareHeader(t, header, name, form)
	}
}

// TestAccountIsAsRecorded: each recorded field of the account is there, with its type and, but for own, its value; and so are the headers.
func TestAccountIsAsRecorded(t *testing.T) {
	a := account{t, emulator.Start(t, emulator.Options{Limits: emulator.RealLimits(), Rules: emulator.Rules{VolumeLimit: 100}})}
	status, header, answer := a.exchange(http.MethodGet, "/v2/account", "", emulator.DefaultToken)
	want := map[string]any{"account": map[string]any{
		"droplet_limit": 25.0, "floating_ip_limit": 3.0, "reserved_ip_limit": 3.0, "volume_limit": 100.0,
		"email": "", "uuid": "", "email_verified": true, "status": "active", "status_message": "",
		"team": map[string]any{"uuid": "", "name": ""},
	}}
	if all := differences(want, answer, ""); status != http.StatusOK || len(all) > 0 {
		t.Errorf("the answer is %d %v, with the differences %q", status, answer, all)
	}
	for name, form := range map[string]*regexp.Regexp{
		"Date": regexp.MustCompile(` GMT$`), "Content-Type": regexp.MustCompile(`^application/json; charset=utf-8$`), "X-Request-Id": requestID,
		"Ratelimit-Limit": regexp.MustCompile(`^5000$`), "Ratelimit-Remaining": regexp.MustCompile(`^4999$`), "Retry-After": nil,
	} {
		compareHeader(t, header, name, form)
	}
	// Recorded with 4984 requests left: 15 minutes and 27 seconds after Date, in whole seconds of Unix time.
	date, err := http.ParseTime(header.Get("Date"))
	must(t, err)
	reset, err := strconv.ParseInt(header.Get("Ratelimit-Reset"), 10, 64)
	must(t, err)
	if after := time.Unix(reset, 0).Sub(date); after <= 0 || after > time.Hour+2*time.Second { // both are rounded
		t.Errorf("Ratelimit-Reset is %s after Date, want up to an hour", after)
	}
}

// compareHeader checks the form of a header; nil: it was not recorded.
func compareHeader(t *testing.T, header http.Header, name string, form *regexp.Regexp) {
	t.Helper()
	value := header.Get(name)
	switch {
	case form == nil && value != "":
		t.Errorf("%s is %q, and the recorded answer has none", name, value)
	case form != nil && !form.MatchString(value):
		t.Errorf("%s is %q, want the form %s", name, value, form)
	}
}
