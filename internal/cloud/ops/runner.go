package ops

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Config configures a Runner. All fields but Tracker may be zero.
type Config struct {
	Tracker Tracker
	// Timeout is the time limit of calls without a deadline, and of following a change whose caller has gone. 0 means 5 minutes.
	Timeout time.Duration
	// Capacity is how many operations the cloud runs at a time for the account; 0: no limit. Further changes wait, ordered by
	// priority. A fifth is kept for detaches and attaches.
	Capacity int
	// Tick is the minimum time between two reads. 0 means half a second.
	Tick time.Duration
	// Busy has the pauses while the cloud refuses a change because of another one. Zero means half a second to 3 seconds.
	Busy wait.Backoff
	// Rand returns numbers in [0, 1) for jitter; nil means math/rand/v2.
	Rand func() float64
	// Metrics may be nil.
	Metrics *Metrics
}

// Runner runs the changes of one account.
type Runner struct {
	cfg    Config
	lister Lister // the Tracker; nil: it has no lists
	queue  *queue
	poller *poller
	calls  atomic.Int64 // that wait in Run

	life    context.Context
	die     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	inflight map[string]any // by object
}

// New returns a Runner that works until ctx ends or Close is called.
func New(ctx context.Context, cfg Config) *Runner {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Minute
	}
	if cfg.Tick <= 0 {
		cfg.Tick = 500 * time.Millisecond
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Busy.First == 0 {
		cfg.Busy = wait.Backoff{First: 500 * time.Millisecond, Max: 3 * time.Second}
	}
	cfg.Busy.Rand = cfg.Rand
	r := &Runner{cfg: cfg, queue: &queue{metrics: cfg.Metrics, capacity: cfg.Capacity, held: map[string]bool{}}, inflight: map[string]any{}}
	r.lister, _ = cfg.Tracker.(Lister)
	r.life, r.die = context.WithCancel(ctx)
	r.poller = newPoller(r)
	return r
}

// Life returns the context that ends with the Runner.
func (r *Runner) Life() context.Context { return r.life }

// Every calls a function in the background at an interval, first after one. Its errors and panics go to report.
func (r *Runner) Every(interval time.Duration, do func(ctx context.Context) error, report func(error)) {
	r.spawn(func() {
		for wait.Sleep(r.life, interval) == nil {
			if err := Guard(func() error { return do(r.life) }); err != nil && r.life.Err() == nil {
				report(err)
			}
		}
	})
}

// Temporary sets the metric of how many temporary snapshots or copies of clones a sweep has left.
func (r *Runner) Temporary(n int) {
	if r.cfg.Metrics != nil {
		r.cfg.Metrics.temporary.Set(float64(n))
	}
}

// Close ends all work, and waits for it as long as ctx lasts.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.die()
	r.poller.close()
	idle := make(chan struct{})
	go func() {
		r.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("requests to the cloud are still under way: %w", ctx.Err())
	}
}

// spawn runs a function in a goroutine for which Close waits. It returns false after Close.
func (r *Runner) spawn(do func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Go(do)
	return true
}

// Guard returns what do returns. If do panics, as an SDK may on an unexpected answer, Guard returns an error, and the outcome of a request
// is unknown. The error has the value only if it is an error or a string, because any other value may contain the request.
func Guard(do func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error, string:
			err = fmt.Errorf("%w: the answer could not be understood: %v", fault.Uncertain, p)
		default:
			err = fmt.Errorf("%w: the answer could not be understood: a panic of type %T", fault.Uncertain, p)
		}
	}()
	return do()
}

// Bounded returns a context with the Runner's timeout if the call has no deadline.
func (r *Runner) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.cfg.Timeout)
}

func (r *Runner) underWay(object string) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inflight[object]
}

func (r *Runner) begin(object string, f any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inflight[object] = f
}

func (r *Runner) end(object string, f any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inflight[object] == f {
		delete(r.inflight, object)
	}
}
