package digitalocean

import (
	"encoding/json"
	"net/http"
	"slices"
)

type tagged struct {
	Resources []struct {
		ID   string `json:"resource_id"`
		Type string `json:"resource_type"`
	} `json:"resources"`
}

func (c *Cloud) showTag(name string) map[string]any {
	volumes := len(c.now.volumeList(func(v volume) bool { return slices.Contains(v.Tags, name) }))
	snapshots := len(c.now.snapshotList(func(s snapshot) bool { return slices.Contains(s.Tags, name) }))
	return map[string]any{"name": name, "resources": map[string]any{
		"count": volumes + snapshots, "volumes": map[string]int{"count": volumes},
		"volume_snapshots": map[string]int{"count": snapshots},
	}}
}

func (c *Cloud) createTag(r *request) answer {
	var ask struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return refuse(badRequestBody, r.ID)
	}
	if !tagName.MatchString(ask.Name) {
		return refuse(badTag, r.ID)
	}
	c.now.tags[ask.Name] = true
	return reply(http.StatusCreated, map[string]any{"tag": c.showTag(ask.Name)}, r.ID)
}

func (c *Cloud) tagResources(r *request) answer {
	return c.retag(r, func(tags []string, name string) []string { return append(without(tags, name), name) })
}

func (c *Cloud) untagResources(r *request) answer { return c.retag(r, without) }

// retag changes the tags of the named volumes, all of them or none.
func (c *Cloud) retag(r *request, change func(tags []string, name string) []string) answer {
	name := r.PathValue("tag_id")
	var ask tagged
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return refuse(badRequestBody, r.ID)
	}
	if len(ask.Resources) > 0 && !c.may(scopeUpdateVolume) {
		return refuse(unscoped, r.ID)
	}
	if !c.now.tags[name] {
		return refuse(notFound, r.ID)
	}
	for _, resource := range ask.Resources {
		if _, found := c.now.volumes[resource.ID]; !found || resource.Type != "volume" {
			return refuse(notFound, r.ID)
		}
	}
	for _, resource := range ask.Resources {
		v := c.now.volumes[resource.ID]
		v.Tags = change(v.Tags, name)
		c.putVolume(v)
	}
	return reply(http.StatusNoContent, nil, r.ID)
}

// without returns a copy of the tags that lacks one.
func without(tags []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return tag == name })
}
