package tags_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestLabelsSayWhoseTheObjectIs(t *testing.T) {
	refused := fmt.Errorf("not in this cloud: %w", fault.InvalidArgument)
	owner := tags.Owner{Cluster: "one", Max: 5, Value: func(t cloud.Tag) (string, error) {
		if t.Key == "bad" {
			return "", refused
		}
		return t.Value, nil
	}}
	asked := []cloud.Tag{{Key: "team", Value: "a"}, {Key: tags.Hash, Value: "of somebody else"}}
	got, err := owner.Labels("pvc", asked, cloud.Source{Snapshot: "s"}, cloud.Tag{Key: "own", Value: "b"})
	want := map[string]string{"team": "a", "own": "b", tags.Hash: cloud.FullHash("pvc"), tags.Cluster: "one", tags.FromSnapshot: "s"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Labels = %v, %v, want %v", got, err, want)
	}
	none := owner
	none.Cluster = ""
	if !owner.MadeFor("pvc", got) || owner.MadeFor("other", got) || none.MadeHere(got) || owner.MadeHere(map[string]string{tags.Cluster: "one"}) {
		t.Error("the object is taken for another's, or another's for this one")
	}
	if _, err := owner.Labels("pvc", []cloud.Tag{{Key: "bad"}}, cloud.Source{}); !errors.Is(err, refused) {
		t.Errorf("a tag that the cloud refuses: %v", err)
	}
	if _, err := owner.Labels("pvc", append(asked, cloud.Tag{Key: "x"}), cloud.Source{Snapshot: "s", Volume: "v"}); fault.Of(err) != fault.InvalidArgument {
		t.Errorf("one label too many: %v", err)
	}
	if list := tags.ReadLabels(map[string]string{"b": "1", "a": "2"}); !reflect.DeepEqual(list, []cloud.Tag{{Key: "a", Value: "2"}, {Key: "b", Value: "1"}}) {
		t.Errorf("ReadLabels = %v", list)
	}
}
