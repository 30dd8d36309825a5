//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

const (
	// crowd is how many claims with pods are made at once. A kubelet takes 110 pods, those of the system included.
	crowd = 100
	// crowdPatience is how long all of them may take on a machine with two cores, where each pod costs a sandbox,
	// a mkfs and two starts of a container.
	crowdPatience = 20 * time.Minute
)

// TestCrowd makes a hundred claims with pods at once, kills the driver's pods by force while they start, and
// deletes all of them at once. Each pod finds its own data after the driver's pods are back.
func TestCrowd(t *testing.T) {
	s := begin(t, "crowd")
	ctx := t.Context()
	start := time.Now()
	var all []any
	for n := range crowd {
		all = append(all, member(n, s.env.classes["ext4"])...)
	}
	must(t, s.Create(ctx, list(all...)))
	t.Logf("%d claims and pods created after %.0f s", crowd, time.Since(start).Seconds())
	must(t, s.untilRunning(ctx, crowd/2))
	t.Logf("half of the pods run after %.0f s; the driver's pods are killed now", time.Since(start).Seconds())
	enemy := saboteur{driver: s.env.driver, force: true}
	must(t, enemy.strike(ctx, 0))
	must(t, s.untilRunning(ctx, crowd))
	t.Logf("all %d pods run after %.0f s", crowd, time.Since(start).Seconds())
	must(t, s.wantOwnNames(ctx))
	start = time.Now()
	must(t, errors.Join(s.Delete(ctx, "pods", "--all"), s.Delete(ctx, "pvc", "--all")))
	err := s.Until(ctx, "all volumes are gone", crowdPatience, func(ctx context.Context) (bool, string, error) {
		left, err := s.env.objectsOf(ctx, s.Namespace)
		return len(left) == 0, fmt.Sprintf("%d objects left", len(left)), err
	})
	must(t, err)
	t.Logf("all of them deleted after %.0f s", time.Since(start).Seconds())
	if err := s.env.nothingLeft(ctx); err != nil {
		t.Error(err)
	}
}

// member returns a claim and a pod that writes its own name to the volume, once.
func member(n int, class string) []any {
	name := fmt.Sprintf("member-%03d", n)
	return []any{claimWith(name, class), podWith(name, `[ -e /data/name ] || { echo "$HOSTNAME" >/data/name && sync; }`)}
}

// untilRunning waits until at least this many pods are ready.
func (s *story) untilRunning(ctx context.Context, want int) error {
	what := fmt.Sprintf("%d of %d pods run", want, crowd)
	return s.Until(ctx, what, crowdPatience, func(ctx context.Context) (bool, string, error) {
		pods, err := kube.List[kube.Pod](ctx, s.Client, "pods")
		ready, state := 0, ""
		for _, p := range pods {
			if p.Ready() {
				ready++
			} else {
				state = p.Metadata.Name + " " + p.State()
			}
		}
		return ready >= want, fmt.Sprintf("%d; %s", ready, state), err
	})
}

// wantOwnNames checks that each pod has the volume that it wrote to.
func (s *story) wantOwnNames(ctx context.Context) error {
	var errs []error
	for n := range crowd {
		name := fmt.Sprintf("member-%03d", n)
		text, err := s.Exec(ctx, name, "", "cat /data/name")
		if err == nil && strings.TrimSpace(text) != name {
			err = fmt.Errorf("the volume of pod %s has the name %q", name, text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
