package yandex_test

import (
	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

func resizeRequest(disk string, size int64) *compute.UpdateDiskRequest {
	return &compute.UpdateDiskRequest{DiskId: disk, Size: size, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}}}
}
