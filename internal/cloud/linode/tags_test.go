package linode_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// longName does not fit into a label.
var longName = "pvc-" + strings.Repeat("a", 40)

// named are the tags that the controller adds where the provisioner tells Kubernetes' names.
var named = []cloud.Tag{{Key: "cloudblock-pvc", Value: "data"}, {Key: "cloudblock-pv", Value: "pvc-1"}}

func withNames(cfg *linode.Config) { cfg.KubernetesTags = true }

func TestAVolumeHasTheTagsThatItNeeds(t *testing.T) {
	hash := "cloudblock-name-hash:" + cloud.FullHash(longName)
	tests := map[string]struct {
		name string
		edit []func(*linode.Config)
		tags []cloud.Tag
		want []string
	}{
		"the cluster's":               {"ab", nil, named, []string{"cloudblock-cluster:one"}},
		"the operator's":              {"ab", nil, []cloud.Tag{{Key: "team", Value: "a"}}, []string{"cloudblock-cluster:one", "team:a"}},
		"the hash of a name too long": {longName, nil, nil, []string{"cloudblock-cluster:one", hash}},
		"Kubernetes' names on demand": {"ab", []func(*linode.Config){withNames}, named, []string{"cloudblock-cluster:one", "cloudblock-pv:pvc-1", "cloudblock-pvc:data"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account, tc.edit...))
			req := request(tc.name)
			req.Tags = tc.tags
			first := create(t, c, req)
			again, err := c.CreateVolume(t.Context(), req)
			if err != nil || again.ID != first.ID {
				t.Errorf("CreateVolume again = %+v, %v, want volume %s", again, err, first.ID)
			}
			if got := account.Volumes()[0].Tags; !slices.Equal(got, tc.want) {
				t.Errorf("its tags are %q, want %q", got, tc.want)
			}
		})
	}
}

// C12: what carries another cluster's mark, or the hash of another name, was made for something else.
func TestAForeignVolumeOfTheNameIsNeverHandedOut(t *testing.T) {
	hash := func(name string) string { return "cloudblock-name-hash:" + cloud.FullHash(name) }
	const ours, theirs = "cloudblock-cluster:one", "cloudblock-cluster:two"
	tests := map[string]struct {
		name string
		tags []string
		ours bool
	}{
		"marked":                          {"ab", []string{ours}, true},
		"marked in other capitals":        {"ab", []string{"cloudblock-cluster:ONE"}, true},
		"without the mark":                {"ab", nil, false},
		"another cluster's mark":          {"ab", []string{theirs}, false},
		"another name's hash":             {"ab", []string{ours, hash("b")}, false},
		"a shortened label with its hash": {longName, []string{ours, hash(longName)}, true},
		"a shortened label, another's":    {longName, []string{theirs, hash(longName)}, false},
		"a shortened label without hash":  {longName, []string{ours}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			c := stack(open(t, account))
			label := "ab"
			if tc.name != label {
				vol := volume(t, c, tc.name)
				label = vol.Name
				must(t, c.DeleteVolume(t.Context(), vol.ID))
			}
			id, err := account.AddVolume(emulator.Volume{Label: label, Tags: tc.tags})
			must(t, err)
			got, err := c.CreateVolume(t.Context(), request(tc.name))
			if !tc.ours {
				want(t, err, fault.Conflict, fmt.Sprint(id))
			} else if err != nil || got.ID != cloud.VolumeID(fmt.Sprint(id)) {
				t.Errorf("CreateVolume = %+v, %v, want volume %d", got, err, id)
			}
		})
	}
}

// A user with restricted access may not be allowed to set tags. The optional ones are left out, and what cannot be
// is named.
func TestTagsThatTheCloudRefuses(t *testing.T) {
	team := []cloud.Tag{{Key: "team", Value: "a"}}
	tests := map[string]struct {
		refused *faults.Effect // once; nil: an account that refuses all tags
		kind    fault.Kind     // empty: it is made without the optional tags
		says    []string
	}{
		"naming the field":                 {refused: &faults.Effect{Status: http.StatusBadRequest, ID: "tags", Message: "No"}},
		"naming tags":                      {refused: &faults.Effect{Status: http.StatusUnauthorized, Message: "You may not add a tag."}},
		"for another reason":               {refused: &faults.Effect{Status: http.StatusUnauthorized}, kind: fault.Denied},
		"also those that are not optional": {kind: fault.Denied, says: []string{"it sets the tags cloudblock-cluster:one", "restricted access"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{Rules: emulator.Rules{TagsRefused: tc.refused == nil}})
			if tc.refused != nil {
				post(account, "/{apiVersion}/volumes", *tc.refused)
			}
			core, logs := observer.New(zapcore.WarnLevel)
			c := stack(open(t, account, func(cfg *linode.Config) { cfg.Log = zap.New(core) }))
			req := request("ab")
			req.Tags = team
			vol, err := c.CreateVolume(t.Context(), req)
			if tc.kind != "" {
				want(t, err, tc.kind, tc.says...)
				return
			}
			must(t, err)
			if got, _ := account.Volume(number(t, vol.ID)); !slices.Equal(got.Tags, []string{"cloudblock-cluster:one"}) {
				t.Errorf("its tags are %q, want the cluster's", got.Tags)
			}
			if warned := logs.FilterMessageSnippet("without the optional ones").All(); len(warned) != 1 || !strings.Contains(fmt.Sprint(warned[0].ContextMap()), "team:a") {
				t.Errorf("the log is %v, want it to name the tag that was left out", logs.All())
			}
		})
	}
}

// A copy is recognised by its source, which only a tag keeps. Without the right to set one the copy waits for it.
func TestACopyNeedsItsTag(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	source := volume(t, c, "source")
	account.SetRules(func(r *emulator.Rules) { r.TagsRefused = true })
	_, err := c.CreateVolume(t.Context(), copyOf("copy", source.ID))
	want(t, err, fault.Uncertain, "it sets the tags cloudblock-cluster:one, cloudblock-source-volume:"+string(source.ID))
	account.SetRules(func(r *emulator.Rules) { r.TagsRefused = false })
	must(t, second(c.CreateVolume(t.Context(), copyOf("copy", source.ID))))
	if n := len(account.Volumes()); n != 2 {
		t.Errorf("there are %d volumes, want the source and its copy", n)
	}
}

func second(_ any, err error) error { return err }
