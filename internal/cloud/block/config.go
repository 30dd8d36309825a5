package block

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Config says whose volumes a backend is about and how to reach the API. Token, Region and ClusterID are required.
type Config struct {
	// Token returns what opens the API. It is asked for with each request, so that a new one is used at once.
	Token func() (string, error)
	// Endpoint is the API's address without a path; "" is the cloud's own.
	Endpoint string
	// Region is used when a request names none. Where volumes are bound to zones it is one.
	Region string
	// ClusterID is written on everything made, and whatever carries another one is not ours.
	ClusterID string
	// NamePrefix begins the names of everything made.
	NamePrefix string
	// OperationTimeout bounds waits that no caller bounds. Zero means 5 minutes.
	OperationTimeout time.Duration
	// SweepEvery is how often what interrupted clones have left is looked for. Zero means an hour, a negative value never.
	SweepEvery time.Duration
	// OrphanAge is from which age such a leftover belongs to no call any more. Zero means a day: the clocks of the cloud and of
	// another replica may differ by hours.
	OrphanAge time.Duration
	// Tick is the shortest time between two reads of running operations. Zero: the backend's own.
	Tick time.Duration
	// Busy says how to wait while a machine or the cloud is busy with another change. Zero: package ops' own.
	Busy wait.Backoff
	// Limits are the API's limits of all requests; nil: what the cloud documents.
	Limits []budget.Window
	// Rand says how much pauses are left to chance; nil: math/rand/v2.
	Rand func() float64
	// UserAgent names the program.
	UserAgent string
	// Log may be nil, and so may each of the metrics.
	Log     *zap.Logger
	Metrics Metrics
}

// Metrics are those of what all clouds share.
type Metrics struct {
	Ops    *ops.Metrics
	Budget *budget.Metrics
}

// Complete fills in what a Config leaves to choose. isRegion reports whether the cloud can have a region of that name.
func (cfg *Config) Complete(isRegion func(string) bool, endpoint string, limits []budget.Window) error {
	switch {
	case cfg.Token == nil:
		return fmt.Errorf("no credentials: %w", fault.InvalidArgument)
	case cfg.ClusterID == "":
		return fmt.Errorf("no cluster id: %w", fault.InvalidArgument)
	case !isRegion(cfg.Region):
		return fmt.Errorf("%.80q is not the name of a region or zone: %w", cfg.Region, fault.InvalidArgument)
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = endpoint
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = time.Hour
	}
	if cfg.OrphanAge <= 0 {
		cfg.OrphanAge = 24 * time.Hour
	}
	if cfg.Limits == nil {
		cfg.Limits = limits
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return nil
}

// Governor returns the budget of the requests that have some limits. Its name is for metrics.
func (cfg *Config) Governor(name string, windows []budget.Window) *budget.Governor {
	return budget.New(budget.Config{Name: name, Windows: windows, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget})
}

// Ops is what carries changes out, for ops.New. A tick is the time between two reads where the Config has none.
func (cfg *Config) Ops(tracker ops.Tracker) ops.Config {
	return ops.Config{Tracker: tracker, Timeout: cfg.OperationTimeout, Tick: cfg.Tick, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Ops}
}
