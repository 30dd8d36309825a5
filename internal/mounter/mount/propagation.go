package mount

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// mountedInContainers are the folders, from the kubelet's own on, that a container may have mounted from the node.
var mountedInContainers = []string{".", "pods", "plugins/kubernetes.io/csi"}

// CheckPropagation refuses a kubelet folder from which mounts do not propagate to kubelet: one that is a mount point here, as in a
// container, and not shared. A folder that is not a mount point is in the same mount namespace as kubelet.
func CheckPropagation(mountTable, kubeletDir string) error {
	table, err := host.Mounts(mountTable)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(kubeletDir); err == nil { // one that does not exist has no mounts
		kubeletDir = real
	}
	var mistakes []error
	for _, folder := range mountedInContainers {
		path := filepath.Join(kubeletDir, folder)
		above := slices.DeleteFunc(slices.Clone(table), func(m *mountinfo.Info) bool { return m.Mountpoint != path })
		if n := len(above); n > 0 && !isShared(above[n-1]) {
			mistakes = append(mistakes, fmt.Errorf("%s is mounted here without mountPropagation: Bidirectional, so the kubelet sees no volume: %w",
				path, fault.Precondition))
		}
	}
	return errors.Join(mistakes...)
}

func isShared(m *mountinfo.Info) bool {
	return slices.ContainsFunc(strings.Fields(m.Optional), func(field string) bool { return strings.HasPrefix(field, "shared:") })
}
