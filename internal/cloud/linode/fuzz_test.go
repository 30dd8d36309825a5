package linode_test

import (
	"net/http"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

func FuzzAnswers(f *testing.F) {
	good := `{"data":[{"id":7,"label":"new","status":"active","size":20,"region":"us-ord","linode_id":null}],"page":1,"pages":1,"results":1,"id":7,"label":"new","status":"active","size":20,"region":"us-ord","linode_id":101,"filesystem_path":"/dev/disk/by-id/scsi-0Linode_Volume_new"}`
	objects := cloudtest.Objects{Volume: "7", Snapshot: "8", Node: node1, Zone: emulator.DefaultRegion}
	cloudtest.FuzzHTTPAnswers(f, objects, good, func(t *testing.T, through http.RoundTripper) cloud.Cloud {
		return open(t, start(t, emulator.Options{}), func(cfg *linode.Config) {
			cfg.Endpoint, cfg.Token = "https://"+cloudtest.FuzzedHost, func() (string, error) { return cloudtest.FuzzedToken, nil }
			cfg.Transport = through
		})
	})
}
