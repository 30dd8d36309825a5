package digitalocean

import (
	"context"
	"regexp"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// write sends a change of an object; see remote.Work.
func (c *Cloud) write(ctx context.Context, object, doing string, send func(ctx context.Context) error) error {
	return writeError(doing, c.work.Write(ctx, object, send))
}

// routes are the paths with their ids, for metrics.
var routes = []struct {
	pattern  *regexp.Regexp
	template string
}{
	{regexp.MustCompile(`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "/{id}"},
	{regexp.MustCompile(`/tags/[^/]+`), "/tags/{tag}"},
	{regexp.MustCompile(`/[0-9]+`), "/{id}"},
}

// routeOf names the route of a path.
func routeOf(path string) string {
	for _, r := range routes {
		path = r.pattern.ReplaceAllString(path, r.template)
	}
	return strings.TrimSuffix(path, "/")
}

func volumeKey(id cloud.VolumeID) string { return "volume " + string(id) }
