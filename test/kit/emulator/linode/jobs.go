package linode

import (
	"time"
)

// job is an operation that runs on after its answer.
type job struct {
	kind           string
	volume, linode int
	errored        bool // it will fail
	operation      int
	// ends makes the job's change visible.
	ends func(v volume, failed bool)
}

// start begins a job on a volume. Its change is made when it is over, at once if it takes no time.
func (c *Cloud) start(j job, lasts time.Duration) {
	v := c.now.volumes[j.volume]
	j.operation = c.begin(Operation{Kind: j.kind, Volume: v.ID, Label: v.Label, Linode: j.linode})
	c.jobs[j.operation] = &j
	if j.linode != 0 {
		running := 0
		for _, other := range c.jobs {
			if other.linode == j.linode {
				running++
			}
		}
		c.record.Parallel(j.linode, running)
	}
	if lasts == 0 {
		c.finish(&j)
	} else {
		c.later.After(lasts, func() { c.finish(&j) })
	}
}

// finish ends a job with what it does, unless it was ended before.
func (c *Cloud) finish(j *job) {
	if c.jobs[j.operation] != j {
		return
	}
	delete(c.jobs, j.operation)
	status := finished
	if j.errored {
		status = failed
	}
	if v, found := c.now.volumes[j.volume]; found {
		j.ends(v, j.errored)
	}
	c.end(j.operation, status)
}

// cancel ends the jobs for which is says yes, without their change.
func (c *Cloud) cancel(is func(*job) bool) {
	for number, j := range c.jobs {
		if is(j) {
			delete(c.jobs, number)
			c.end(number, canceled)
		}
	}
}

// running reports whether there is a job for which is says yes.
func (c *Cloud) running(is func(*job) bool) bool {
	for _, j := range c.jobs {
		if is(j) {
			return true
		}
	}
	return false
}
