package node

import (
	"context"
	"fmt"
	"regexp"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// targetOfPod are the target paths of the kubelet, for a filesystem and for a raw block volume. Both have the UID of the pod. It is not
// taken from the volume context, which has it only where the CSIDriver object has podInfoOnMount.
var targetOfPod = regexp.MustCompile(`/pods/([A-Za-z0-9-]+)/volumes/kubernetes\.io~csi/[^/]+/mount$|` +
	`/plugins/kubernetes\.io/csi/volumeDevices/publish/[^/]+/([A-Za-z0-9-]+)$`)

// podOf returns the UID of the pod that a target path is of; "" for a path that is not the kubelet's.
func podOf(target string) string {
	found := targetOfPod.FindStringSubmatch(target)
	if found == nil {
		return ""
	}
	return found[1] + found[2]
}

// CheckIOLimits proves that limits of I/O can be set in the cgroups that are mounted at dir; fault.NoIOLimits if not.
func CheckIOLimits(dir string) error { return host.Cgroups(dir).Check() }

// limit sets the limits of the volume's class for the pod of the target path, on the device that the pod will use: the disk, or the
// encrypted mapping on it. Limits that cannot be set are fault.NoIOLimits.
func (s *Server) limit(ctx context.Context, u use, target string, number uint64) error {
	if u.context.Limits == (driver.IOLimits{}) {
		return nil
	}
	if s.cgroups == "" {
		return fmt.Errorf("the class of the volume limits I/O, and this node program does not (component io-limits, --cgroup-dir): %w", fault.NoIOLimits)
	}
	if err := s.cgroups.Check(); err != nil {
		return err
	}
	pod := podOf(target)
	if pod == "" {
		return fmt.Errorf("the class of the volume limits the I/O of pods, and the target path names none: %w", fault.NoIOLimits)
	}
	dir, err := s.cgroups.Pod(ctx, pod)
	if err != nil {
		return err
	}
	return s.cgroups.Limit(dir, number, host.IOMax(u.context.Limits))
}

// unlimit removes the limits of the pod of a target path for what is mounted there; number is the volume's disk, 0 if it is not known. The
// pod's containers have ended, and under the limits the write-back of what they wrote could take longer than the call; and the device's
// number may be another volume's next. An error does not stop the unpublish, because the limits end with the pod's cgroup.
func (s *Server) unlimit(ctx context.Context, table *mount.Table, target string, number uint64) {
	pod := podOf(target)
	if s.cgroups == "" || pod == "" {
		return
	}
	at, err := table.At(target, number)
	if err == nil && (at.Use == mount.Ours || at.Use == mount.Dead || at.Block) {
		err = s.cgroups.Unlimit(pod, at.Mount.Device)
	}
	if err != nil {
		driver.LogOf(ctx).Warn("limits of I/O stay until the pod's cgroup is removed", zap.Error(err))
	}
}
