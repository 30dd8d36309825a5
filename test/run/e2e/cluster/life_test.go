//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

func (s *story) claimAndPod(ctx context.Context) error {
	if _, err := s.apply(ctx, "pvc.yaml"); err != nil {
		return err
	}
	p, err := s.run(ctx, "pod.yaml")
	if err != nil {
		return err
	}
	s.at = p.Spec.NodeName
	if err := s.write(ctx, p); err != nil {
		return err
	}
	return s.wantFull(ctx, p)
}

func (s *story) podRestarts(ctx context.Context) error {
	p, err := s.again(ctx, "pod.yaml")
	if err != nil {
		return err
	}
	return s.wantData(ctx, p, s.sums[p.Metadata.Name])
}

// growsOnline: a volume grows while the pod of an example uses it.
func growsOnline(file string) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		p, err := s.run(ctx, file)
		if err != nil {
			return err
		}
		if err := s.write(ctx, p); err != nil {
			return err
		}
		claim, err := s.claimOf(ctx, p)
		if err != nil {
			return err
		}
		size := claim.Bytes() + s.env.round(512*mib)
		s.follow(claim.Metadata.Name)
		if err := s.grow(ctx, claim.Metadata.Name, size); err != nil {
			return err
		}
		if err := s.wantGrown(ctx, p, size); err != nil {
			return err
		}
		return s.wantSamePod(ctx, p)
	}
}

// follow shows from now on how far a claim's growth is, each time that it is at another stage, until the
// step ends; the messages of its conditions with the first of each.
func (s *story) follow(claim string) {
	ctx, stop := context.WithCancel(s.t.Context())
	client, log, begin := s.Client, s.Log, time.Now()
	var watch sync.WaitGroup
	watch.Go(func() {
		last, told := "", map[string]bool{}
		err := kube.Watch(ctx, client, "pvc", claim, func(c kube.Claim) {
			now := c.Stage()
			if now != last {
				log("claim %s after %.1f s: %s", claim, time.Since(begin).Seconds(), now)
			}
			last = now
			for _, cond := range c.Status.Conditions {
				if cond.Message != "" && !told[cond.Type] {
					log("claim %s, %s: %s", claim, cond.Type, cond.Message)
					told[cond.Type] = true
				}
			}
		})
		if ctx.Err() == nil {
			log("nobody tells any more how far claim %s is: %v", claim, err)
		}
	})
	s.t.Cleanup(func() {
		stop()
		watch.Wait()
	})
}

// wantSamePod checks that a pod has been running all the time.
func (s *story) wantSamePod(ctx context.Context, p kube.Pod) error {
	now, err := kube.Get[kube.Pod](ctx, s.Client, "pod", p.Metadata.Name)
	if err != nil {
		return err
	}
	if now.Metadata.UID != p.Metadata.UID || now.Restarts() != p.Restarts() || !now.Ready() {
		return fmt.Errorf("pod %s did not keep running: %s, %d restarts", p.Metadata.Name, now.State(), now.Restarts())
	}
	return nil
}

// whereExt4Grows leaves a step out where the kernel does not let this root grow a mounted ext4, which the node program
// needs, as a container of this machine.
func whereExt4Grows(run func(*story, context.Context) error) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		able, err := kube.MountedExt4Grows()
		if err != nil {
			return err
		}
		if !able {
			s.Log("left out: this machine's root lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4")
			return nil
		}
		return run(s, ctx)
	}
}

// growExt4 grows the first claim while its pod runs.
func (s *story) growExt4(ctx context.Context) error {
	p, err := s.again(ctx, "pod.yaml")
	if err != nil {
		return err
	}
	claim, err := s.claimOf(ctx, p)
	if err != nil {
		return err
	}
	name, size := claim.Metadata.Name, claim.Bytes()+s.env.round(256*mib)
	s.follow(name)
	if err := s.grow(ctx, name, size); err != nil {
		return err
	}
	if err := s.UntilSize(ctx, name, size, patience); err != nil {
		return err
	}
	if err := s.wantSamePod(ctx, p); err != nil {
		return err
	}
	if p, err = s.again(ctx, "pod.yaml"); err != nil {
		return err
	}
	if err := s.UntilSize(ctx, name, size, patience); err != nil {
		return err
	}
	if err := s.wantFilesystem(ctx, p, size); err != nil {
		return err
	}
	return s.wantData(ctx, p, s.sums[p.Metadata.Name])
}

// life creates a volume of a claim and a pod of a name, grows it, and deletes it.
func (s *story) life(ctx context.Context, name string) error {
	p, err := s.filled(ctx, claimOptions{name: name, class: s.env.classes["xfs"], size: s.env.round(512 * mib)}, "")
	if err != nil {
		return err
	}
	if err := s.growWith(ctx, p); err != nil {
		return err
	}
	return s.remove(ctx, name)
}

// growWith grows the volume of a pod of the tests' own. Where a machine sees that only at the next attach, the pod is replaced.
func (s *story) growWith(ctx context.Context, p kube.Pod) error {
	claim, err := s.claimOf(ctx, p)
	if err != nil {
		return err
	}
	name, size := claim.Metadata.Name, claim.Bytes()+s.env.round(512*mib)
	if err := s.grow(ctx, name, size); err != nil {
		return err
	}
	if s.env.growsAtAttach {
		if err := s.untilTold(ctx, p, name, "VolumeAttachment"); err != nil {
			return err
		}
		if err := s.away(ctx, p); err != nil {
			return err
		}
		if err := s.Create(ctx, newPod(p.Metadata.Name, name, "")); err != nil {
			return err
		}
		if p, err = s.UntilReady(ctx, p.Metadata.Name, patience); err != nil {
			return err
		}
	}
	return s.wantGrown(ctx, p, size)
}
