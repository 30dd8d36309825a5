package yandex

import (
	"reflect"
	"testing"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

func TestSizesFitTheType(t *testing.T) {
	const whole = "network-ssd-nonreplicated"
	tests := map[string]struct {
		size, limit, block cloud.Bytes
		diskType           string
		want               cloud.Bytes
		kind               fault.Kind
	}{
		"the smallest":                              {1, 0, 0, "network-hdd", 4 * cloud.MiB, fault.None},
		"a step is 4 MiB":                           {4*cloud.MiB + 1, 0, 0, "network-hdd", 8 * cloud.MiB, fault.None},
		"what fits stays":                           {5 * cloud.GiB, 5 * cloud.GiB, 0, "network-ssd", 5 * cloud.GiB, fault.None},
		"whole drives have 93 GiB":                  {1, 0, 0, whole, 93 * cloud.GiB, fault.None},
		"two whole drives":                          {93*cloud.GiB + 1, 0, 0, "network-ssd-io-m3", 186 * cloud.GiB, fault.None},
		"the limit is below the step":               {10 * cloud.GiB, 20 * cloud.GiB, 0, whole, 0, fault.OutOfRange},
		"a type of the future":                      {10 * cloud.GiB, 0, 0, "network-ssd-next", 10 * cloud.GiB, fault.None},
		"8 TiB in usual blocks":                     {8 * cloud.TiB, 0, 0, "network-ssd", 8 * cloud.TiB, fault.None},
		"more than 8 TiB in usual blocks":           {8*cloud.TiB + 1, 0, 4 * cloud.KiB, "network-ssd", 0, fault.OutOfRange},
		"more than 8 TiB in larger blocks":          {9 * cloud.TiB, 0, 8 * cloud.KiB, "network-ssd", 9 * cloud.TiB, fault.None},
		"16 TiB is the end of 8 KiB":                {16*cloud.TiB + 1, 0, 8 * cloud.KiB, "network-ssd", 0, fault.OutOfRange},
		"whole drives have any size with any block": {20 * cloud.TiB, 0, 0, whole, 221 * 93 * cloud.GiB, fault.None},
		"the largest":                               {26 * cloud.TiB, 0, 128 * cloud.KiB, "network-ssd", 26 * cloud.TiB, fault.None},
		"more than the largest":                     {26*cloud.TiB + 1, 0, 128 * cloud.KiB, "network-ssd", 0, fault.OutOfRange},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := fitted(tc.size, tc.limit, tc.diskType, tc.block)
			if got != tc.want || fault.Of(err) != tc.kind {
				t.Errorf("fitted = %s, %v, want %s and the kind %q", got, err, tc.want, tc.kind)
			}
		})
	}
}

// The disk repeats later what a class gave, letter by letter, so that the same request finds its disk again.
func TestParametersAreReadBackFromTheDisk(t *testing.T) {
	for name, given := range map[string][]cloud.Parameter{
		"none":                 nil,
		"a type":               {{Name: paramType, Value: "network-ssd"}},
		"blocks in kibibytes":  {{Name: paramBlockSize, Value: "64Ki"}},
		"blocks in bytes":      {{Name: paramBlockSize, Value: "65536"}, {Name: paramType, Value: "network-hdd"}},
		"a key":                {{Name: paramEncrypted, Value: "true"}, {Name: paramKMSKey, Value: "abj0key"}},
		"no key, and said so":  {{Name: paramEncrypted, Value: "false"}},
		"a placement group":    {{Name: paramGroup, Value: "fhm0group"}, {Name: paramType, Value: "network-ssd-nonreplicated"}},
		"everything there can": {{Name: paramBlockSize, Value: "128Ki"}, {Name: paramEncrypted, Value: "true"}, {Name: paramKMSKey, Value: "abj0key"}, {Name: paramGroup, Value: "fhm0group"}, {Name: paramType, Value: "network-ssd-io-m3"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parse(given)
			expect.NoError(t, err)
			body, err := (&Cloud{owner: ownerOf("")}).createBody(cloud.CreateVolumeRequest{Name: "a", Parameters: given})
			expect.NoError(t, err)
			disk := &compute.Disk{
				TypeId: body.GetTypeId(), BlockSize: body.GetBlockSize(), KmsKey: &compute.KMSKey{KeyId: p.kmsKey}, Labels: body.GetLabels(),
				DiskPlacementPolicy: body.GetDiskPlacementPolicy(),
			}
			if got := parametersOf(disk); !reflect.DeepEqual(got, given) {
				t.Errorf("the disk tells %v, the class gave %v", got, given)
			}
		})
	}
}

func TestParametersThatMakeNoSense(t *testing.T) {
	for name, given := range map[string][]cloud.Parameter{
		"an unknown name":               {{Name: "no-such-parameter", Value: "x"}},
		"a type that is no word":        {{Name: paramType, Value: "../network-ssd"}},
		"an empty type":                 {{Name: paramType}},
		"blocks of 3 KiB":               {{Name: paramBlockSize, Value: "3Ki"}},
		"blocks of 2 KiB":               {{Name: paramBlockSize, Value: "2048"}},
		"blocks of 256 KiB":             {{Name: paramBlockSize, Value: "256Ki"}},
		"blocks that are no number":     {{Name: paramBlockSize, Value: "-4Ki"}},
		"a key that is no id":           {{Name: paramKMSKey, Value: "a/b"}},
		"encryption without a key":      {{Name: paramEncrypted, Value: "true"}},
		"no encryption and yet a key":   {{Name: paramEncrypted, Value: "false"}, {Name: paramKMSKey, Value: "abj0key"}},
		"encryption in another word":    {{Name: paramEncrypted, Value: "yes"}},
		"a group of network disks":      {{Name: paramGroup, Value: "fhm0group"}, {Name: paramType, Value: "network-ssd"}},
		"a group that is no id":         {{Name: paramGroup, Value: "a/b"}, {Name: paramType, Value: "network-ssd-nonreplicated"}},
		"an empty group":                {{Name: paramGroup}, {Name: paramType, Value: "network-ssd-nonreplicated"}},
		"encryption without any answer": {{Name: paramEncrypted, Value: "True"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(given); fault.Of(err) != fault.InvalidArgument {
				t.Errorf("parse = %v, want the kind %q", err, fault.InvalidArgument)
			}
		})
	}
}
