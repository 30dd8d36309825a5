package block_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestEndpointsAreChecked(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"": true, "https://api.example": true, "http://127.0.0.1:8080": true,
		"api.example": false, "api.example:443": false, "ftp://api.example": false, "https://": false, "https://a b": false,
	} {
		cfg := block.Config{Token: func() (string, error) { return "", nil }, ClusterID: "one", Endpoint: endpoint}
		err := cfg.Complete(func(string) bool { return true }, "https://usual.example", nil)
		if (err == nil) != ok || !ok && fault.Of(err) != fault.InvalidArgument || endpoint == "" && cfg.Endpoint != "https://usual.example" {
			t.Errorf("Complete with the endpoint %q = %v", endpoint, err)
		}
	}
}
