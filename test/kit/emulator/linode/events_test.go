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
	if err := api.ResizeVolume(t.Context(), v.ID, 20); err != nil {
		t.Fatal(err)
	}
	c.SetDurations(emulator.Each(clock.Fixed(1e12)))
	if err := api.DetachVolume(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, api, "pvc-2")
	c.ResetStats() // forgets no event

	list := func(filter string) (all []linodego.Event) {
		t.Helper()
		all, err := api.ListEvents(t.Context(), &linodego.ListOptions{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	newest := list("")[0].ID
	for _, row := range []struct{ name, filter, want string }{
		{"all, the newest first", ``, "volume_create started, volume_detach started, volume_resize failed, volume_attach finished, volume_create finished"},
		{"one action", `{"action":"volume_attach"}`, "volume_attach finished"},
		{"since a moment", `{"created":{"+gte":"2000-01-02T03:04:05"},"action":{"+contains":"tach"}}`, "volume_detach started, volume_attach finished"},
		{"in the order that is asked for", `{"action":{"+neq":"volume_create"},"+order_by":"created","+order":"desc"}`, "volume_detach started, volume_resize failed, volume_attach finished"},
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
	attached := list(`{"action":"volume_attach"}`)[0]
	if e, err := api.GetEvent(t.Context(), attached.ID); err != nil || e.Entity.Label != "pvc-1" || fmt.Sprint(e.SecondaryEntity.ID) != fmt.Sprint(linode) || e.PercentComplete != 100 {
		t.Errorf("GetEvent() = %+v of %+v and %+v, %v, want the whole attach of pvc-1 to %d", e, e.Entity, e.SecondaryEntity, err, linode)
	}
	if _, err := api.GetEvent(t.Context(), newest+1); err == nil {
		t.Error("GetEvent() of what never happened = nil, want not found")
	}
	for _, field := range []string{"message", "entity.id", "status"} {
		if _, err := api.ListEvents(t.Context(), &linodego.ListOptions{Filter: fmt.Sprintf(`{%q:1}`, field)}); err == nil {
			t.Errorf("ListEvents() by %s = nil, want a refusal", field)
		}
	}
	if types, err := api.ListVolumeTypes(t.Context(), nil); err != nil || len(types) != 1 {
		t.Errorf("ListVolumeTypes() = %+v, %v, want one", types, err)
	}
}
