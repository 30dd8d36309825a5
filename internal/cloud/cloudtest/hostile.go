package cloudtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Objects are ids of a form that the cloud could have given.
type Objects struct {
	Volume   cloud.VolumeID
	Snapshot cloud.SnapshotID
	Node     cloud.NodeID
	Zone     string
}

// SurviveAnswers makes each call of a backend whose API answers with anything. Each must end within its time, and an error
// must have a kind, or say that the time has ended, and not have the token.
func SurviveAnswers(ctx context.Context, t *testing.T, c cloud.Cloud, o Objects, token string) {
	t.Helper()
	create := cloud.CreateVolumeRequest{Name: "new", Size: 20 * cloud.GiB, Zones: []string{o.Zone}}
	clone, restore := create, create
	clone.Name, clone.Source.Volume = "clone", o.Volume
	restore.Name, restore.Source.Snapshot = "restore", o.Snapshot
	for name, call := range map[string]func(ctx context.Context) error{
		"Check":       func(ctx context.Context) error { return c.Check(ctx) },
		"FindVolume":  func(ctx context.Context) error { _, err := c.FindVolume(ctx, "new"); return err },
		"GetVolume":   func(ctx context.Context) error { _, err := c.GetVolume(ctx, o.Volume); return err },
		"ListVolumes": func(ctx context.Context) error { _, err := c.ListVolumes(ctx, cloud.Page{}); return err },
		"CreateVolume": func(ctx context.Context) error {
			_, err := c.CreateVolume(ctx, create)
			return err
		},
		"CreateVolume of a volume":   func(ctx context.Context) error { _, err := c.CreateVolume(ctx, clone); return err },
		"CreateVolume of a snapshot": func(ctx context.Context) error { _, err := c.CreateVolume(ctx, restore); return err },
		"ExpandVolume":               func(ctx context.Context) error { _, err := c.ExpandVolume(ctx, o.Volume, 40*cloud.GiB); return err },
		"ModifyVolume": func(ctx context.Context) error {
			return cloud.Modify(ctx, c, o.Volume, []cloud.Tag{{Key: "a", Value: "b"}})
		},
		"Attach": func(ctx context.Context) error { _, err := c.Attach(ctx, o.Volume, o.Node); return err },
		"Detach": func(ctx context.Context) error { return c.Detach(ctx, o.Volume, o.Node) },
		"CreateSnapshot": func(ctx context.Context) error {
			_, err := c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "new", Volume: o.Volume})
			return err
		},
		"FindSnapshot":   func(ctx context.Context) error { _, err := c.FindSnapshot(ctx, "new"); return err },
		"GetSnapshot":    func(ctx context.Context) error { _, err := c.GetSnapshot(ctx, o.Snapshot); return err },
		"ListSnapshots":  func(ctx context.Context) error { _, err := c.ListSnapshots(ctx, "", cloud.Page{}); return err },
		"DeleteSnapshot": func(ctx context.Context) error { return c.DeleteSnapshot(ctx, o.Snapshot) },
		"DeleteVolume":   func(ctx context.Context) error { return c.DeleteVolume(ctx, o.Volume) },
	} {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		err := call(ctx)
		cancel()
		switch {
		case err == nil:
		case fault.Of(err) == fault.None && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("%s = %v, which has no kind", name, err)
		case strings.Contains(err.Error(), token):
			t.Errorf("%s = %v, which has the token", name, err)
		}
	}
}
