// Package snapshots makes snapshots that tests need in pools of `local`.
package snapshots

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Add puts a snapshot of a volume that was never written into the pool in dir, for tests on filesystems without reflinks.
func Add(dir string, of pool.ID, name string) (pool.ID, error) {
	volumes, snapshots, id := filepath.Join(dir, "volumes"), filepath.Join(dir, "snapshots"), pool.NewID()
	volume, err := os.Stat(filepath.Join(volumes, of.ImageName()))
	if err != nil {
		return "", err
	}
	record, err := os.ReadFile(filepath.Join(volumes, string(of)+".json"))
	if err != nil {
		return "", err
	}
	var fields map[string]any
	if err := json.Unmarshal(record, &fields); err != nil {
		return "", fmt.Errorf("record of %s: %w", of, err)
	}
	fields["id"], fields["name"], fields["volume"] = id, name, of
	delete(fields, "tags")
	if record, err = json.Marshal(fields); err != nil {
		return "", err
	}
	image := filepath.Join(snapshots, id.ImageName())
	return id, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, volume.Size()),
		os.WriteFile(filepath.Join(snapshots, string(id)+".json"), record, 0o600))
}
