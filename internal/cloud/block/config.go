package block

import (
	"fmt"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Config configures a backend. Token, Region and ClusterID are required.
type Config struct {
	// Token returns the credentials. It is called for each request, so that new ones are used at once.
	Token func() (string, error)
	// Endpoint is the API's address as https://host[:port]; "" is the cloud's own.
	Endpoint string
	// Region is the default of requests: a region, or a zone in a cloud whose volumes are bound to zones.
	Region string
	// ClusterID marks everything that the driver creates. Objects with another one belong to another cluster.
	ClusterID string
	// NamePrefix is the prefix of the names of everything that the driver creates.
	NamePrefix string
	// OperationTimeout is the time limit of calls without a deadline. 0 means 5 minutes.
	OperationTimeout time.Duration
	// SweepEvery is the time between two sweeps for leftovers of interrupted clones. 0 means an hour, a negative value never.
	SweepEvery time.Duration
	// OrphanAge is the age from which a leftover belongs to no call. 0 means a day, because the clocks of the cloud and of another
	// replica may differ by hours.
	OrphanAge time.Duration
	// Tick is the minimum time between two reads of running operations. 0 means the backend's default.
	Tick time.Duration
	// Busy has the pauses while a machine or the cloud is busy with another change. Zero means the default of package ops.
	Busy wait.Backoff
	// Limits are the API's limits of all requests; nil: the documented ones.
	Limits []budget.Window
	// Rand returns numbers in [0, 1) for jitter; nil means math/rand/v2.
	Rand func() float64
	// UserAgent is sent with each request.
	UserAgent string
	// Log may be nil, and so may each of the metrics.
	Log     *zap.Logger
	Metrics Metrics
}

// Metrics are the metrics that all clouds share.
type Metrics struct {
	Ops    *ops.Metrics
	Budget *budget.Metrics
}

// Complete checks a Config and sets defaults. isRegion reports whether the cloud can have a region with this name.
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
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("endpoint %q is not of the form https://host[:port]: %w", cfg.Endpoint, fault.InvalidArgument)
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

// Governor returns the budget of the requests with these limits. The name is for metrics.
func (cfg *Config) Governor(name string, windows []budget.Window) *budget.Governor {
	return budget.New(budget.Config{Name: name, Windows: windows, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget})
}

// Ops returns the configuration for ops.New.
func (cfg *Config) Ops(tracker ops.Tracker) ops.Config {
	return ops.Config{Tracker: tracker, Timeout: cfg.OperationTimeout, Tick: cfg.Tick, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Ops}
}
