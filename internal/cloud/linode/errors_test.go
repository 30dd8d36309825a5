package linode_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// The SDK takes an error without errors in it for a success, and knows two types of the others; here each is what
// it is, and the cloud's words stay.
func TestOddAnswersAreNoSuccess(t *testing.T) {
	calls := map[string]func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error{
		"create": func(ctx context.Context, c cloud.Cloud, _ cloud.VolumeID) error {
			_, err := c.CreateVolume(ctx, request("b"))
			return err
		},
		"attach": func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.Attach(ctx, id, node2)
			return err
		},
		"detach": func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error { return c.Detach(ctx, id, node1) },
		"resize": func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.ExpandVolume(ctx, id, 20*cloud.GiB)
			return err
		},
		"delete": func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error { return c.DeleteVolume(ctx, id) },
	}
	answers := map[string]struct {
		effect faults.Effect
		kinds  []fault.Kind
	}{
		"an error without errors":       {faults.Effect{Status: 400, ID: emulator.NoErrors}, []fault.Kind{fault.InvalidArgument, fault.Precondition, fault.Unavailable}},
		"a page of a gateway":           {faults.Effect{Status: 502}, []fault.Kind{fault.Uncertain}},
		"a gateway that gave up":        {faults.Effect{Status: 504}, []fault.Kind{fault.Uncertain}},
		"an error of the cloud":         {faults.Effect{Status: 500, ID: emulator.NoErrors}, []fault.Kind{fault.Uncertain}},
		"maintenance":                   {faults.Effect{Status: 503, Header: map[string]string{"X-Maintenance-Mode": "On"}}, []fault.Kind{fault.Uncertain}},
		"a token that is not accepted":  {faults.Effect{Status: 401}, []fault.Kind{fault.Denied}},
		"a token without the scope":     {faults.Effect{Status: 403}, []fault.Kind{fault.Denied}},
		"a redirect to somewhere":       {faults.Effect{Status: 302}, []fault.Kind{fault.Unavailable}},
		"a refusal that nothing tells":  {faults.Effect{Status: 400, Message: "the moon is full"}, []fault.Kind{fault.InvalidArgument, fault.Precondition, fault.Unavailable}},
		"a status that is not expected": {faults.Effect{Status: 418}, []fault.Kind{fault.Unavailable}},
		"a timeout in front of the API": {faults.Effect{Status: 408}, []fault.Kind{fault.Uncertain}},
	}
	for answer, tc := range answers {
		t.Run(answer, func(t *testing.T) {
			for name, call := range calls {
				account := start(t, emulator.Options{})
				c := open(t, account)
				id := volume(t, c, "a").ID
				if name == "detach" {
					attach(t, c, id, node1)
				}
				method := "POST"
				if name == "delete" {
					method = "DELETE"
				}
				account.Arm(emulator.Fault{Method: method, Effect: tc.effect})
				err := call(t.Context(), c, id)
				if err == nil || !slices.Contains(tc.kinds, fault.Of(err)) {
					t.Errorf("%s = %v, want one of the kinds %q", name, err, tc.kinds)
				} else if tc.effect.Message != "" && !strings.Contains(err.Error(), tc.effect.Message) {
					t.Errorf("%s = %v, want the cloud's words in it", name, err)
				}
			}
		})
	}
}
