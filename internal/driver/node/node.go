// Package node serves CSI's Node service: it stages, publishes, grows and measures volumes on the
// machine it runs on.
//
// Each call reads the kernel's mount table once and decides from it what is staged and published. A mount counts only
// if it is of the very device that is the volume, so a restart, a crash or another program's umount never makes an
// answer wrong. The only state of this package, where the volume's id is not enough, is which disk a staged volume is.
package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// Config is what a Server is made of. The fields up to Mounter are required.
type Config struct {
	Names driver.Names
	Info  driver.NodeInfo
	// MaxVolumes is asked at each NodeGetInfo; nil: Info.MaxVolumes.
	MaxVolumes func() (int64, error)
	Devices    device.Resolver
	Mounter    *mount.Mounter
	// Records keeps which disk each staged volume is; nil where the resolver knows by the volume's id.
	Records *device.Records
	// Formats keeps which volumes a mkfs has begun on; nil: one that was killed is never repeated.
	Formats *device.Formats
	// SizeStep is what Devices.Grow rounds sizes up to; 0: to nothing.
	SizeStep int64
	// NeverWritten proves that no byte of a device was ever written; nil where the resolver cannot tell.
	NeverWritten func(ctx context.Context, dev *device.Device) (bool, error)
	// MarkWritten notes that a device is about to be written; set with NeverWritten.
	MarkWritten func(ctx context.Context, dev *device.Device) error
	// DeadMount gets the path of every mount that is found to be of a disk that has gone; may be nil.
	DeadMount func(path string)
	// Backend knows more about the volumes' health; may be nil.
	Backend Backend
	// Metrics gets what an operator counts; may be nil.
	Metrics Metrics
}

// Metrics counts what happens to volumes.
type Metrics interface {
	// Begin adds an operation that holds a volume, until end is called.
	Begin() (end func())
	// Condition sets what is wrong with a volume that is served, by the reasons of its health; none: nothing is, or the
	// volume is not staged any more.
	Condition(volume string, reasons []string)
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Begin() (end func())        { return func() {} }
func (noMetrics) Condition(string, []string) {}

// Server is the Node service.
type Server struct {
	csi.UnimplementedNodeServer

	names        driver.Names
	info         driver.NodeInfo
	maxVolumes   func() (int64, error)
	devices      device.Resolver
	records      *device.Records
	formats      *device.Formats
	mounts       *mount.Mounter
	formatter    *format.Formatter
	sysfs        host.Sysfs
	crypt        luks.Cryptsetup
	neverWritten func(context.Context, *device.Device) (bool, error)
	markWritten  func(context.Context, *device.Device) error
	sizeStep     int64
	deadMount    func(path string)
	backend      Backend
	metrics      Metrics

	locks   driver.Locks
	running sync.WaitGroup // work that outlives its call
}

// New returns a Server.
func New(cfg Config) *Server {
	programs, sysfs := cfg.Mounter.Programs, cfg.Mounter.Sysfs
	s := &Server{
		names: cfg.Names, info: cfg.Info, devices: cfg.Devices, records: cfg.Records, formats: cfg.Formats,
		mounts: cfg.Mounter, formatter: format.New(programs), sysfs: sysfs, crypt: luks.New(programs, sysfs),
		neverWritten: cfg.NeverWritten, markWritten: cfg.MarkWritten, sizeStep: max(cfg.SizeStep, 1), deadMount: cfg.DeadMount,
		backend: cfg.Backend, maxVolumes: cfg.MaxVolumes, metrics: cfg.Metrics,
	}
	if s.metrics == nil {
		s.metrics = noMetrics{}
	}
	if s.maxVolumes == nil {
		s.maxVolumes = func() (int64, error) { return cfg.Info.MaxVolumes, nil }
	}
	if s.deadMount == nil {
		s.deadMount = func(string) {}
	}
	return s
}

// Wait returns when no work of an ended call runs any more, or when ctx ends.
func (s *Server) Wait(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		s.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a format or a check is still running: %w", ctx.Err())
	}
}

// runDetached runs work that must not be interrupted, such as mkfs: the call ends when ctx does, the work runs to its
// end with a context that does not, and release is called only then. So the volume stays locked while anything works
// on it, and the next call is fault.Busy until it joins.
func (s *Server) runDetached(ctx context.Context, release func(), work func(context.Context) error) error {
	done, end := make(chan error, 1), s.metrics.Begin()
	s.running.Go(func() {
		var err error
		// Deferred last to first: a panic becomes an error, the lock is freed, the error is returned.
		defer func() { done <- err }()
		defer release()
		defer end()
		defer func() {
			if p := recover(); p != nil {
				// The value is not logged: it might be, or hold, a part of the request.
				driver.LogOf(ctx).Error("panic", zap.String("type", fmt.Sprintf("%T", p)), zap.ByteString("stack", debug.Stack()))
				err = errors.New("internal error: the handler panicked; the log has the details")
			}
		}()
		err = work(context.WithoutCancel(ctx))
		if ctx.Err() != nil {
			driver.LogOf(ctx).Info("work that outlived its call has ended", zap.Error(err))
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the work goes on without its caller, and the same call will join it: %w", ctx.Err())
	}
}

// blockFile is where a raw block volume is staged: a bind of its device node, so that publish has
// something to verify and unstage something to release.
func blockFile(staging string) string { return filepath.Join(staging, "device") }

// inField puts the name of a request's field before what is wrong with it.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// checkPath accepts a path of a request that is safe to work on.
func (s *Server) checkPath(field, path string) error {
	if err := driver.CheckPath(field, path); err != nil {
		return err
	}
	return inField(field, s.mounts.CheckPath(path))
}

// maxLayers is how often one volume may be mounted over itself at one path before an unmount is taken for one that
// does nothing.
const maxLayers = 16

// at returns what is mounted at a path, compared with the device of that number; 0 is no device.
func (s *Server) at(table *mount.Table, path string, number uint64) (mount.State, error) {
	at, err := table.At(path, number)
	if at.Use == mount.Dead {
		s.deadMount(path)
	}
	return at, err
}

// NodeGetInfo says which machine this is, where, and how many volumes it can have now.
func (s *Server) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info := s.info
	var err error
	if info.MaxVolumes, err = s.maxVolumes(); err != nil {
		return nil, fmt.Errorf("how many volumes can this machine have: %w", err)
	}
	return driver.NodeGetInfo(s.names, info), nil
}

// NodeGetCapabilities says what this service can do.
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: driver.NodeCapabilities(s.backend != nil)}, nil
}
