package yandex_test

import (
	"net/http"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

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
		got := expect.Fetch(t, http.MethodGet, c.Metadata(row.instance)+row.path, "", "Metadata-Flavor", "Google")
		if got.Status != row.status || row.want != "" && strings.TrimSpace(got.Body) != row.want {
			t.Errorf("GET %s of %s = %+v, want %d %s", row.path, row.instance, got, row.status, row.want)
		}
	}
	if code := expect.Fetch(t, http.MethodGet, c.Metadata(instance)+base+"instance/id", "").Status; code != http.StatusForbidden {
		t.Errorf("without the header = %d, want %d", code, http.StatusForbidden)
	}
	if got := c.Stats().Reads; got != 0 {
		t.Errorf("%d reads, want none: metadata does not count", got)
	}
}
