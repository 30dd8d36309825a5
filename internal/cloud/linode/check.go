package linode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// eventsScope is the scope for the events of the account.
const eventsScope = "events:read_only"

// scopes are those that the API token needs; docs/backends/linode.md says what for.
var scopes = []string{"volumes:read_write", "linodes:read_write", eventsScope}

// Check reads the shortest page of volumes. Each answer of the API says which scopes the token has, so this one also
// shows which of the others are missing. What the token's user may do does not show.
func (c *Cloud) Check(ctx context.Context) error {
	var header http.Header
	_, _, err := readPage(ctx, listOf[volume]{
		doing: "read the account's volumes", call: c.sdk.ListVolumes, priority: budget.List, received: &header,
	}, 1, minPage)
	missing := missingScopes(header.Get("X-OAuth-Scopes"))
	switch {
	case len(missing) == 0 || err != nil && !errors.Is(err, fault.Denied):
		return err
	case err == nil:
		return fmt.Errorf("%w: the API token lacks the scope %s", fault.Denied, strings.Join(missing, " and "))
	default:
		return fmt.Errorf("the API token lacks the scope %s: %w", strings.Join(missing, " and "), err)
	}
}

// missingScopes returns the scopes that the header lacks. A header that is absent says nothing.
func missingScopes(header string) []string {
	has := strings.FieldsFunc(header, func(r rune) bool { return r == ' ' || r == ',' })
	if len(has) == 0 || slices.Contains(has, "*") {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool {
		return slices.Contains(has, scope) || slices.Contains(has, strings.Replace(scope, ":read_only", ":read_write", 1))
	})
}

// CheckRegion reads whether the backend's own region has volumes; it is fault.NoZone if not.
func (c *Cloud) CheckRegion(ctx context.Context) error {
	regions, err := c.regions.Get(ctx, struct{}{})
	if err == nil && !regions[c.region].volumes {
		err = fmt.Errorf("the region %s lacks the capability %q, or does not exist: %w", c.region, hasVolumes, fault.NoZone)
	}
	return err
}
