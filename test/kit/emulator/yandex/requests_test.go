package yandex_test

import (
	"testing"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func mask(fields ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: fields} }

func resizeRequest(disk string, size int64) *compute.UpdateDiskRequest {
	return &compute.UpdateDiskRequest{DiskId: disk, Size: size, UpdateMask: mask("size")}
}

func snapshotRequest(disk, name string) *compute.CreateSnapshotRequest {
	return &compute.CreateSnapshotRequest{FolderId: emulator.DefaultFolder, DiskId: disk, Name: name}
}

func mustSnapshot(t *testing.T, a *api, disk, name string) string {
	t.Helper()
	op := must(t, "snapshot "+name)(a.snapshots.Create(as(t.Context()), snapshotRequest(disk, name)))
	about := &compute.CreateSnapshotMetadata{}
	noError(t, op.GetMetadata().UnmarshalTo(about))
	return about.GetSnapshotId()
}

// refused checks that a call was refused with a code and these words.
func refused(t *testing.T, name string, err error, code codes.Code, words string) {
	t.Helper()
	if got := status.Convert(err); got.Code() != code || words != "" && got.Message() != words {
		t.Errorf("%s = %s %q, want %s %q", name, got.Code(), got.Message(), code, words)
	}
}

// outcome is the code and the words with which an operation ended.
func outcome(op *operationpb.Operation) (codes.Code, string) {
	return codes.Code(op.GetError().GetCode()), op.GetError().GetMessage()
}
