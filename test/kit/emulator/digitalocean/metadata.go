package digitalocean

import (
	"encoding/json"
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
	serve("/v1/hostname", text(func(d Droplet) string { return d.Name }))
	serve("/v1/{$}", text(func(Droplet) string { return "id\nhostname\nregion\n" }))
	serve("/v1", func(w http.ResponseWriter, _ Droplet) {
		w.Header().Set("Location", "v1/") // wherever the service is mounted
		w.WriteHeader(http.StatusMovedPermanently)
	})
	serve("/v1.json", func(w http.ResponseWriter, d Droplet) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // a client that went away needs no answer
			"droplet_id": d.ID, "hostname": d.Name, "region": d.Region, "tags": append([]string{}, d.Tags...), "public_keys": []string{},
			"interfaces": map[string]any{}, "dns": map[string]any{"nameservers": []string{"67.207.67.3"}},
			"floating_ip": map[string]any{"ipv4": map[string]any{"active": false}}, "features": map[string]any{"dhcp_enabled": false},
			"user_data": "", "vendor_data": "",
		})
	})
}
