//go:build e2e

package monitoring

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// inUse serves a volume that is written and read until the returned function is called. others shows it as claim c of namespace a.
func (s *site) inUse(t *testing.T) (end func()) {
	t.Helper()
	v, err := s.here.Create(t.Context(), programs.Claim{Name: "busy", Filesystem: "ext4", Size: 64 * mib})
	must(t, err)
	must(t, v.Stage(t.Context()))
	s.others.show(fmt.Sprintf("kube_persistentvolume_info{persistentvolume=\"p\",csi_driver=%q,csi_volume_handle=%q} 1\n", localDriver, v.ID) +
		"kube_persistentvolume_claim_ref{persistentvolume=\"p\",claim_namespace=\"a\",name=\"c\"} 1\n")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- use(ctx, v.Staging) }()
	return func() {
		t.Helper()
		cancel()
		must(t, errors.Join(<-failed, v.Unstage(t.Context()), v.Delete(t.Context())))
	}
}

// use writes and reads a file of a filesystem four times a second, until ctx ends.
func use(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "file")
	for tick := time.NewTicker(250 * time.Millisecond); ; {
		for _, args := range [][]string{
			{"dd", "if=/dev/zero", "of=" + file, "bs=1M", "count=4", "oflag=direct", "conv=fsync"},
			{"dd", "if=" + file, "of=/dev/null", "bs=1M", "iflag=direct"},
			{"rm", file},
		} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:noctx // a half of it would be left
				return fmt.Errorf("%v: %w\n%s", args, err, out)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return nil
		}
	}
}

// checkClaims: the panels of the ten busiest and slowest volumes name the claims.
func checkClaims(t *testing.T, s *site) {
	t.Helper()
	for _, panel := range dashboard(t) {
		if !strings.HasPrefix(panel.Title, "Ten ") {
			continue
		}
		eventually(t, panel.Title+" names the claim", func() bool {
			found := s.over(t, ours(panel.Targets[0].Expr, everyDriver), time.Now().Add(-step), step)
			return slices.ContainsFunc(found, func(l labelled) bool { return l.labels["claim_namespace"] == "a" && l.labels["name"] == "c" })
		})
	}
}
