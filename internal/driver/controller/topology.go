package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// zonesFor returns the acceptable places of a volume, best first: the preferred ones in their order, then the requisite ones.
// Without any the backend chooses.
func zonesFor(names driver.Names, want *csi.TopologyRequirement) ([]string, error) {
	if len(want.GetPreferred())+len(want.GetRequisite()) == 0 {
		return nil, nil
	}
	requisite, err := ourZones(names, "accessibility_requirements.requisite", want.GetRequisite())
	if err != nil {
		return nil, err
	}
	preferred, err := ourZones(names, "accessibility_requirements.preferred", want.GetPreferred())
	if err != nil {
		return nil, err
	}
	if len(want.GetRequisite()) > 0 {
		// The pod of a volume outside of requisite could not reach it.
		preferred = slices.DeleteFunc(preferred, func(z string) bool { return !slices.Contains(requisite, z) })
	}
	zones := preferred
	for _, z := range requisite {
		if !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	if len(zones) == 0 {
		keys := make([]string, 0, len(names.Topology))
		for _, k := range names.Topology {
			keys = append(keys, k.Key)
		}
		return nil, fmt.Errorf("accessibility_requirements: no entry has one place under the key %s; is the node program of this driver running there?: %w",
			strings.Join(keys, " or "), fault.InvalidArgument)
	}
	return zones, nil
}

// ourZones returns the places of this driver's entries in their order, without duplicates.
func ourZones(names driver.Names, field string, list []*csi.Topology) ([]string, error) {
	var zones []string
	for i, t := range list {
		zone, ours := names.Zone(t.GetSegments())
		if !ours || slices.Contains(zones, zone) {
			continue
		}
		if err := driver.CheckSegment(fmt.Sprintf("%s[%d]", field, i), zone); err != nil {
			return nil, err
		}
		zones = append(zones, zone)
	}
	return zones, nil
}
