package digitalocean_test

import (
	"net/http"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

func FuzzAnswers(f *testing.F) {
	good := `{"volumes":[{"id":"506f78a4-e098-11e5-ad9f-000f53306ae1","name":"new","size_gigabytes":20,"region":{"slug":"fra1"},"droplet_ids":[1]}],"volume":{"id":"506f78a4-e098-11e5-ad9f-000f53306ae1","name":"new"},"snapshots":[],"actions":[{"id":1,"status":"completed"}],"action":{"id":1,"status":"errored"},"links":{},"meta":{"total":1}}`
	objects := cloudtest.Objects{
		Volume: "506f78a4-e098-11e5-ad9f-000f53306ae1", Snapshot: "506f78a4-e098-11e5-ad9f-000f53306ae2", Node: node1, Zone: emulator.DefaultRegion,
	}
	cloudtest.FuzzHTTPAnswers(f, objects, good, func(t *testing.T, through http.RoundTripper) cloud.Cloud {
		return open(t, start(t, emulator.Options{}), func(cfg *digitalocean.Config) {
			cfg.Endpoint, cfg.Token = "https://"+cloudtest.FuzzedHost, func() (string, error) { return cloudtest.FuzzedToken, nil }
			cfg.Transport = through
		})
	})
}
