package digitalocean

import (
	"net/http"
	"slices"
	"strings"
)

// The scopes that a request needs because of what is in it, besides those of its route.
const (
	scopeReadTags     = "tag:read"
	scopeCreateTags   = "tag:create"
	scopeUpdateVolume = "block_storage:update"
)

// The scopes that docs/backends/digitalocean.md asks for.
const (
	NeededScopes = "block_storage:read block_storage:create block_storage:delete block_storage_action:read block_storage_action:create " +
		"block_storage_snapshot:read block_storage_snapshot:create block_storage_snapshot:delete " +
		"actions:read snapshot:read droplet:read regions:read sizes:read image:read"
	OptionalScopes   = "tag:read tag:create tag:delete block_storage:update"
	DocumentedScopes = NeededScopes + " " + OptionalScopes
)

// unscoped is the refusal of a token that lacks a scope (ansible-collections/community.digitalocean#375).
var unscoped = problem{Status: http.StatusForbidden}

// may reports whether the token has all these scopes.
func (c *Cloud) may(scopes ...string) bool {
	has := strings.Fields(c.rules.Scopes)
	return len(has) == 0 || !slices.ContainsFunc(scopes, func(scope string) bool { return !slices.Contains(has, scope) })
}

// scoped lets requests through that the token has the scopes for, before anything else is looked at.
func (c *Cloud) scoped(scopes string, handler func(*request) answer) func(*request) answer {
	return func(r *request) answer {
		if !c.may(strings.Fields(scopes)...) {
			return refuse(unscoped, r.ID)
		}
		return handler(r)
	}
}

// shownTags are an object's tags as the token sees them: null without the scope.
func (c *Cloud) shownTags(tags []string) []string {
	if !c.may(scopeReadTags) {
		return nil
	}
	return tags
}
