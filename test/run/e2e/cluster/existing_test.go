//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/commands"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// existing keeps a volume when its claim is deleted, and takes it into the cluster again with the PersistentVolume of
// docs/existing-volumes.md.
func (s *story) existing(ctx context.Context) error {
	const name = "existing"
	size := s.env.round(512 * mib)
	p, err := s.filled(ctx, claimOptions{name: name, class: s.env.classes["xfs"], size: size}, "")
	if err != nil {
		return err
	}
	claim, made, err := s.bound(ctx, name)
	if err != nil {
		return err
	}
	zone, err := s.Run(ctx, "get", "pv", claim.Spec.VolumeName, "--output",
		"jsonpath={.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}")
	if err != nil {
		return err
	}
	if err := s.keep(ctx, p, claim.Spec.VolumeName); err != nil {
		return err
	}
	if err := s.takeIn(ctx, made.Spec.CSI.VolumeHandle, zone, size); err != nil {
		return err
	}
	if p, err = s.UntilReady(ctx, name, patience); err != nil {
		return err
	}
	if err := s.wantData(ctx, p, s.sums[name]); err != nil {
		return err
	}
	if err := s.reclaim(ctx, name, "Delete"); err != nil {
		return err
	}
	return s.remove(ctx, name)
}

// keep deletes a pod, its claim and the PersistentVolume, and checks that the volume is still in the cloud.
func (s *story) keep(ctx context.Context, p kube.Pod, volume string) error {
	if err := s.reclaim(ctx, volume, "Retain"); err != nil {
		return err
	}
	before, err := s.stored(ctx)
	if err != nil {
		return err
	}
	if err := s.away(ctx, p); err != nil {
		return err
	}
	name, _, _ := p.Claimed()
	if err := s.Delete(ctx, "pvc", name); err != nil {
		return err
	}
	if err := s.Delete(ctx, "pv", volume); err != nil {
		return err
	}
	if err := s.UntilGone(ctx, "pv", volume, patience); err != nil {
		return err
	}
	after, err := s.stored(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("there are %d volumes and snapshots after a kept PersistentVolume was deleted, want %d as before", after, before)
	}
	return err
}

// stored counts the volumes and snapshots that the cloud has. The driver's pods, which show those of local, may have been
// deleted the moment before.
func (s *story) stored(ctx context.Context) (int, error) {
	var held []thing
	err := s.Until(ctx, "what is stored can be read", patience, func(ctx context.Context) (bool, string, error) {
		var err error
		held, _, err = s.env.store.look(ctx)
		return err == nil, "", err
	})
	return len(held), err
}

// reclaim sets what becomes of a volume whose claim is deleted.
func (s *story) reclaim(ctx context.Context, volume, policy string) error {
	_, err := s.Run(ctx, "patch", "pv", volume, "--type", "merge", "-p", `{"spec":{"persistentVolumeReclaimPolicy":"`+policy+`"}}`)
	return err
}

// takeIn applies the manifest of the document, as this cloud has it, and starts a pod on its claim.
func (s *story) takeIn(ctx context.Context, handle, zone string, size int64) error {
	text, err := os.ReadFile(filepath.Join(repository, "docs/existing-volumes.md"))
	if err != nil {
		return err
	}
	var manifest string
	for _, b := range commands.Blocks(string(text)) {
		if strings.HasPrefix(b, "apiVersion: v1\n") {
			manifest = b
		}
	}
	// A node's name can be all digits.
	quoted, err := json.Marshal(zone)
	if err != nil {
		return err
	}
	manifest = strings.NewReplacer(
		"topology.digitalocean.csi.cloudblock.io/region", s.env.topologyKey,
		"digitalocean.csi.cloudblock.io", s.env.place.driver,
		"cloudblock-digitalocean-xfs", s.env.classes["xfs"],
		"namespace: default", "namespace: "+s.Namespace,
		"VOLUME-ID", handle, "REGION", string(quoted), "10Gi", fmt.Sprint(size),
	).Replace(manifest)
	file := filepath.Join(s.t.TempDir(), "existing.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return err
	}
	if _, err := s.Apply(ctx, file); err != nil {
		return err
	}
	return s.Create(ctx, newPod("existing", "existing", ""))
}
