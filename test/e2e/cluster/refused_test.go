//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/e2e/cluster/kube"
)

// growMark is the label by which a disk waits for its growth.
const growMark = "cloudblock-grow"

// refuseGrowth makes the cloud refuse to let attached disks grow, or lets it grow them again.
func (a account) refuseGrowth(ctx context.Context, refuse bool) error {
	body := fmt.Sprintf(`{"rules":{"resize_refused":%t}}`, refuse)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, a.url+"settings", strings.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("PATCH %s: %s", req.URL, answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// refusing runs a step while the cloud refuses to let attached disks grow.
func refusing(run func(*story, context.Context) error) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		a, is := s.env.store.(account)
		if !is {
			return errors.New("there is no account that could refuse anything")
		}
		if err := a.refuseGrowth(ctx, true); err != nil {
			return err
		}
		err := run(s, ctx)
		return errors.Join(err, a.refuseGrowth(context.WithoutCancel(ctx), false))
	}
}

// waiting is a volume that is to grow once it is detached.
type waiting struct {
	file   string
	pod    kube.Pod
	handle string
	size   int64
}

// growsAfterDetach: the cloud refuses to let volumes grow that pods use. The users are told what to do, the
// pods run on, and the wishes wait on the disks. One volume of each kind is then detached: two are left alone
// until they have grown, the third one's next pod is there at once, on the other node.
func (s *story) growsAfterDetach(ctx context.Context) error {
	var all []waiting
	for _, file := range []string{"xfs.yaml", "block.yaml", "pod.yaml"} {
		w, err := s.refused(ctx, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, w)
	}
	orders := []func(context.Context, waiting) error{s.alone, s.alone, s.followed}
	problems := make([]error, len(all))
	var together sync.WaitGroup
	for i, w := range all {
		together.Go(func() {
			if err := orders[i](ctx, w); err != nil {
				problems[i] = fmt.Errorf("%s: %w", w.file, err)
			}
		})
	}
	together.Wait()
	return errors.Join(problems...)
}

// refused asks for growth that the cloud refuses.
func (s *story) refused(ctx context.Context, file string) (waiting, error) {
	w := waiting{file: file}
	var err error
	if w.pod, err = s.ready(ctx, file); err != nil {
		return w, err
	}
	if err := s.write(ctx, w.pod); err != nil {
		return w, err
	}
	var claim string
	if claim, w.size, err = s.growClaim(ctx, w.pod); err != nil {
		return w, err
	}
	if err := s.untilTold(ctx, w.pod, claim, "scale the workload to zero, wait until the VolumeAttachment is gone"); err != nil {
		return w, err
	}
	now, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
	if err != nil {
		return w, err
	}
	if now.Bytes() >= w.size {
		return w, fmt.Errorf("the claim says that it has %d bytes, and the cloud does not let it grow", now.Bytes())
	}
	volume, err := kube.Get[kube.Volume](ctx, s.Client, "pv", now.Spec.VolumeName)
	if err != nil {
		return w, err
	}
	w.handle = volume.Spec.CSI.VolumeHandle
	d, err := s.diskOf(ctx, w)
	if err != nil {
		return w, err
	}
	if d.Size != now.Bytes() || d.Labels[growMark] != strconv.FormatInt(w.size, 10) {
		return w, fmt.Errorf("the disk has %d bytes and the mark %q, want %d and %d", d.Size, d.Labels[growMark], now.Bytes(), w.size)
	}
	return w, s.wantSamePod(ctx, w.pod)
}

// emulatedDisk is what the account's owner sees of a disk's growth.
type emulatedDisk struct {
	ID, Instance string
	Size         int64
	Labels       map[string]string
}

// diskOf reads the disk of a volume that waits.
func (s *story) diskOf(ctx context.Context, w waiting) (emulatedDisk, error) {
	a, is := s.env.store.(account)
	if !is {
		return emulatedDisk{}, errors.New("there is no account with disks")
	}
	disks, err := read[[]emulatedDisk](ctx, a, "disks")
	if err != nil {
		return emulatedDisk{}, err
	}
	i := slices.IndexFunc(disks, func(d emulatedDisk) bool { return d.ID == w.handle })
	if i < 0 {
		return emulatedDisk{}, fmt.Errorf("disk %s is not in the account", w.handle)
	}
	return disks[i], nil
}

// alone: the volume grows though no pod asks for it, and its next pod has the size.
func (s *story) alone(ctx context.Context, w waiting) error {
	if err := s.away(ctx, w.pod); err != nil {
		return err
	}
	begin := time.Now()
	err := s.Until(ctx, "the disk of "+w.file+" has grown", patience, func(ctx context.Context) (bool, string, error) {
		d, err := s.diskOf(ctx, w)
		return d.Size == w.size && d.Labels[growMark] == "" && d.Instance == "", fmt.Sprintf("%+v", d), err
	})
	if err != nil {
		return err
	}
	claim, _, _ := w.pod.Claimed()
	now, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
	if err != nil {
		return err
	}
	s.Log("%s: the disk has grown %.1f s after the detach; no pod: %s", w.file, time.Since(begin).Seconds(), now.Stage())
	return s.grown(ctx, w.file, w.size)
}

// followed: the next pod comes at once, on the other node, and has the size as soon as it runs.
func (s *story) followed(ctx context.Context, w waiting) error {
	begin := time.Now()
	p, err := s.move(ctx, w.file, s.env.otherThan(w.pod.Spec.NodeName))
	if err != nil {
		return err
	}
	claim, _, _ := p.Claimed()
	now, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
	if err != nil {
		return err
	}
	s.Log("%s: the next pod runs on %s after %.1f s: %s", w.file, p.Spec.NodeName, time.Since(begin).Seconds(), now.Stage())
	if err := s.wantSize(ctx, p, w.size); err != nil {
		return err
	}
	return s.wantGrown(ctx, p, w.size)
}
