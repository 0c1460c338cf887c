package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// Spread is how a cluster prefers some localities to others, seen from one proxy. Nil is
// no preference. (Istio: loadbalancer.ApplyLocalityLoadBalancer.)
type Spread struct {
	setting *networking.LocalityLoadBalancerSetting
	// regions: only the region counts, as the proxy shares load among zones by itself.
	regions bool
	// locality is the proxy's locality, and labels holds the values of its labels that the
	// setting compares, by their place in failoverPriority.
	locality string
	labels   []string
}

// Spread returns the preference of the cluster: as the rule says, else the mesh. Without
// outlier detection there is no failover, since nothing would tell that a locality fails.
// But where proxies share load among zones, these are always those of their own region.
func (o Outbound) Spread(v *mesh.View) *Spread {
	setting, zones := o.localitySettings(v)
	var s *Spread
	switch {
	case zones != nil:
		s = &Spread{setting: regional(zones), regions: true, locality: v.Region()}
	case setting != nil:
		s = &Spread{setting: setting, locality: v.Locality()}
	default:
		return nil
	}
	setting = s.setting
	if len(setting.GetDistribute()) == 0 {
		for _, priority := range setting.GetFailoverPriority() {
			key, value, valued := strings.Cut(priority, "=")
			if !valued {
				value = v.Label(key)
			}
			s.labels = append(s.labels, value)
		}
	}
	return s
}

// regional is the part of a setting that concerns regions and labels.
func regional(zones *networking.ZoneAwareLoadBalancerSetting) *networking.LocalityLoadBalancerSetting {
	out := &networking.LocalityLoadBalancerSetting{FailoverPriority: zones.GetFailoverPriority()}
	for _, f := range zones.GetFailover() {
		out.Failover = append(out.Failover, &networking.LocalityLoadBalancerSetting_Failover{From: f.GetFrom(), To: f.GetTo()})
	}
	return out
}

// localitySettings returns the setting that the cluster's preference follows: one of the
// two, or none. Either setting of a rule replaces the mesh's settings, of which zones come
// first.
func (o Outbound) localitySettings(v *mesh.View) (*networking.LocalityLoadBalancerSetting, *networking.ZoneAwareLoadBalancerSetting) {
	policy := o.Policy()
	setting, zones := policy.GetLoadBalancer().GetLocalityLbSetting(), policy.GetLoadBalancer().GetZoneAwareLbSetting()
	if setting == nil && zones == nil {
		zones = v.Mesh(mesh.ZoneAwareLbSetting).GetZoneAwareLbSetting()
	}
	if destination.Zoned(zones) {
		return nil, zones
	}
	if setting == nil {
		setting = v.Mesh(mesh.LocalityLbSetting).GetLocalityLbSetting()
	}
	if setting == nil || destination.Off(setting) || len(setting.GetDistribute()) == 0 && policy.GetOutlierDetection() == nil {
		return nil, nil
	}
	return setting, nil
}

// zones is whether a proxy that knows the endpoints of its own service prefers its zone;
// nil for any other proxy, which cannot. Envoy would prefer it everywhere.
func (o Outbound) zones(v *mesh.View) *envoy.Zones {
	if !v.Shape().SelfDiscovery {
		return nil
	}
	_, zones := o.localitySettings(v)
	return &envoy.Zones{Enabled: zones != nil, MinClusterSize: zones.GetMinClusterSize().GetValue()}
}

// SpreadsByWeight says whether proxies spread over localities by their weights. Otherwise
// they would prefer, by weights, what the load balancer is to choose. It is the same for
// proxies of all localities.
func (o Outbound) SpreadsByWeight(v *mesh.View) bool {
	s, _ := o.localitySettings(v)
	return len(s.GetDistribute())+len(s.GetFailover())+len(s.GetFailoverPriority()) > 0
}

// ByLabels says whether endpoints of one locality may differ in their priority.
func (s *Spread) ByLabels() bool { return s != nil && len(s.labels) > 0 }

// Arrange groups the endpoints of a cluster by locality, with the priorities and weights
// that a proxy has for them.
func (o Outbound) Arrange(shape mesh.Shape, s *Spread, endpoints []*discovery.Endpoint) []envoy.Endpoints {
	if s == nil {
		return o.Localities(shape, endpoints)
	}
	var out []envoy.Endpoints
	for at, some := range s.byMatches(endpoints) {
		for _, l := range o.Localities(shape, some) {
			l.Priority = uint32(at)
			out = append(out, l)
		}
	}
	places := make([]Locality, len(out))
	for i, l := range out {
		places[i] = Locality{l.Locality, l.Priority, weightOf(l)}
	}
	s.Place(places)
	kept := out[:0]
	for i, l := range out {
		if l.Priority, l.Weight = places[i].Priority, places[i].Weight; l.Weight > 0 {
			kept = append(kept, l)
		}
	}
	slices.SortStableFunc(kept, func(a, b envoy.Endpoints) int { return strings.Compare(a.Locality, b.Locality) })
	return kept
}

func weightOf(l envoy.Endpoints) uint32 {
	var sum uint64
	for _, e := range l.Endpoints {
		sum += uint64(max(e.Weight, 1))
	}
	return uint32(min(cmp.Or(uint64(l.Weight), sum), math.MaxUint32))
}

// byMatches groups endpoints by how many labels of failoverPriority they have as the
// proxy has them, all of them first. A label counts where all before it match. Without
// labels there is one group.
func (s *Spread) byMatches(endpoints []*discovery.Endpoint) [][]*discovery.Endpoint {
	out := make([][]*discovery.Endpoint, len(s.labels)+1)
	for _, e := range endpoints {
		place, matched := e.Place(), 0
		for i, value := range s.labels {
			key, _, _ := strings.Cut(s.setting.GetFailoverPriority()[i], "=")
			if place.Label(key) != value {
				break
			}
			matched++
		}
		at := len(s.labels) - matched
		out[at] = append(out[at], e)
	}
	return out
}

// Locality is a locality as a proxy weighs it. Its priority comes in as the number of
// labels of failoverPriority that it lacks. A weight of 0 takes it out.
type Locality struct {
	Label            string
	Priority, Weight uint32
}

// Place gives localities their priorities and weights.
func (s *Spread) Place(localities []Locality) {
	if len(s.setting.GetDistribute()) > 0 {
		s.distribute(localities)
		return
	}
	for i, l := range localities {
		switch p := s.distance(l.Label); {
		case len(s.labels) == 0:
			localities[i].Priority = p
		case s.regions || len(s.setting.GetFailover()) > 0:
			localities[i].Priority = l.Priority*(farthest+1) + p
		}
	}
	compact(localities)
}

// farthest is the priority of a region that failover does not name.
const farthest = 4

// distance is the priority of a locality: 0 for the proxy's own, 1 of its zone, 2 of its
// region, 3 elsewhere, and 4 where failover names another region. Where only regions
// count, it is 0 in the proxy's own.
func (s *Spread) distance(label string) uint32 {
	own, other := envoy.Locality(s.locality), envoy.Locality(label)
	switch {
	case own.GetRegion() != other.GetRegion():
		for _, f := range s.setting.GetFailover() {
			if f.GetFrom() == own.GetRegion() {
				if f.GetTo() == other.GetRegion() {
					return 3
				}
				return farthest
			}
		}
		return 3
	case s.regions:
		return 0
	case own.GetZone() != other.GetZone():
		return 2
	case own.GetSubZone() != other.GetSubZone():
		return 1
	}
	return 0
}

// compact renumbers priorities from 0 on without gaps, as Envoy needs them.
func compact(localities []Locality) {
	var used []uint32
	for _, l := range localities {
		if l.Weight > 0 {
			used = append(used, l.Priority)
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	for i, l := range localities {
		at, _ := slices.BinarySearch(used, l.Priority)
		localities[i].Priority = uint32(at)
	}
}

// distribute gives each locality that the first distribution for the proxy names its
// share of the weight, and takes the others out. Localities under one name share by
// their weights. Without such a distribution all stay as they are.
func (s *Spread) distribute(localities []Locality) {
	for _, d := range s.setting.GetDistribute() {
		if !matches(s.locality, d.GetFrom()) {
			continue
		}
		taken := make([]bool, len(localities))
		for _, name := range slices.Sorted(maps.Keys(d.GetTo())) {
			var total uint64
			var under []int
			for i, l := range localities {
				if !taken[i] && matches(l.Label, name) {
					taken[i] = true
					under, total = append(under, i), total+uint64(l.Weight)
				}
			}
			for _, i := range under {
				share := uint64(localities[i].Weight) * uint64(d.GetTo()[name])
				localities[i].Weight = uint32((share + total - 1) / max(total, 1))
			}
		}
		for i := range localities {
			if !taken[i] {
				localities[i].Weight = 0
			}
		}
		return
	}
}

// matches says whether a locality is under a name, such as region/zone/* or region.
// (Istio: util.LocalityMatch.)
func matches(locality, name string) bool {
	l, n := envoy.Locality(locality), envoy.Locality(name)
	any := func(part string) bool { return part == "" || part == "*" }
	return (n.GetRegion() == "*" || n.GetRegion() == l.GetRegion()) &&
		(any(n.GetZone()) || n.GetZone() == l.GetZone()) && (any(n.GetSubZone()) || n.GetSubZone() == l.GetSubZone())
}
