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
	anyScope     = "*"
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

// unknownScopes are those of a token that the API does not know.
const unknownScopes = "unknown"

// showScopes adds the headers about the token's scopes and the route's, which a gateway's page lacks.
func (c *Cloud) showScopes(r *request, a *answer, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	need, is := c.rights[r.Method+" "+r.Route]
	if !is || c.rules.NoScopeHeaders || a.Header.Get("Content-Type") != jsonType {
		return
	}
	has, accepted := anyScope, anyScope
	switch {
	case !known:
		has = unknownScopes
	case c.rules.Scopes != nil:
		has = strings.Join(c.rules.Scopes, " ")
	}
	if len(need.scopes) > 0 {
		accepted = strings.Join(need.scopes, ",")
	}
	a.Header.Set("X-OAuth-Scopes", has)
	a.Header.Set("X-Accepted-OAuth-Scopes", accepted)
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
