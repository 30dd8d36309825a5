package block

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// scene is a cloud with one volume, in which nothing else is under way.
type scene struct {
	API // what is not asked for

	vol     *Volume
	lags    bool  // reads show the volume as it was
	refuses error // the next growth
	// attach, unless it is nil, is what an attach waits for. It answers with device.
	attach           chan struct{}
	device           cloud.Device
	resized, deleted int
	asked            []string // whose operations were read
}

func (s *scene) Volume(context.Context, cloud.VolumeID, budget.Priority) (*Volume, error) {
	if s.vol == nil {
		return nil, nil
	}
	v := *s.vol
	return &v, nil
}

func (s *scene) Machine(context.Context, cloud.NodeID) (*Machine, error) {
	return &Machine{Disks: map[cloud.VolumeID]Disk{s.vol.ID: {}}}, nil
}

func (s *scene) Attach(context.Context, *ops.Write, cloud.VolumeID, cloud.NodeID) (cloud.Device, string, error) {
	if s.attach != nil {
		<-s.attach
	}
	return s.device, "", nil
}

func (s *scene) Resize(_ context.Context, _ *ops.Write, _ *Volume, size cloud.Bytes) (string, error) {
	if err := s.refuses; err != nil {
		s.refuses = nil
		return "", err
	}
	s.resized++
	if !s.lags {
		s.vol.Size = size
	}
	return "", nil
}

func (s *scene) Delete(context.Context, *ops.Write, cloud.VolumeID) (string, error) {
	s.deleted++
	return "", nil
}

func (s *scene) Running(_ context.Context, object string) ([]ops.Operation, error) {
	s.asked = append(s.asked, object)
	return nil, nil
}

func (s *scene) Outcome(context.Context, ops.Operation) (ops.Outcome, error) {
	return ops.Outcome{}, nil
}

// tracked is a cloud whose operations can be read.
type tracked interface {
	API
	ops.Tracker
}

// simulated runs a test with the verbs of a cloud, on a simulated clock.
func simulated(t *testing.T, s tracked, traits Traits, test func(t *testing.T, b *Verbs)) {
	t.Helper()
	traits.VolumeWord, traits.MachineWord, traits.Largest = "volume", "machine", cloud.TiB
	traits.VolumeID = func(cloud.VolumeID) bool { return true }
	traits.MachineID = func(cloud.NodeID) bool { return true }
	synctest.Test(t, func(t *testing.T) {
		runner := ops.New(t.Context(), ops.Config{Tracker: s})
		test(t, New(traits, s, runner, nil))
		if err := runner.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The answer to an attach may lack how the machine identifies the disk: then the volume is read.
func TestADeviceThatTheAnswerLacks(t *testing.T) {
	answered, read := cloud.Device{Serial: "answered"}, cloud.Device{Serial: "read"}
	for _, c := range []struct{ in, want cloud.Device }{{in: answered, want: answered}, {want: read}} {
		s := &scene{vol: at("m"), device: c.in}
		s.vol.Device = read
		simulated(t, s, Traits{}, func(t *testing.T, b *Verbs) {
			if device, err := b.Attach(t.Context(), "v", "m"); err != nil || device != c.want {
				t.Errorf("the answer has %+v: Attach = %+v, %v, want %+v", c.in, device, err, c.want)
			}
		})
	}
	s := &scene{}
	simulated(t, s, Traits{}, func(t *testing.T, b *Verbs) {
		if device, err := b.Attach(t.Context(), "v", "m"); fault.Of(err) != fault.NotFound {
			t.Errorf("the volume is gone: Attach = %+v, %v, want NotFound", device, err)
		}
	})
}

// C5: a growth that has ended is newer than a read that lags behind.
func TestASizeThatIsReadLate(t *testing.T) {
	s := &scene{vol: at(), lags: true}
	simulated(t, s, Traits{}, func(t *testing.T, b *Verbs) {
		if exp, err := b.ExpandVolume(t.Context(), "v", 20*cloud.GiB); err != nil || exp.Size != 20*cloud.GiB {
			t.Errorf("ExpandVolume = %+v, %v, want the size that was asked for", exp, err)
		}
	})
}

// Where a machine makes one change at a time, the growth of a volume that it has waits for the attach of another one.
func TestAGrowthWaitsForItsMachine(t *testing.T) {
	for _, waits := range []bool{true, false} {
		s := &scene{vol: at("m"), attach: make(chan struct{})}
		simulated(t, s, Traits{GrowsOnMachine: waits}, func(t *testing.T, b *Verbs) {
			s.attach = make(chan struct{})
			errs := make(chan error, 2)
			go func() {
				_, err := b.Attach(t.Context(), "w", "m")
				errs <- err
			}()
			time.Sleep(time.Second)
			go func() {
				_, err := b.ExpandVolume(t.Context(), "v", 20*cloud.GiB)
				errs <- err
			}()
			time.Sleep(2 * time.Second) // reads are shared by those who ask within a moment
			synctest.Wait()
			if (s.resized == 0) != waits {
				t.Errorf("GrowsOnMachine is %t: during the attach it was resized %d times", waits, s.resized)
			}
			close(s.attach)
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if s.resized != 1 {
				t.Errorf("it was resized %d times, want once", s.resized)
			}
		})
	}
}

// A growth that is refused because of a change under way waits for the machine's operations too, where they include those of its volumes.
func TestAGrowthWaitsForOperationsOfItsMachine(t *testing.T) {
	s := &scene{vol: at("m"), refuses: errBusy}
	simulated(t, s, Traits{MachineHasDisks: true}, func(t *testing.T, b *Verbs) {
		if _, err := b.ExpandVolume(t.Context(), "v", 20*cloud.GiB); err != nil {
			t.Error(err)
		}
		if !slices.Contains(s.asked, b.VolumeKey("v")) || !slices.Contains(s.asked, b.machineKey("m")) {
			t.Errorf("the operations of %q were read, want those of the volume and of its machine", s.asked)
		}
	})
}

// What may have changed since it was judged is judged again right before it is deleted.
func TestRemovalOfWhatHasChanged(t *testing.T) {
	for goes, checks := range map[bool]bool{true: true, false: true} {
		s := &scene{vol: at()}
		simulated(t, s, Traits{ShowsChanges: true, KeepsAttached: checks}, func(t *testing.T, b *Verbs) {
			removed, err := b.Remove(t.Context(), Removal{Name: "remove it", ID: "v", Only: func(*Volume) bool { return goes }})
			if err != nil || removed != goes || s.deleted > 0 != goes {
				t.Errorf("Remove = %t, %v with %d requests, want %t", removed, err, s.deleted, goes)
			}
		})
	}
}
