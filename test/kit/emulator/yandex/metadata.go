package yandex

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// metadataRoutes serves the metadata service of each instance below /instances/<id>: what the real one tells
// of an instance, which is not how many cores it has, nor of which platform or generation it is.
func (c *Cloud) metadataRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /instances/{instance}/computeMetadata/v1/{path...}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		c.metadata(w, r, func(i Instance) any { return c.tell(i, strings.TrimSuffix(r.PathValue("path"), "/")) })
	})
}

// metadata answers with a text, or anything else as JSON; nothing is not found.
func (c *Cloud) metadata(w http.ResponseWriter, r *http.Request, tell func(Instance) any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.now.instances[r.PathValue("instance")]
	var told any
	if found {
		told = tell(i)
	}
	switch told := told.(type) {
	case nil:
		http.NotFound(w, r)
	case string:
		w.Header().Set("Content-Type", "application/text")
		_, _ = fmt.Fprint(w, told) // a client that went away needs no answer
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(told)
	}
}

func (c *Cloud) tell(i Instance, path string) any {
	switch path {
	case "instance/id":
		return i.ID
	case "instance/zone":
		return "projects/" + DefaultCloud + "/zones/" + i.Zone
	case "instance/vendor/folder-id":
		return c.Folder
	case "instance/service-accounts/default/token":
		if i.NoServiceAccount {
			return nil
		}
		token, ends := c.newToken()
		return map[string]any{"access_token": token, "expires_in": int(time.Until(ends).Seconds()), "token_type": "Bearer"}
	}
	return nil
}
