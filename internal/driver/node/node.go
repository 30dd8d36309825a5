// Package node serves CSI's Node service: it stages, publishes, grows and measures volumes on the
// machine it runs on.
//
// Each call reads the kernel's mount table once and derives from it what is staged and published. A mount counts only if its
// device is the volume's, so answers stay right after a restart, a crash, or an umount by another program. The package keeps
// one thing on disk: which disk a staged volume is, where the volume's id does not identify it, and where it is staged.
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

// Config has the parts of a Server. The fields up to Mounter are required.
type Config struct {
	Names driver.Names
	Info  driver.NodeInfo
	// MaxVolumes returns the attach limit for each NodeGetInfo; nil: Info.MaxVolumes.
	MaxVolumes func() (int64, error)
	Devices    device.Resolver
	Mounter    *mount.Mounter
	// Records stores which disk each staged volume is, where its id does not identify it, and where it is staged; nil: neither is known
	// after a restart.
	Records *device.Records
	// Formats stores on which volumes a mkfs has begun; nil: a mkfs that was killed is never repeated.
	Formats *device.Formats
	// SizeStep is the step to which Devices.Grow rounds sizes up; 0: no rounding.
	SizeStep int64
	// NeverWritten proves that no byte of a device was ever written; nil where nothing can.
	NeverWritten func(ctx context.Context, dev *device.Device) (bool, error)
	// MarkWritten records that a device is about to be written; set together with NeverWritten.
	MarkWritten func(ctx context.Context, dev *device.Device) error
	// DeadMount is called with the path of every mount whose disk is gone; may be nil.
	DeadMount func(path string)
	// CgroupDir is where the machine's cgroups of version 2 are mounted; empty: volumes whose class limits I/O are refused.
	CgroupDir string
	// Backend adds to the health of volumes; may be nil.
	Backend Backend
	// Metrics may be nil.
	Metrics Metrics
}

// Metrics receives the measurements of volumes.
type Metrics interface {
	// Begin adds an operation on a volume that runs until end is called.
	Begin() (end func())
	// Health sets the reasons of a volume's health; none: nothing is wrong, or the volume is no longer staged.
	Health(volume string, reasons []string)
}

// noMetrics ignores everything.
type noMetrics struct{}

func (noMetrics) Begin() (end func())     { return func() {} }
func (noMetrics) Health(string, []string) {}

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
	cgroups      host.Cgroups
	neverWritten func(context.Context, *device.Device) (bool, error)
	markWritten  func(context.Context, *device.Device) error
	sizeStep     int64
	deadMount    func(path string)
	backend      Backend
	metrics      Metrics

	volumes stagedVolumes
	locks   driver.Locks
	running sync.WaitGroup // work that outlives its call
}

// New returns a Server.
func New(cfg Config) *Server {
	programs, sysfs := cfg.Mounter.Programs, cfg.Mounter.Sysfs
	s := &Server{
		names: cfg.Names, info: cfg.Info, devices: cfg.Devices, records: cfg.Records, formats: cfg.Formats,
		mounts: cfg.Mounter, formatter: format.New(programs), sysfs: sysfs, crypt: luks.New(programs, sysfs),
		cgroups:      host.Cgroups(cfg.CgroupDir),
		neverWritten: cfg.NeverWritten, markWritten: cfg.MarkWritten, sizeStep: max(cfg.SizeStep, 1), deadMount: cfg.DeadMount,
		backend: cfg.Backend, maxVolumes: cfg.MaxVolumes, metrics: cfg.Metrics, volumes: stagedVolumes{staged: map[string]*Staged{}},
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

// Wait returns when the work of all ended calls has finished, or when ctx ends.
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

// runDetached runs work that must not be interrupted, such as mkfs. The call ends with ctx; the work gets a context that does
// not end, and release is called when it has finished. Until then the volume stays locked, and other calls for it return
// fault.Busy.
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
				// The value is not logged, because it may contain a part of the request.
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

// inField prefixes an error with the name of the request's field.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// checkPath refuses a path of a request that is not safe to use.
func (s *Server) checkPath(field, path string) error {
	if err := driver.CheckPath(field, path); err != nil {
		return err
	}
	return inField(field, s.mounts.CheckPath(path))
}

// maxLayers is how many mounts of one volume at one path are unmounted before the unmounts count as having no effect.
const maxLayers = 16

// at returns what is mounted at a path, compared with the device of this number; 0 is no device.
func (s *Server) at(table *mount.Table, path string, number uint64) (mount.State, error) {
	at, err := table.At(path, number)
	if at.Use == mount.Dead {
		s.deadMount(path)
	}
	return at, err
}

// NodeGetInfo returns the node's id, topology and current attach limit.
func (s *Server) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info := s.info
	var err error
	if info.MaxVolumes, err = s.maxVolumes(); err != nil {
		return nil, fmt.Errorf("how many volumes can this machine have: %w", err)
	}
	return driver.NodeGetInfo(s.names, info), nil
}

// NodeGetCapabilities lists the RPCs of this service.
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: driver.NodeCapabilities(s.backend != nil)}, nil
}
