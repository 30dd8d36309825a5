package linode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

func TestEventsTellHowOperationsWent(t *testing.T) {
	c, api, linode := start(t, emulator.Options{})
	v := mustCreate(t, api, "pvc-1")
	mustAttach(t, api, v.ID, linode)
	c.Arm(emulator.Fault{Times: 1, Effect: faults.Effect{Errored: true}})
	must(t, api.ResizeVolume(t.Context(), v.ID, 20))
	c.SetDurations(emulator.Each(clock.Fixed(1e12)))
	must(t, api.DetachVolume(t.Context(), v.ID))
	mustCreate(t, api, "pvc-2")
	c.ResetStats() // forgets no event

	list := func(filter string) (all []linodego.Event) {
		t.Helper()
		all, err := api.ListEvents(t.Context(), &linodego.ListOptions{Filter: filter})
		must(t, err)
		return all
	}
	for _, row := range []struct{ name, filter, want string }{
		{"all, the newest first", ``, "volume_create started, volume_detach started, volume_resize failed, volume_attach finished, volume_create finished"},
		{"one volume's", fmt.Sprintf(`{"entity.id":%d,"entity.type":"volume","action":"volume_attach"}`, v.ID), "volume_attach finished"},
		{"no Linode's", `{"entity.type":"linode"}`, ""},
		{"one action", `{"action":"volume_attach"}`, "volume_attach finished"},
		{"some actions, in the order that there is", `{"action":{"+contains":"tach"},"+order_by":"created","+order":"desc"}`, "volume_detach started, volume_attach finished"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			for _, e := range list(row.filter) {
				got = append(got, fmt.Sprintf("%s %s", e.Action, e.Status))
			}
			if got := strings.Join(got, ", "); got != row.want {
				t.Errorf("ListEvents(%s) = %s, want %s", row.filter, got, row.want)
			}
		})
	}
	if e := list(`{"action":"volume_attach"}`)[0]; e.Entity.Label != "pvc-1" || fmt.Sprint(e.SecondaryEntity.ID) != fmt.Sprint(linode) || e.PercentComplete != 100 {
		t.Errorf("the attach is %+v of %+v and %+v, want the whole one of pvc-1 to %d", e, e.Entity, e.SecondaryEntity, linode)
	}
	for _, field := range []string{"message", "username", "+order_by"} {
		if _, err := api.ListEvents(t.Context(), &linodego.ListOptions{Filter: fmt.Sprintf(`{%q:1}`, field)}); err == nil {
			t.Errorf("ListEvents() by %s = nil, want a refusal", field)
		}
	}
}
