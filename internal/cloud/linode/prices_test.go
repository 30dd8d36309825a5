package linode_test

import (
	"maps"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// The prices are those that linodego has recorded, by one request, which needs no scope.
func TestPricesOfRegions(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{Scopes: []string{}}})
	usual, regions, err := open(t, account).Prices(t.Context())
	if want := map[string]float64{"id-cgk": 0.12, "br-gru": 0.14}; err != nil || usual != 0.1 || !maps.Equal(regions, want) {
		t.Errorf("Prices = %v, %v, %v, want 0.1 and %v", usual, regions, err, want)
	}
	if n := account.Stats().Reads; n != 1 {
		t.Errorf("%d requests, want one", n)
	}
}

// A price is never invented: an answer without one is an error.
func TestPricesThatAreMissing(t *testing.T) {
	for _, body := range []string{
		`{"data":[],"page":1,"pages":1,"results":0}`,
		`{"data":[{"id":"volume","price":{"hourly":null,"monthly":null}}],"page":1,"pages":1,"results":1}`,
		`{"data":[{"id":"fast","price":{"hourly":0.1,"monthly":60}}],"page":1,"pages":1,"results":1}`,
		`{"data":[{"id":"volume","price":{"hourly":0.1,"monthly":60},"region_prices":[{"id":"us-ord","monthly":null}]}],"page":1,"pages":1,"results":1}`,
		`{"page":1,"pages":1,"results":1}`,
		`{"data":[{"id":"volume","price":{"hourly":"x","monthly":"0.1"}}],"page":1,"pages":1,"results":1}`,
	} {
		c := open(t, start(t, emulator.Options{}), answering("", 200, "application/json", body))
		_, _, err := c.Prices(t.Context())
		want(t, err, fault.Unavailable, "prices of volumes")
	}
}
