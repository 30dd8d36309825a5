package yandex_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// shown says which fields an answer with an operation has, besides the id, and done and response at the end.
type shown struct {
	metadata bool
	// created and modified are the times; instant: modified_at is created_at.
	created, modified, instant bool
}

func (s shown) strip(op *operation.Operation) {
	if !s.metadata {
		op.Metadata = nil
	}
	if s.instant {
		op.ModifiedAt = op.GetCreatedAt()
	}
	if !s.created {
		op.CreatedAt = nil
	}
	if !s.modified {
		op.ModifiedAt = nil
	}
}

var timed, everything = shown{created: true, modified: true}, shown{metadata: true, created: true, modified: true}

// sequences are what operations show in the answer that begins them, while they run, and when they are done. The last is made up.
var sequences = map[string]struct{ answered, running, done shown }{
	// tests/models/cassettes/test_image_generation/test_run
	"no metadata and no times, ever": {},
	// compat/.../models/cassettes/test_completions/test_run_deferred
	"times, and no metadata, ever": {timed, timed, timed},
	// compat/.../search_api/cassettes/test_web/test_web_search_simple_deferred_run
	"done within the second in which it began": {timed, timed, shown{created: true, modified: true, instant: true}},
	// tests/batch/cassettes/test_completions/test_simple_run, of the validation of a dataset
	"metadata when it is done": {timed, timed, everything},
	// compat/.../batch/cassettes/test_batch/test_batch_list, of the same
	"metadata while it runs": {timed, everything, everything},
	// compat/.../tuning/cassettes/test_text_embeddings/test_tuning_embeddings[triplet]
	"metadata from its start":            {everything, everything, everything},
	"in no recording: modified_at alone": {shown{metadata: true}, shown{metadata: true, modified: true}, shown{metadata: true, modified: true}},
}

const (
	// lasts is how long each operation takes, and bound how long two lives of four operations may take: 32 s, and half a second for each.
	lasts = 4 * time.Second
	bound = 8 * (lasts + time.Second/2)
)

// TestEachRecordedSequenceEndsWell: whatever its operations show, a volume's life ends as it should, and no call is answered before
// the end of its operation.
func TestEachRecordedSequenceEndsWell(t *testing.T) {
	for name, sequence := range sequences {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder := emulator.Start(t, emulator.Options{InMemory: true, Durations: emulator.Each(clock.Fixed(lasts))})
				const instance = "fhm0machine00000001a"
				folder.AddInstance(emulator.Instance{ID: instance})
				c := open(t, folder, func(cfg *yandex.Config) {
					cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						err := invoke(ctx, method, ask, answer, conn, opts...)
						op, is := answer.(*operation.Operation)
						switch {
						case !is || err != nil:
						case op.GetDone():
							sequence.done.strip(op)
						case method == operation.OperationService_Get_FullMethodName:
							sequence.running.strip(op)
						default:
							sequence.answered.strip(op)
						}
						return err
					}
				})
				live(t, folder, c, instance)
			})
		})
	}
}

// live takes a volume through its life, twice, so that the second is tracked by what the first has taken.
func live(t *testing.T, folder *emulator.Cloud, c cloud.Cloud, instance string) {
	t.Helper()
	began := time.Now()
	for _, name := range []string{"a", "b"} {
		var vol cloud.Volume
		repeat(t, folder, "create", func(ctx context.Context) (err error) {
			vol, err = c.CreateVolume(ctx, cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB, Zones: []string{emulator.DefaultZone}})
			return err
		})
		repeat(t, folder, "attach", func(ctx context.Context) error {
			_, err := c.Attach(ctx, vol.ID, cloud.NodeID(instance))
			return err
		})
		if d, _ := folder.Disk(string(vol.ID)); d.Instance != instance {
			t.Errorf("disk %s is at %q after its attach, want %q", vol.ID, d.Instance, instance)
		}
		repeat(t, folder, "detach", func(ctx context.Context) error { return c.Detach(ctx, vol.ID, cloud.NodeID(instance)) })
		if d, _ := folder.Disk(string(vol.ID)); d.Instance != "" {
			t.Errorf("disk %s is at %q after its detach", vol.ID, d.Instance)
		}
		if len(folder.Disks()) != 1 {
			t.Errorf("there are the disks %+v, want one", folder.Disks())
		}
		repeat(t, folder, "delete", func(ctx context.Context) error { return c.DeleteVolume(ctx, vol.ID) })
	}
	if took := time.Since(began); took > bound {
		t.Errorf("eight operations of %s took %s, want %s at most", lasts, took, bound)
	}
}

// repeat calls until the call succeeds, as the sidecars do. Then nothing may be under way.
func repeat(t *testing.T, folder *emulator.Cloud, what string, call func(ctx context.Context) error) {
	t.Helper()
	for ; ; <-time.After(time.Second) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := call(ctx)
		cancel()
		switch kind := fault.Of(err); {
		case err == nil:
			if running := folder.Running(); len(running) > 0 {
				t.Errorf("the %s was answered while these operations run: %+v", what, running)
			}
			return
		case kind != fault.Uncertain && kind != fault.Unavailable && kind != fault.Busy || t.Context().Err() != nil:
			cloudtest.Must(t, err)
		}
	}
}
