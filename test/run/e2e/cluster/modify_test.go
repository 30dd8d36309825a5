//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// modified: the class of attributes of a claim in use puts tags on its volume in the cloud, and another class replaces them.
func (s *story) modified(ctx context.Context) (err error) {
	a, is := s.env.store.(account)
	if !is {
		return errors.New("there is no account whose volumes could have tags")
	}
	p, err := s.ready(ctx, "pod.yaml")
	if err != nil {
		return err
	}
	name, _, _ := p.Claimed()
	for _, team := range []string{"shop", "stock"} {
		class := s.Namespace + "-" + team // of the whole cluster
		defer func() { err = errors.Join(err, s.withoutAttributes(ctx, class)) }()
		if err := s.attributes(ctx, name, class, "tags", "team="+team); err != nil {
			return err
		}
		if err := s.untilModified(ctx, a, name, class, team); err != nil {
			return err
		}
	}
	return s.wantSamePod(ctx, p)
}

// attributes creates a class of attributes with one parameter and gives it to a claim.
func (s *story) attributes(ctx context.Context, claim, class, parameter, value string) error {
	if err := s.Create(ctx, map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": map[string]any{"name": class},
		"driverName": s.env.place.driver, "parameters": map[string]string{parameter: value},
	}); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, class)
	_, err := s.Run(ctx, "patch", "pvc", claim, "--type", "merge", "--patch", patch)
	return err
}

// withoutAttributes deletes such a class, which goes with the last claim.
func (s *story) withoutAttributes(ctx context.Context, class string) error {
	return s.Delete(context.WithoutCancel(ctx), "volumeattributesclass", class)
}

// untilModified waits until a claim has a class of attributes and its volume the tag.
func (s *story) untilModified(ctx context.Context, a account, name, class, team string) error {
	return s.Until(ctx, "claim "+name+" has the attributes "+class, patience, func(ctx context.Context) (bool, string, error) {
		claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
		if err != nil {
			return false, "", err
		}
		disks, err := read[[]disk](ctx, a, a.kinds[0])
		if err != nil {
			return false, "", err
		}
		at := slices.IndexFunc(disks, func(d disk) bool { return d.name() == claim.Spec.VolumeName })
		if at < 0 {
			return false, "", fmt.Errorf("the account has no volume %s", claim.Spec.VolumeName)
		}
		tagged := disks[at].Labels["team"] == team || slices.Contains(disks[at].Tags, "team:"+team)
		state := fmt.Sprintf("class %q, tags %q, labels %v", claim.Status.CurrentVolumeAttributesClassName, disks[at].Tags, disks[at].Labels)
		return tagged && claim.Status.CurrentVolumeAttributesClassName == class, state, nil
	})
}
