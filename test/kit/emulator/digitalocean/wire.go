package digitalocean

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// The shapes of the wire, field by field as the API shows them.

type wireRegion struct {
	Slug      string   `json:"slug"`
	Name      string   `json:"name"`
	Sizes     []string `json:"sizes"`
	Available bool     `json:"available"`
	Features  []string `json:"features"`
}

type wireVolume struct {
	ID              string     `json:"id"`
	Name            string     `json:"name"`
	Region          wireRegion `json:"region"`
	Description     string     `json:"description"`
	SizeGigabytes   int        `json:"size_gigabytes"`
	DropletIDs      []int      `json:"droplet_ids"`
	CreatedAt       string     `json:"created_at"`
	FilesystemType  string     `json:"filesystem_type"`
	FilesystemLabel string     `json:"filesystem_label"`
	Tags            []string   `json:"tags"`
}

type wireAction struct {
	ID           int        `json:"id"`
	Status       string     `json:"status"`
	Type         string     `json:"type"`
	StartedAt    string     `json:"started_at"`
	CompletedAt  *string    `json:"completed_at"`
	ResourceID   *int       `json:"resource_id"`
	ResourceType string     `json:"resource_type"`
	Region       wireRegion `json:"region"`
	RegionSlug   string     `json:"region_slug"`
}

type wireSnapshot struct {
	ID            string   `json:"id"`
	Name          string   `json:"name"`
	CreatedAt     string   `json:"created_at"`
	Regions       []string `json:"regions"`
	ResourceID    string   `json:"resource_id"`
	ResourceType  string   `json:"resource_type"`
	MinDiskSize   int      `json:"min_disk_size"`
	SizeGigabytes float64  `json:"size_gigabytes"`
	Tags          []string `json:"tags"`
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (c *Cloud) region(slug string) wireRegion {
	return wireRegion{
		Slug: slug, Name: slug, Sizes: []string{dropletSize}, Available: true,
		Features: slices.Clone(c.opts.Regions[slug]),
	}
}

func (c *Cloud) showVolume(v volume) wireVolume {
	droplets := []int{}
	if v.DropletID != 0 {
		droplets = append(droplets, v.DropletID)
	}
	return wireVolume{
		ID: v.ID, Name: v.Name, Region: c.region(v.Region), Description: v.Description, SizeGigabytes: v.SizeGiB,
		DropletIDs: droplets, CreatedAt: stamp(v.Created), Tags: c.shownTags(v.Tags),
	}
}

func (c *Cloud) showAction(a action) wireAction {
	shown := wireAction{
		ID: a.id, Status: a.status, Type: a.kind, StartedAt: stamp(a.started), ResourceType: "backend",
		Region: c.region(a.region), RegionSlug: a.region,
	}
	if !a.completed.IsZero() {
		done := stamp(a.completed)
		shown.CompletedAt = &done
	}
	return shown
}

func (c *Cloud) showSnapshot(s snapshot) wireSnapshot {
	// size_gigabytes is what is billed, the part that was written: 0 of an empty volume (recorded). It is not counted here, so
	// it is always 0, and min_disk_size alone has the size of the volume.
	return wireSnapshot{
		ID: s.ID, Name: s.Name, CreatedAt: stamp(s.Created), Regions: []string{s.Region}, ResourceID: s.VolumeID,
		ResourceType: "volume", MinDiskSize: s.SizeGiB, Tags: c.shownTags(s.Tags),
	}
}

// page answers a list request with the page that it asks for.
func page[T, W any](r *request, key string, all []T, show func(T) W) answer {
	const usualPerPage, mostPerPage = 20, 200
	perPage := min(queryNumber(r, "per_page", usualPerPage), mostPerPage)
	number := queryNumber(r, "page", 1)
	from := min((number-1)*perPage, len(all))
	to := min(from+perPage, len(all))
	shown := make([]W, 0, to-from)
	for _, item := range all[from:to] {
		shown = append(shown, show(item))
	}
	return reply(http.StatusOK, map[string]any{
		key: shown, "links": pageLinks(r, number, (len(all)+perPage-1)/perPage), "meta": map[string]int{"total": len(all)},
	}, r.ID)
}

func queryNumber(r *request, name string, otherwise int) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 1 {
		return otherwise
	}
	return n
}

// pageLinks returns the links object; a list of one page has none.
func pageLinks(r *request, number, last int) map[string]any {
	pages := map[string]string{}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	link := func(n int) string {
		query := r.URL.Query()
		query.Set("page", strconv.Itoa(n))
		target := url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path, RawQuery: query.Encode()}
		return target.String()
	}
	if number > 1 {
		pages["first"], pages["prev"] = link(1), link(number-1)
	}
	if number < last {
		pages["next"], pages["last"] = link(number+1), link(last)
	}
	if len(pages) == 0 {
		return map[string]any{}
	}
	return map[string]any{"pages": pages}
}
