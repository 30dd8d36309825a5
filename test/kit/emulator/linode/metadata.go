package linode

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metadataRoutes serves what each Linode finds at 169.254.169.254, below a path of its own. Where the
// region has no metadata service, nothing is found.
func (c *Cloud) metadataRoutes(mux *http.ServeMux) {
	serve := func(pattern string, show func(w http.ResponseWriter, r *http.Request, l Linode)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /linodes/{linode}"+path, func(w http.ResponseWriter, r *http.Request) {
			id, _ := strconv.Atoi(r.PathValue("linode")) // 0 is no Linode
			c.mu.Lock()
			l, found := c.now.linodes[id]
			found = found && slices.Contains(c.opts.Regions[l.Region].Capabilities, MetadataService)
			c.mu.Unlock()
			if !found {
				http.NotFound(w, r)
				return
			}
			show(w, r, l)
		})
	}
	serve("PUT /v1/token", c.metadataToken)
	serve("GET /v1/instance", func(w http.ResponseWriter, r *http.Request, l Linode) {
		if !c.knowsToken(r.Header.Get("Metadata-Token"), l.ID) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !wantsJSON(r) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "id: %d\nlabel: %s\nregion: %s\ntype: %s\nspecs.memory: %d\n", l.ID, l.Label, l.Region, "g6-standard-4", l.MemoryMB)
			return
		}
		writeCompact(w, map[string]any{
			"id": l.ID, "label": l.Label, "region": l.Region, "type": "g6-standard-4", "host_uuid": hostUUID(l),
			"tags": append([]string{}, l.Tags...), "account_euuid": "4f1b2f3a-0c1d-4e5f-8a9b-0c1d2e3f4a5b",
			"specs":   map[string]int{"vcpus": 4, "memory": l.MemoryMB, "disk": diskMB, "transfer": 4000, "gpus": 0},
			"backups": map[string]any{"enabled": false, "status": nil}, "image": map[string]string{"id": "linode/ubuntu24.04", "label": "Ubuntu 24.04 LTS"},
		})
	})
}

// metadataToken gives a token that is good for as long as the header says.
func (c *Cloud) metadataToken(w http.ResponseWriter, r *http.Request, l Linode) {
	seconds, err := strconv.Atoi(r.Header.Get("Metadata-Token-Expiry-Seconds"))
	const longest = 24 * 60 * 60
	if err != nil || seconds < 1 || seconds > longest {
		http.Error(w, "Metadata-Token-Expiry-Seconds must be 1-86400", http.StatusBadRequest)
		return
	}
	ends := c.clock.Now().Add(time.Duration(seconds) * time.Second)
	token := fmt.Sprintf("%d.%d", l.ID, ends.UnixNano())
	if wantsJSON(r) {
		writeCompact(w, []string{token})
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintln(w, token)
}

// knowsToken: a token names its Linode and its end.
func (c *Cloud) knowsToken(token string, linode int) bool {
	owner, end, _ := strings.Cut(token, ".")
	nanoseconds, err := strconv.ParseInt(end, 10, 64)
	return err == nil && owner == strconv.Itoa(linode) && c.clock.Now().Before(time.Unix(0, nanoseconds))
}

func wantsJSON(r *http.Request) bool { return r.Header.Get("Accept") == "application/json" }

func writeCompact(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that went away needs no answer
}
