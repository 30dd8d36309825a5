//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// regrowth is how soon a growth that was refused is there when its reason has gone: the resizer repeats it at
// most a minute later.
const regrowth = 3 * time.Minute

// setRules changes what the cloud allows.
func (a account) setRules(ctx context.Context, rules map[string]any) error {
	body, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return err
	}
	_, err = a.send(ctx, http.MethodPatch, "settings", body)
	return err
}

// under runs something while a rule of the account has a value. before is its value afterwards.
func (s *story) under(ctx context.Context, rule string, value, before any, run func() error) error {
	a, is := s.env.store.(account)
	if !is {
		return errors.New("there is no account that could refuse anything")
	}
	if err := a.setRules(ctx, map[string]any{rule: value}); err != nil {
		return err
	}
	err := run()
	return errors.Join(err, a.setRules(context.WithoutCancel(ctx), map[string]any{rule: before}))
}

// refusedInUse: the cloud refuses to let a volume grow that a pod uses. The user reads what to do and the pod
// runs on. Scaled to zero the volume grows, and its next pod has the size.
func refusedInUse(file string) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		return s.under(ctx, "resize_refused", true, false, func() error {
			p, err := s.ready(ctx, file)
			if err != nil {
				return err
			}
			claim, size, err := s.growsLater(ctx, p, "scale the workload to zero")
			if err != nil {
				return err
			}
			detached := time.Now()
			if err := s.untilGrown(ctx, claim, size); err != nil {
				return err
			}
			s.Log("%s: the volume has grown %.0f s after the detach", file, time.Since(detached).Seconds())
			return s.grown(ctx, file, size)
		})
	}
}

// lowered: a quota refuses a claim's growth. The user reads why, asks for less, and gets that when there is
// room for it, and not what was asked for first.
func lowered(file string) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		p, err := s.ready(ctx, file)
		if err != nil {
			return err
		}
		if err := s.away(ctx, p); err != nil {
			return err
		}
		claim, _, _ := p.Claimed()
		before, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
		if err != nil {
			return err
		}
		size := before.Bytes() + s.env.whole
		err = s.under(ctx, "capacity_limit", 1, 0, func() error {
			if err := s.grow(ctx, claim, size+s.env.whole); err != nil {
				return err
			}
			if err := s.untilTold(ctx, p, claim, "ControllerResizeInfeasible"); err != nil {
				return err
			}
			return s.grow(ctx, claim, size)
		})
		if err != nil {
			return err
		}
		if err := s.untilGrown(ctx, claim, size); err != nil {
			return err
		}
		return s.grown(ctx, file, size)
	}
}

// untilGrown waits until a volume that is attached nowhere has grown, to exactly this size.
func (s *story) untilGrown(ctx context.Context, claim string, size int64) error {
	return s.Until(ctx, "the volume of claim "+claim+" has grown", regrowth, func(ctx context.Context) (bool, string, error) {
		c, v, err := s.bound(ctx, claim)
		if err != nil {
			return false, "", err
		}
		got, err := kube.Bytes(v.Spec.Capacity["storage"])
		if err == nil && got > size {
			err = fmt.Errorf("the volume has %d bytes, want %d", got, size)
		}
		return got == size, c.State(), err
	})
}
