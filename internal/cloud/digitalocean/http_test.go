package digitalocean_test

import (
	"net/http"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
)

type (
	httpRequest  = http.Request
	httpResponse = http.Response
	roundTripper = cloudtest.RoundTripper
)
