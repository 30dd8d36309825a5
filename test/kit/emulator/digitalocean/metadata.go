package digitalocean

import (
	"fmt"
	"net/http"
	"strconv"
)

// metadataRoutes serves what each droplet finds at 169.254.169.254, below a path of its own.
func (c *Cloud) metadataRoutes(mux *http.ServeMux) {
	serve := func(path string, show func(w http.ResponseWriter, d Droplet)) {
		mux.HandleFunc("GET /droplets/{droplet}/metadata"+path, func(w http.ResponseWriter, r *http.Request) {
			id, _ := strconv.Atoi(r.PathValue("droplet")) // 0 is no droplet
			c.mu.Lock()
			d, found := c.now.droplets[id]
			c.mu.Unlock()
			if !found {
				http.NotFound(w, r)
				return
			}
			show(w, d)
		})
	}
	text := func(get func(Droplet) string) func(http.ResponseWriter, Droplet) {
		return func(w http.ResponseWriter, d Droplet) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprint(w, get(d))
		}
	}
	serve("/v1/id", text(func(d Droplet) string { return strconv.Itoa(d.ID) }))
	serve("/v1/region", text(func(d Droplet) string { return d.Region }))
}
