package yandex_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// web makes a plain HTTP request and returns the status and the body.
func web(t *testing.T, method, url, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

func TestTheMetadataServiceTellsAMachineWhoItIs(t *testing.T) {
	c, _, instance := start(t, emulator.Options{})
	quiet := c.AddInstance(emulator.Instance{Zone: "ru-central1-d", NoServiceAccount: true})
	const base = "/computeMetadata/v1/"
	for _, row := range []struct {
		instance, path string
		status         int
		want           string
	}{
		{instance, base + "instance/id", http.StatusOK, instance},
		{instance, base + "instance/zone", http.StatusOK, "projects/" + emulator.DefaultCloud + "/zones/ru-central1-a"},
		{quiet, base + "instance/zone", http.StatusOK, "projects/" + emulator.DefaultCloud + "/zones/ru-central1-d"},
		{instance, base + "instance/vendor/folder-id", http.StatusOK, c.Folder},
		{instance, base + "instance/attributes/cores", http.StatusNotFound, ""},
		{quiet, base + "instance/service-accounts/default/token", http.StatusNotFound, ""},
		{"fhm0", base + "instance/id", http.StatusNotFound, ""},
	} {
		code, body := web(t, http.MethodGet, c.Metadata(row.instance)+row.path, "", "Metadata-Flavor", "Google")
		if code != row.status || row.want != "" && body != row.want {
			t.Errorf("GET %s of %s = %d %s, want %d %s", row.path, row.instance, code, body, row.status, row.want)
		}
	}
	if code, _ := web(t, http.MethodGet, c.Metadata(instance)+base+"instance/id", ""); code != http.StatusForbidden {
		t.Errorf("without the header = %d, want %d", code, http.StatusForbidden)
	}
	if got := c.Stats().Reads; got != 0 {
		t.Errorf("%d reads, want none: metadata does not count", got)
	}
}
