package driver

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// domain is the domain in the default driver name and topology key of every cloud.
const domain = "csi.cloudblock.io"

// TopologyKey is a label with the place of nodes and volumes.
type TopologyKey struct {
	// Key is the whole label, such as "topology.local.csi.cloudblock.io/node".
	Key string
	// Scope is the kind of place that the label's value is, one of package profile's.
	Scope string
}

// Names are the public names of this driver.
type Names struct {
	// Driver is the CSI driver name, which is also the prefix of keys in volume and publish contexts.
	Driver string
	// Topology has at least one key. The driver reports all of them and accepts any of them.
	Topology []TopologyKey
	// Vendor is the vendor's driver with this driver name; nil: there is none.
	Vendor *compat.Vendor
	// Cloud is the --cloud of the volumes.
	Cloud string
}

var (
	driverName  = regexp.MustCompile(`^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$`)
	keyPrefix   = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)
	segmentText = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)
)

// segmentLimit is the maximum length of a name or value of a topology segment, and of a driver name.
const segmentLimit = 63

// NewNames returns the names for a cloud whose volumes are bound to places of this scope. A driverName that is not empty overrides
// the default. topologyFlags are the values of --topology-key (KEY=SCOPE). Without any, the topology key is the default, or with
// the name of a vendor's driver the vendor's own. NewNames reports all mistakes at once.
func NewNames(cloud, scope, driverName string, topologyFlags []string) (Names, error) {
	n := Names{Driver: driverName, Vendor: compat.Of(driverName), Cloud: cloud}
	if n.Driver == "" {
		n.Driver = cloud + "." + domain
	}
	var mistakes []error
	if err := checkDriverName(n.Driver); err != nil {
		mistakes = append(mistakes, err)
	}
	if n.Vendor != nil && n.Vendor.Cloud != cloud {
		mistakes = append(mistakes, fmt.Errorf("--driver-name %s: this is the driver of --cloud %s, and not of --cloud %s: %w",
			n.Driver, n.Vendor.Cloud, cloud, fault.InvalidArgument))
	} else if n.Vendor != nil && len(topologyFlags) == 0 {
		topologyFlags = n.Vendor.TopologyKeys
	}
	for _, flag := range topologyFlags {
		key, err := parseTopologyKey(flag, scope)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		// Keys are case-insensitive, as the CSI specification requires.
		same := func(k TopologyKey) bool { return strings.EqualFold(k.Key, key.Key) }
		if slices.ContainsFunc(n.Topology, same) {
			mistakes = append(mistakes, fmt.Errorf("--topology-key %s: given twice: %w", key.Key, fault.InvalidArgument))
			continue
		}
		n.Topology = append(n.Topology, key)
	}
	if len(mistakes) == 0 && len(n.Topology) > 0 && !slices.ContainsFunc(n.Topology, func(k TopologyKey) bool { return k.Scope == scope }) {
		mistakes = append(mistakes, fmt.Errorf("--topology-key: volumes of this cloud are bound to a %s, and no key says which: %w", scope, fault.InvalidArgument))
	}
	if len(topologyFlags) == 0 {
		n.Topology = []TopologyKey{{Key: "topology." + cloud + "." + domain + "/" + scope, Scope: scope}}
	}
	if err := errors.Join(mistakes...); err != nil {
		return Names{}, err
	}
	return n, nil
}

// VolumeID returns the cloud's id of the volume with a handle. They differ if the handle is one of a vendor's driver that adds something,
// under whatever driver name.
func (n Names) VolumeID(handle string) string { return compat.ID(n.Cloud, handle) }

func checkDriverName(name string) error {
	if len(name) > segmentLimit || !driverName.MatchString(name) {
		return fmt.Errorf("--driver-name: not a domain name of at most %d letters, digits, dashes and dots: %w",
			segmentLimit, fault.InvalidArgument)
	}
	return nil
}

func parseTopologyKey(flag, scope string) (TopologyKey, error) {
	key, got, found := strings.Cut(flag, "=")
	if !found {
		return TopologyKey{}, fmt.Errorf("--topology-key %q: not of the form KEY=%s: %w", flag, scope, fault.InvalidArgument)
	}
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		prefix, name = "", key
	}
	switch {
	case prefixed && (len(prefix) > segmentLimit || !keyPrefix.MatchString(prefix)),
		len(name) > segmentLimit || !segmentText.MatchString(name):
		return TopologyKey{}, fmt.Errorf("--topology-key %q: the key is not a label name: %w", flag, fault.InvalidArgument)
	case got != profile.ScopeRegion && got != profile.ScopeZone && got != profile.ScopeNode:
		return TopologyKey{}, fmt.Errorf("--topology-key %q: the scope is not region, zone or node: %w", flag, fault.InvalidArgument)
	case got != scope && (got != profile.ScopeRegion || scope != profile.ScopeZone):
		return TopologyKey{}, fmt.Errorf("--topology-key %q: volumes of this cloud are bound to a %s, not to a %s: %w",
			flag, scope, got, fault.InvalidArgument)
	}
	return TopologyKey{Key: key, Scope: got}, nil
}

// Segments returns the topology of a place: every key has the place as its value. If the keys include zones and regions, the value
// of a region is that of the zone.
func (n Names) Segments(zone string) map[string]string {
	segments := make(map[string]string, len(n.Topology))
	for _, k := range n.Topology {
		segments[k.Key] = n.value(k, zone)
	}
	return segments
}

// value returns the value of a key for a place.
func (n Names) value(k TopologyKey, zone string) string {
	if n.follows(k) {
		return regionOf(zone)
	}
	return zone
}

// follows reports whether the value of a key follows from that of another one: a region from a zone.
func (n Names) follows(k TopologyKey) bool {
	return k.Scope == profile.ScopeRegion && slices.ContainsFunc(n.Topology, func(other TopologyKey) bool { return other.Scope == profile.ScopeZone })
}

// regionOf returns the region of a zone, in clouds whose names of zones begin with the region: ru-central1-a.
func regionOf(zone string) string {
	if at := strings.LastIndex(zone, "-"); at > 0 {
		return zone[:at]
	}
	return zone
}

// Zone returns the place in segments with any of this driver's keys. It is false if none of the keys is there, or if two of them
// have different places, which no node can be in. If volumes are bound to zones, a region alone is not a place.
func (n Names) Zone(segments map[string]string) (string, bool) {
	found := make(map[string]bool, 1)
	for _, k := range n.Topology {
		if zone := segments[k.Key]; zone != "" && !n.follows(k) {
			found[zone] = true
		}
	}
	if len(found) != 1 {
		return "", false
	}
	zone := slices.Collect(maps.Keys(found))[0]
	for _, k := range n.Topology {
		if region := segments[k.Key]; region != "" && n.follows(k) && region != regionOf(zone) {
			return "", false
		}
	}
	return zone, true
}
