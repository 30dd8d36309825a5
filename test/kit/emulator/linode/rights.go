package linode

import (
	"net/http"
	"slices"
	"strings"
)

// right is what a route asks for, as the API's description says: of the token each of the scopes, and of its user the
// permission.
type right struct {
	permission string
	scopes     []string
}

// The scopes that routes ask for.
const (
	volumesRead  = "volumes:read_only"
	volumesWrite = "volumes:read_write"
	linodesRead  = "linodes:read_only"
	linodesWrite = "linodes:read_write"
	eventsRead   = "events:read_only"
)

// wrongScope answers a token that lacks a scope.
var wrongScope = refusal{http.StatusUnauthorized, "", "Your OAuth token is not authorized to use this endpoint."}

// mayUse says why the token or its user may not use a route.
func (c *Cloud) mayUse(need right) *refusal {
	for _, scope := range need.scopes {
		if has := c.rules.Scopes; has != nil && !slices.Contains(has, scope) && !slices.Contains(has, strings.Replace(scope, "read_only", "read_write", 1)) {
			return &wrongScope
		}
	}
	if need.permission != "" && c.rules.Permissions != nil && !slices.Contains(c.rules.Permissions, need.permission) {
		return &restricted
	}
	return nil
}

// showScopes adds the headers about the token's scopes and the route's.
func (c *Cloud) showScopes(header http.Header, need right) {
	if c.rules.NoScopeHeaders {
		return
	}
	has := "*"
	if c.rules.Scopes != nil {
		has = strings.Join(c.rules.Scopes, " ")
	}
	header.Set("X-OAuth-Scopes", has)
	header.Set("X-Accepted-OAuth-Scopes", strings.Join(need.scopes, " "))
}

// Restricted are rules with the rights of docs/backends/linode.md and no others.
func Restricted() Rules {
	return Rules{
		Scopes: []string{linodesWrite, volumesWrite, eventsRead},
		Permissions: []string{
			"attach_volume", "clone_volume", "create_volume", "delete_volume", "detach_volume", "list_events", "list_linode_volumes", "resize_volume",
			"update_volume", "view_linode", "view_linode_disk", "view_volume",
		},
	}
}
