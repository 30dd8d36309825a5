package kube

import (
	"context"
	"slices"
	"time"
)

// DeleteEvery deletes, again and again, the oldest of the pods that a selector names, with time to end.
// It returns how many it deleted when ctx ends. A look that did not work is one time left out.
func (c Client) DeleteEvery(ctx context.Context, selector string, pause time.Duration) int {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for deleted := 0; ; {
		select {
		case <-ctx.Done():
			return deleted
		case <-tick.C:
		}
		pods, err := List[Pod](ctx, c, "pods", "--selector", selector)
		if err != nil {
			c.Log("the oldest of %s stays: %v", selector, err)
			continue
		}
		oldest, found := Oldest(pods)
		if !found {
			continue
		}
		if err := c.Delete(ctx, "pod", oldest.Metadata.Name); err != nil {
			c.Log("pod %s stays: %v", oldest.Metadata.Name, err)
			continue
		}
		deleted++
	}
}

// Oldest returns the pod that was made first and is to stay.
func Oldest(pods []Pod) (Pod, bool) {
	staying := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Metadata.DeletionTimestamp != nil })
	if len(staying) == 0 {
		return Pod{}, false
	}
	return slices.MinFunc(staying, func(a, b Pod) int {
		return a.Metadata.CreationTimestamp.Compare(b.Metadata.CreationTimestamp)
	}), true
}
