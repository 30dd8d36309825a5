package block

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestConfigIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(cfg *Config)
		ok     bool
	}{
		"all that is required": {func(*Config) {}, true},
		"an endpoint":          {func(cfg *Config) { cfg.Endpoint = "https://api.example" }, true},
		"a local endpoint":     {func(cfg *Config) { cfg.Endpoint = "http://127.0.0.1:8080" }, true},
		"only a host":          {func(cfg *Config) { cfg.Endpoint = "api.example" }, false},
		"a host with a port":   {func(cfg *Config) { cfg.Endpoint = "api.example:443" }, false},
		"another protocol":     {func(cfg *Config) { cfg.Endpoint = "ftp://api.example" }, false},
		"no host":              {func(cfg *Config) { cfg.Endpoint = "https://" }, false},
		"a host with a space":  {func(cfg *Config) { cfg.Endpoint = "https://a b" }, false},
		"no credentials":       {func(cfg *Config) { cfg.Token = nil }, false},
		"no cluster":           {func(cfg *Config) { cfg.ClusterID = "" }, false},
		"no region":            {func(cfg *Config) { cfg.Region = "" }, false},
	} {
		cfg := Config{Token: func() (string, error) { return "", nil }, ClusterID: "one", Region: "here"}
		tc.change(&cfg)
		asked := cfg.Endpoint
		err := cfg.Complete(func(region string) bool { return region == "here" }, "https://usual.example", nil)
		if (err == nil) != tc.ok || !tc.ok && fault.Of(err) != fault.InvalidArgument {
			t.Errorf("%s: Complete = %v, want no error: %t", name, err, tc.ok)
		}
		if asked == "" && tc.ok && (cfg.Endpoint != "https://usual.example" || cfg.SweepEvery != time.Hour || cfg.OrphanAge != 24*time.Hour || cfg.Log == nil) {
			t.Errorf("%s: the defaults are %+v", name, cfg)
		}
	}
}
