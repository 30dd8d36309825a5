package digitalocean_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// C1: a repeat that the cloud refuses in words which do not tell that the name is taken finds the volume that the
// first call made; a final answer would make the provisioner forget it. Nothing is looked for when nothing was sent.
func TestARepeatThatIsRefusedAsWrongFindsTheVolume(t *testing.T) {
	account := start(t, emulator.Options{})
	bare := open(t, account)
	c := stack(bare)
	create := emulator.Fault{Method: "POST", Route: "/v2/volumes", Times: 1}
	refusal := func() {
		create.Effect = faults.Effect{Status: 422, Message: "volume cannot be created at this time"}
		account.Arm(create)
	}
	create.Effect = faults.Effect{Lost: faults.LostAfter}
	account.Arm(create)
	_, err := bare.CreateVolume(t.Context(), request("a"))
	want(t, err, fault.Uncertain)
	refusal()
	vol, err := c.CreateVolume(t.Context(), request("a"))
	must(t, err)
	if left := account.Volumes(); len(left) != 1 || left[0].ID != string(vol.ID) {
		t.Errorf("the answer is %s, and there are %+v", vol.ID, left)
	}

	refusal()
	_, err = c.CreateVolume(t.Context(), request("b"))
	want(t, err, fault.InvalidArgument, "cannot be created at this time")

	before := account.Stats()
	wrong := request("c")
	wrong.Parameters = []cloud.Parameter{{Name: "no-such-parameter"}}
	_, err = c.CreateVolume(t.Context(), wrong)
	want(t, err, fault.InvalidArgument, "no-such-parameter")
	if after := account.Stats(); after.Reads != before.Reads || after.Writes != before.Writes {
		t.Errorf("what our own checks refuse has cost requests: %+v, then %+v", before, after)
	}
}
