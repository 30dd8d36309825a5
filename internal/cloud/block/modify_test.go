package block

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// refused is a refusal that the state may explain.
type refused struct{ kind fault.Kind }

func (r refused) Error() string { return "no: " + string(r.kind) }
func (r refused) Refused() bool { return true }
func (r refused) Unwrap() error { return r.kind }

func TestModify(t *testing.T) {
	wanted := []cloud.Tag{{Key: "team", Value: "b"}}
	full := append([]cloud.Tag{{Key: "other", Value: "c"}}, wanted...)
	for name, tc := range map[string]struct {
		has     []cloud.Tag
		refuses error // the first request
		max     int
		want    error
		sent    int
	}{
		"a new tag":                      {[]cloud.Tag{{Key: "other", Value: "c"}}, nil, 2, nil, 1},
		"another value":                  {[]cloud.Tag{{Key: "other", Value: "c"}, {Key: "team", Value: "a"}}, nil, 2, nil, 1},
		"what it has":                    {full, nil, 2, nil, 0},
		"too many":                       {[]cloud.Tag{{Key: "other", Value: "c"}}, nil, 1, fault.InvalidArgument, 0},
		"a tag that the cloud refuses":   {nil, refused{fault.InvalidArgument}, 2, fault.InvalidArgument, 1},
		"a volume that changes":          {[]cloud.Tag{{Key: "other", Value: "c"}}, refused{fault.Conflict}, 2, nil, 2},
		"a right that the token has not": {nil, fmt.Errorf("%w: no", fault.Denied), 2, fault.Denied, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{vol: at()}
			s.vol.Tags = tc.has
			sent := 0
			simulated(t, s, Traits{}, func(t *testing.T, b *Verbs) {
				err := b.Modify(t.Context(), Modification{
					ID: "v", Tags: wanted, Max: tc.max, Merge: func(has []cloud.Tag) []cloud.Tag { return tags.Merge(has, wanted) },
					Send: func(_ context.Context, _ *ops.Write, all []cloud.Tag) (string, error) {
						if sent++; sent == 1 && tc.refuses != nil {
							return "", tc.refuses
						}
						s.vol.Tags = all
						return "", nil
					},
				})
				if fault.Of(err) != fault.Of(tc.want) || sent != tc.sent {
					t.Errorf("Modify = %v after %d requests, want %v after %d", err, sent, tc.want, tc.sent)
				}
				if err == nil && !slices.Equal(s.vol.Tags, full) {
					t.Errorf("the volume has %v, want %v", s.vol.Tags, full)
				}
			})
		})
	}
}
