package digitalocean_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

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
