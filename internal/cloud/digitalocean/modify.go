package digitalocean

import (
	"context"
	"fmt"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ModifyVolume adds tags to a volume and then removes its other tags with the same keys. Each request changes one tag. A repeat completes
// an interrupted call, because the new tags are added first.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, list []cloud.Tag) error {
	doing := fmt.Sprintf("modify volume %.80s", id)
	if !objectID(id) {
		return fmt.Errorf("%s: %w: no volume has such an id", doing, fault.NotFound)
	}
	words, err := tagRule.Given(list)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	vol, err := c.readVolume(ctx, id, budget.Read)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	add, remove := tags.Change(vol.Tags, words)
	for _, word := range add {
		err := c.changeTag(ctx, id, true, word)
		if fault.Of(err) == fault.NotFound { // the account has no such tag yet
			if err = c.createTag(ctx, word); err == nil {
				err = c.changeTag(ctx, id, true, word)
			}
		}
		if err != nil {
			return err
		}
	}
	for _, word := range remove {
		if err := c.changeTag(ctx, id, false, word); err != nil && fault.Of(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// changeTag adds a tag of the account to a volume, or removes it. fault.NotFound if the account does not have the tag.
func (c *Cloud) changeTag(ctx context.Context, id cloud.VolumeID, put bool, word string) error {
	verb := map[bool]string{true: "put", false: "remove"}[put]
	_, err := ops.Run(ctx, c.ops, ops.Op[struct{}]{
		Name: fmt.Sprintf("%s tag %s of volume %s", verb, word, id), Kind: "tag", Object: c.VolumeKey(id), Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (nothing struct{}, operation string, err error) {
			return nothing, "", none(ctx, w, func(ctx context.Context) (*godo.Response, error) {
				resources := []godo.Resource{{ID: string(id), Type: godo.VolumeResourceType}}
				if put {
					return c.sdk.Tags.TagResources(ctx, word, &godo.TagResourcesRequest{Resources: resources})
				}
				return c.sdk.Tags.UntagResources(ctx, word, &godo.UntagResourcesRequest{Resources: resources})
			})
		},
	})
	return err
}

// createTag adds a tag to the account.
func (c *Cloud) createTag(ctx context.Context, word string) error {
	_, err := ops.Run(ctx, c.ops, ops.Op[struct{}]{
		Name: "create tag " + word, Kind: "tag", Object: "tag " + word, Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (nothing struct{}, operation string, err error) {
			_, err = one(ctx, api.Call{Write: w, Has: []string{"tag"}}, func(ctx context.Context) (*godo.Tag, *godo.Response, error) {
				return c.sdk.Tags.Create(ctx, &godo.TagCreateRequest{Name: word})
			})
			return nothing, "", err
		},
	})
	return err
}
