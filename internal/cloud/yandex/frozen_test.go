package yandex

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestWhatTheFolderHasIsAsFrozen: names, labels and idempotency keys of objects that an earlier version has created, and the parameters
// of classes.
func TestWhatTheFolderHasIsAsFrozen(t *testing.T) {
	c := &Cloud{folder: "b1gfolder", prefix: "k8s-", owner: ownerOf("prod")}
	const request = "pvc-0a1b2c3d-0000-1111-2222-333344445555"
	labels, err := c.owner.Labels(request, []cloud.Tag{{Key: "cloudblock-pvc", Value: "Data/0"}, {Key: "team", Value: "a"}}, cloud.Source{Volume: "fhm0"},
		cloud.Tag{Key: labelTemporary, Value: "clone"})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"disk " + c.cloudName(request), "temporary snapshot " + c.temporaryName(request), "device " + c.deviceName("fhm0123456789abcdefg"),
		"parameters in " + labelParameters,
	}
	for _, kind := range []string{keyDisk, keySnapshot, keyTemporary} {
		lines = append(lines, fmt.Sprintf("key of a %s %s", kind, c.idempotencyKey(kind, request, "")))
	}
	for _, l := range tags.ReadLabels(labels) {
		lines = append(lines, "label "+l.Key+": "+l.Value)
	}
	golden.Format(t, "account.txt", strings.Join(lines, "\n")+"\n")
	golden.Names(t, "parameters.txt", c.Capabilities().Parameters)
}
