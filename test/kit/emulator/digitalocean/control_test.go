package digitalocean_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

func TestTheOwnerRulesOverHTTP(t *testing.T) {
	c, api, droplet := start(t, emulator.Options{})
	status, body := call(t, c, http.MethodPost, "/_emulator/faults",
		`{"method": "POST", "route": "/v2/volumes", "times": 1, "status": 503, "delay": "1ms"}`)
	if status != http.StatusOK {
		t.Fatalf("arm a fault = %d %s", status, body)
	}
	_, resp, err := api.Storage.CreateVolume(t.Context(), &godo.VolumeCreateRequest{Name: "pvc-1", Region: "fra1", SizeGigaBytes: 1})
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("CreateVolume() = %v, want the armed 503", err)
	}
	if status, body = call(t, c, http.MethodPost, "/_emulator/faults", `{"metod": "POST"}`); status != http.StatusBadRequest {
		t.Errorf("arm a misspelt fault = %d %s, want 400", status, body)
	}

	status, body = call(t, c, http.MethodPatch, "/_emulator/settings",
		`{"durations": {"attach": "1h+1m"}, "rules": {"volume_limit": 3}, "limits": ["100/1m"]}`)
	if status != http.StatusOK {
		t.Fatalf("change the settings = %d %s", status, body)
	}
	var settings emulator.Settings
	_, body = get(t, c, "/_emulator/settings")
	if err := json.Unmarshal([]byte(body), &settings); err != nil {
		t.Fatal(err)
	}
	if settings.Durations.Attach.String() != "1h0m0s+1m0s" || settings.Rules.VolumeLimit != 3 || len(settings.Limits) != 1 {
		t.Errorf("settings = %+v, want what was asked for", settings)
	}
	v := mustCreate(t, api, "pvc-1")
	mustAttach(t, api, v.ID, droplet)
	if _, body = get(t, c, "/_emulator/operations"); !strings.Contains(body, `"kind": "attach_volume"`) || !strings.Contains(body, "in-progress") {
		t.Errorf("operations = %s, want the running attach", body)
	}
	if _, body = get(t, c, "/_emulator/stats"); !strings.Contains(body, `"status-503": 1`) || !strings.Contains(body, `"POST /v2/volumes": 2`) {
		t.Errorf("stats = %s, want the requests of the API and nothing else", body)
	}

	var added struct {
		ID       int
		Metadata string
	}
	_, body = call(t, c, http.MethodPost, "/_emulator/droplets", `{"region": "nyc3"}`)
	if err := json.Unmarshal([]byte(body), &added); err != nil || added.Metadata != c.Metadata(added.ID) {
		t.Errorf("add a droplet = %s, %v", body, err)
	}
	if status, _ = call(t, c, http.MethodDelete, "/_emulator/droplets/"+strconv.Itoa(added.ID)+"?lag=1s", ""); status != http.StatusOK || len(c.Droplets()) != 1 {
		t.Errorf("remove a droplet = %d, %v are left", status, c.Droplets())
	}
	if status, _ = call(t, c, http.MethodPost, "/_emulator/reset", ""); status != http.StatusOK || c.Stats().Writes != 0 || len(c.Operations()) != 0 {
		t.Errorf("reset = %d, stats %+v", status, c.Stats())
	}
}

func TestADropletFindsItself(t *testing.T) {
	c := emulator.Start(t, emulator.Options{})
	id := c.AddDroplet(emulator.Droplet{Region: "nyc3"})
	path := strings.TrimPrefix(c.Metadata(id), c.URL)
	c.Token = "" // the metadata service asks for none
	for _, row := range []struct {
		path   string
		status int
		want   string
	}{
		{"/metadata/v1/id", 200, strconv.Itoa(id)},
		{"/metadata/v1/region", 200, "nyc3"},
		{"/metadata/v1/nothing", 404, ""},
	} {
		if status, body := get(t, c, path+row.path); status != row.status || !strings.Contains(body, row.want) {
			t.Errorf("GET %s = %d %q, want %d %q", row.path, status, body, row.status, row.want)
		}
	}
	if status, _ := get(t, c, "/droplets/7/metadata/v1/id"); status != http.StatusNotFound {
		t.Errorf("metadata of no droplet = %d, want 404", status)
	}
	if stats := c.Stats(); stats.Reads != 0 {
		t.Errorf("Reads = %d, want none: metadata is not the API", stats.Reads)
	}
}

func TestAnAccountIsReachedOverTLS(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(0))})
	url, authority, err := c.ListenTLS(t.Context(), "127.0.0.1:0", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		t.Fatalf("the authority is no PEM: %s", authority)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := (&http.Client{Transport: bearer{c.Token, transport}}).Get(url + "/v2/regions?per_page=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Links struct{ Pages struct{ Next string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || !strings.HasPrefix(list.Links.Pages.Next, url) {
		t.Errorf("next = %q, %v, want it below %s", list.Links.Pages.Next, err, url)
	}
}
