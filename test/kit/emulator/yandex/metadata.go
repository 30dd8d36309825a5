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
	mux.HandleFunc("GET /instances/{instance}/latest/dynamic/instance-identity/document", func(w http.ResponseWriter, r *http.Request) {
		c.metadata(w, r, func(i Instance) any {
			if i.NoIdentityDocument {
				return nil
			}
			return map[string]any{
				"instanceId": i.ID, "availabilityZone": i.Zone, "region": region(i.Zone), "privateIp": "10.128.0.2",
				"version": "2017-09-30", "imageId": "fd8emulated00image00", "architecture": "x86_64",
			}
		})
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
	if rest, is := strings.CutPrefix(path, "instance/disks/"); is {
		return c.tellDisk(i, rest)
	}
	switch path {
	case "instance/id":
		return i.ID
	case "instance/name":
		return i.Name
	case "instance/hostname":
		return i.Name + "." + region(i.Zone) + ".internal"
	case "instance/zone":
		return "projects/" + DefaultCloud + "/zones/" + i.Zone
	case "instance/vendor/folder-id", "yandex/folder-id":
		return c.Folder
	case "instance/vendor/cloud-id", "yandex/cloud-id":
		return DefaultCloud
	case "instance/vendor/environment":
		return region(i.Zone)
	case "instance/vendor/identity/document":
		return map[string]any{"instanceId": i.ID, "imageId": "fd8emulated00image00", "productIds": nil, "createdAt": "2024-05-02T07:00:00Z"}
	case "instance/service-accounts/default/token":
		if i.NoServiceAccount {
			return nil
		}
		token, ends := c.newToken()
		return map[string]any{"access_token": token, "expires_in": int(time.Until(ends).Seconds()), "token_type": "Bearer"}
	}
	return nil
}

// tellDisk answers what is below instance/disks: "<n>/device-name".
func (c *Cloud) tellDisk(i Instance, path string) any {
	for n, d := range c.now.attachedTo(i.ID) {
		if path == fmt.Sprintf("%d/device-name", n) {
			return d.Device
		}
	}
	return nil
}
