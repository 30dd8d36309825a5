package controller

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestParseLimits(t *testing.T) {
	const most = math.MaxInt64
	tests := map[string]struct {
		raw  map[string]string
		want driver.IOLimits
		says string // not empty: refused
	}{
		"none":                   {map[string]string{"tags": "a=b"}, driver.IOLimits{}, ""},
		"one for both":           {map[string]string{"iops": "500", "bandwidth": "100Mi"}, driver.IOLimits{ReadIOPS: 500, WriteIOPS: 500, ReadBandwidth: 100 << 20, WriteBandwidth: 100 << 20}, ""},
		"one direction":          {map[string]string{"writeIops": "500"}, driver.IOLimits{WriteIOPS: 500}, ""},
		"each direction":         {map[string]string{"readIops": "1000", "writeIops": "500", "readBandwidth": "2G", "writeBandwidth": "1048576"}, driver.IOLimits{ReadIOPS: 1000, WriteIOPS: 500, ReadBandwidth: 2e9, WriteBandwidth: 1 << 20}, ""},
		"both and a direction":   {map[string]string{"iops": "500", "writeBandwidth": "2048Ki"}, driver.IOLimits{ReadIOPS: 500, WriteIOPS: 500, WriteBandwidth: 2 << 20}, ""},
		"the bounds":             {map[string]string{"readIops": "10", "writeIops": "4294967290", "readBandwidth": "1Mi", "writeBandwidth": "9223372036854775807"}, driver.IOLimits{ReadIOPS: 10, WriteIOPS: 4294967290, ReadBandwidth: 1 << 20, WriteBandwidth: most}, ""},
		"ambiguous operations":   {map[string]string{"iops": "500", "readIops": "500"}, driver.IOLimits{}, "p: iops sets reads and writes: give it, or readIops and writeIops"},
		"ambiguous bandwidth":    {map[string]string{"bandwidth": "1Gi", "writeBandwidth": "1Mi"}, driver.IOLimits{}, "p: bandwidth sets reads and writes"},
		"no operations":          {map[string]string{"iops": "0"}, driver.IOLimits{}, "p: iops: not a number of operations"},
		"negative operations":    {map[string]string{"readIops": "-100"}, driver.IOLimits{}, "p: readIops:"},
		"too few operations":     {map[string]string{"writeIops": "9"}, driver.IOLimits{}, "from 10 to"},
		"too many operations":    {map[string]string{"writeIops": "4294967300"}, driver.IOLimits{}, "to 4294967290 in steps of 10"},
		"operations between":     {map[string]string{"writeIops": "105"}, driver.IOLimits{}, "in steps of 10"},
		"operations in k":        {map[string]string{"iops": "1k"}, driver.IOLimits{}, "p: iops:"},
		"operations with a plus": {map[string]string{"iops": "+100"}, driver.IOLimits{}, "p: iops:"},
		"empty operations":       {map[string]string{"iops": ""}, driver.IOLimits{}, "p: iops:"},
		"no bandwidth":           {map[string]string{"bandwidth": "0"}, driver.IOLimits{}, "p: bandwidth: not a whole number of bytes"},
		"negative bandwidth":     {map[string]string{"bandwidth": "-1Gi"}, driver.IOLimits{}, "p: bandwidth:"},
		"too little bandwidth":   {map[string]string{"readBandwidth": "1023Ki"}, driver.IOLimits{}, "at least 1Mi"},
		"too much bandwidth":     {map[string]string{"readBandwidth": "8388608Ti"}, driver.IOLimits{}, "p: readBandwidth:"},
		"bandwidth with a plus":  {map[string]string{"bandwidth": "+1Gi"}, driver.IOLimits{}, "p: bandwidth:"},
		"a fraction":             {map[string]string{"bandwidth": "1.5Gi"}, driver.IOLimits{}, "p: bandwidth:"},
		"another unit":           {map[string]string{"bandwidth": "100MB"}, driver.IOLimits{}, "p: bandwidth:"},
		"a unit twice":           {map[string]string{"bandwidth": "100MiMi"}, driver.IOLimits{}, "p: bandwidth:"},
		"a unit alone":           {map[string]string{"bandwidth": "Mi"}, driver.IOLimits{}, "p: bandwidth:"},
		"an empty bandwidth":     {map[string]string{"writeBandwidth": ""}, driver.IOLimits{}, "p: writeBandwidth:"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseLimits("p", tc.raw)
			if refused := tc.says != ""; refused != errors.Is(err, fault.InvalidArgument) || refused && !strings.Contains(err.Error(), tc.says) || got != tc.want {
				t.Errorf("parseLimits(%v) = %+v, %v, want %+v and an error with %q", tc.raw, got, err, tc.want, tc.says)
			}
		})
	}
}

// The parameters are the driver's own, whatever the cloud and the name of the driver.
func TestLimitsAreParametersOfEveryCloud(t *testing.T) {
	want := driver.IOLimits{ReadIOPS: 100, WriteIOPS: 100}
	for _, vendor := range []string{"", "dobs.csi.digitalocean.com", "linodebs.csi.linode.com", "yandex.csi.flant.com"} {
		s := classes(compat.Of(vendor))
		p, err := s.parseVolumeParameters(map[string]string{"iops": "100"})
		if err != nil || p.limits != want || len(p.backend) > 0 {
			t.Errorf("under the name %q parseVolumeParameters = %+v, %v, want %+v", vendor, p, err, want)
		}
		if _, err := s.parseMutableParameters(map[string]string{"iops": "100"}); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("a cloud that modifies nothing takes a VolumeAttributesClass: %v", err)
		}
		s.caps = cloud.Capabilities{Modify: true}
		if m, err := s.parseMutableParameters(map[string]string{"iops": "100", "tags": "a=b"}); err != nil || m.limits != want || len(m.tags) != 1 {
			t.Errorf("under the name %q parseMutableParameters = %+v, %v, want %+v", vendor, m, err, want)
		}
	}
}
