package digitalocean_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

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
