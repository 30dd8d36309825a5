//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// growsBehind: a volume is asked to grow while the pod of an example uses it. The disk grows in the cloud at
// once, the user is told what the machine waits for, the pod runs on, and after a real detach its next run
// has the new size.
func growsBehind(file string) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		p, err := s.run(ctx, file)
		if err != nil {
			return err
		}
		_, size, err := s.growsLater(ctx, p, "VolumeAttachment")
		if err != nil {
			return err
		}
		return s.grown(ctx, file, size)
	}
}

// growsLater asks for a growth that has to wait until a pod has gone. The user reads a word of why, the claim keeps its size and
// the pod runs on. Then it ends.
func (s *story) growsLater(ctx context.Context, p kube.Pod, word string) (claim string, size int64, err error) {
	if err = s.write(ctx, p); err != nil {
		return "", 0, err
	}
	if claim, size, err = s.growClaim(ctx, p); err != nil {
		return claim, size, err
	}
	if err := s.untilTold(ctx, p, claim, word); err != nil {
		return claim, size, err
	}
	if err := s.wantSamePod(ctx, p); err != nil {
		return claim, size, err
	}
	now, err := s.claimOf(ctx, p)
	if err != nil {
		return claim, size, err
	}
	s.Log("pod running: %s", now.Stage())
	if now.Bytes() >= size {
		return claim, size, fmt.Errorf("the claim says that it has %d bytes, and the growth was told to wait: %s", now.Bytes(), word)
	}
	return claim, size, s.away(ctx, p)
}

// growsFree: a volume that is attached nowhere grows, and its next pod has the new size.
func growsFree(file string) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		p, err := s.ready(ctx, file)
		if err != nil {
			return err
		}
		if err := s.away(ctx, p); err != nil {
			return err
		}
		claim, size, err := s.growClaim(ctx, p)
		if err != nil {
			return err
		}
		err = s.Until(ctx, "the disk of claim "+claim+" has grown", patience, func(ctx context.Context) (bool, string, error) {
			c, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
			pending := slices.ContainsFunc(c.Status.Conditions, func(c kube.Condition) bool { return c.Type == "FileSystemResizePending" })
			return pending || c.Bytes() >= size, c.State(), err
		})
		if err != nil {
			return err
		}
		now, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
		if err != nil {
			return err
		}
		s.Log("no pod: %s", now.Stage())
		return s.grown(ctx, file, size)
	}
}

// growClaim asks for one step more than a pod's claim has.
func (s *story) growClaim(ctx context.Context, p kube.Pod) (claim string, size int64, err error) {
	claim, _, _ = p.Claimed()
	c, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
	if err != nil {
		return claim, 0, err
	}
	size = c.Bytes() + s.env.whole
	s.follow(claim)
	return claim, size, s.grow(ctx, claim, size)
}

// untilTold waits until an event or a condition has a word about a pod or its claim.
func (s *story) untilTold(ctx context.Context, p kube.Pod, claim, word string) error {
	return s.Until(ctx, "a word of the driver about "+word, patience, func(ctx context.Context) (bool, string, error) {
		c, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
		if err != nil {
			return false, "", err
		}
		events, err := kube.List[kube.Event](ctx, s.Client, "events")
		words := c.State()
		for _, e := range events {
			if e.InvolvedObject.Name == p.Metadata.Name || e.InvolvedObject.Name == claim {
				words += "; " + e.Reason + ": " + e.Message
			}
		}
		if err == nil && !strings.Contains(words, word) && strings.Contains(words, "NodeExpand failed to check if node supports expansion") {
			words, err = s.nodeLogs(ctx, c.Spec.VolumeName)
		}
		return strings.Contains(words, word), words, err
	})
}

// nodeLogs are the lines of the node program about a volume. The kubelet writes the first error of a growth into the
// claim. When the driver's pod was away then, this is that no driver answers, and of the FailedPrecondition that follows
// the kubelet shows nothing but in its own log (Kubernetes 1.36, "Waiting for volume to be expandable on the node").
func (s *story) nodeLogs(ctx context.Context, volume string) (string, error) {
	pv, err := kube.Get[kube.Volume](ctx, s.Client, "pv", volume)
	if err != nil || pv.Spec.CSI == nil {
		return "", err
	}
	text, err := s.env.driver.Run(ctx, "logs", "--selector=app.kubernetes.io/name=cloudblock-node", "--container=node", "--tail=-1")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return !strings.Contains(line, `"volume_id":"`+pv.Spec.CSI.VolumeHandle+`"`)
	})
	return strings.Join(lines, "\n"), err
}

// away ends a pod and waits until its volume is attached nowhere.
func (s *story) away(ctx context.Context, p kube.Pod) error {
	claim, err := s.claimOf(ctx, p)
	if err != nil {
		return err
	}
	if err := s.end(ctx, p.Metadata.Name); err != nil {
		return err
	}
	volume := claim.Spec.VolumeName
	return s.Until(ctx, "volume "+volume+" is detached", patience, func(ctx context.Context) (bool, string, error) {
		all, err := kube.List[kube.Attachment](ctx, s.Client, "volumeattachments")
		held := slices.ContainsFunc(all, func(a kube.Attachment) bool { return a.Spec.Source.PersistentVolumeName == volume })
		return !held, "it has a VolumeAttachment", err
	})
}

// grown runs the pod of an example again: its claim says the new size, the pod has it, and its data is there.
func (s *story) grown(ctx context.Context, file string, size int64) error {
	raw, name, err := s.podOf(ctx, file)
	if err != nil {
		return err
	}
	if err := s.Create(ctx, raw); err != nil {
		return err
	}
	p, err := s.UntilReady(ctx, name, patience)
	if err != nil {
		return err
	}
	return s.wantGrown(ctx, p, size)
}

// wantGrown waits until the claim of a pod has a size and nothing more to wait for, and checks that the pod
// has that size, and its data.
func (s *story) wantGrown(ctx context.Context, p kube.Pod, size int64) error {
	claim, _, _ := p.Claimed()
	if err := s.UntilSize(ctx, claim, size, patience); err != nil {
		return err
	}
	now, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
	if err != nil {
		return err
	}
	s.Log("%s has grown: %s", p.Metadata.Name, now.Stage())
	if now.Waits() {
		return fmt.Errorf("claim %s has grown and still waits for something: %s", claim, now.State())
	}
	if err := s.wantSize(ctx, p, size); err != nil {
		return err
	}
	return s.wantData(ctx, p, s.sums[p.Metadata.Name])
}

// wantSize checks that a pod has a volume of a size, be it a filesystem or a device.
func (s *story) wantSize(ctx context.Context, p kube.Pod, size int64) error {
	if _, path, raw := p.Claimed(); raw {
		return s.wantDevice(ctx, p, path, size)
	}
	return s.wantFilesystem(ctx, p, size)
}

// wantDevice checks the size of a pod's raw device by what can be read of its end.
func (s *story) wantDevice(ctx context.Context, p kube.Pod, path string, size int64) error {
	script := fmt.Sprintf("dd if=%s bs=1M skip=%d count=2 2>/dev/null | wc -c", path, size/mib-1)
	text, err := s.Exec(ctx, p.Metadata.Name, "", script)
	if err == nil && strings.TrimSpace(text) != fmt.Sprint(mib) {
		err = fmt.Errorf("from 1 MiB before the end of a device of %d bytes pod %s reads %s bytes", size, p.Metadata.Name, strings.TrimSpace(text))
	}
	return err
}
