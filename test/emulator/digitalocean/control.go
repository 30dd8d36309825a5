package digitalocean

import "net/http"

func (c *Cloud) controlRoutes(*http.ServeMux) {}
