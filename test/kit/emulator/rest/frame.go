package rest

import (
	"context"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// Frame is what the servers of all APIs have: faults, counters, and an end.
type Frame struct {
	Gate
	Recorder
	Faults *faults.Set

	clock *clock.Clock
	ctx   context.Context
	stop  context.CancelFunc
}

// NewFrame returns a frame with no fault armed.
func NewFrame(c *clock.Clock) *Frame {
	f := &Frame{Faults: faults.NewSet(), clock: c}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Stats returns the counters.
func (f *Frame) Stats() Stats {
	stats := f.Recorder.Stats()
	stats.Faults = f.Faults.Hits()
	return stats
}

// ResetStats sets the counters to zero and empties the log.
func (f *Frame) ResetStats() {
	f.Reset()
	f.Faults.ResetHits()
}

// Close ends all delays and waits for the requests that are being answered. Later ones are cut.
func (f *Frame) Close() {
	f.stop()
	f.Gate.Close()
}

// Wait waits for so much emulated time, or until the server closes.
func (f *Frame) Wait(d time.Duration) { _ = f.clock.Wait(f.ctx, d) }

// Strike returns what happens to a request, and logs the name of that: an armed fault, or else what decide
// says, if there is one.
func Strike[R any](f *Frame, log *Exchange, body []byte, request R, decide func(R) Effect) Effect {
	effect, name := f.Faults.Strike(log.Method, log.Route, body)
	if name == "" && decide != nil {
		if effect = decide(request); !effect.Nothing() {
			name = effect.Kind()
			f.Faults.Count(name)
		}
	}
	log.Fault = name
	return effect
}
