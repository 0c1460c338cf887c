package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// LocalityPreference says how a cluster prefers some localities to others, seen from one proxy. Nil
// means no preference. (Istio: loadbalancer.ApplyLocalityLoadBalancer.)
type LocalityPreference struct {
	setting *networking.LocalityLoadBalancerSetting
	// regions: only the region counts, since the proxy itself balances load between
	// zones.
	regions bool
	// locality is the proxy's locality. labels has the values that failoverPriority
	// compares, in its order: the proxy's own or those that the setting gives.
	locality string
	labels   []string
}

// LocalityPreference returns the locality preference of the cluster, from the rule, else from the
// service, else from the mesh. Without outlier detection there is no failover, since nothing would
// detect that a locality fails, unless the service itself asks for it. Proxies that balance load
// between zones always prefer their own region.
func (o Outbound) LocalityPreference(v *mesh.View) *LocalityPreference {
	setting, zones := o.localitySettings(v)
	var s *LocalityPreference
	switch {
	case setting != nil && setting == o.distributed():
		s = &LocalityPreference{setting: setting} // labels alone count
	case zones != nil:
		s = &LocalityPreference{setting: regional(zones), regions: true, locality: v.Region()}
	case setting != nil:
		s = &LocalityPreference{setting: setting, locality: v.Locality()}
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

// regional returns the part of a zone-aware setting that concerns regions and labels.
func regional(zones *networking.ZoneAwareLoadBalancerSetting) *networking.LocalityLoadBalancerSetting {
	out := &networking.LocalityLoadBalancerSetting{FailoverPriority: zones.GetFailoverPriority()}
	for _, f := range zones.GetFailover() {
		out.Failover = append(out.Failover, &networking.LocalityLoadBalancerSetting_Failover{From: f.GetFrom(), To: f.GetTo()})
	}
	return out
}

// distributed returns the setting that stands for the distribution of the service, nil for none.
func (o Outbound) distributed() *networking.LocalityLoadBalancerSetting {
	return destination.Distributed(o.Service.Service().Attributes.Distribution)
}

// localitySettings returns the setting that decides the cluster's preference: a locality
// setting, a zone-aware one, or neither. Any setting of the rule hides the mesh's
// zone-aware setting. A zone-aware setting that is on wins. Else the rule's locality
// setting applies, else the distribution of the service, else the mesh's setting.
func (o Outbound) localitySettings(v *mesh.View) (*networking.LocalityLoadBalancerSetting, *networking.ZoneAwareLoadBalancerSetting) {
	policy := o.Policy()
	setting, zones := policy.GetLoadBalancer().GetLocalityLbSetting(), policy.GetLoadBalancer().GetZoneAwareLbSetting()
	if own := o.distributed(); own != nil && setting == nil && !destination.Zoned(zones) {
		return own, nil
	}
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

// zones says whether a proxy with SelfDiscovery prefers its zone. It is nil for other
// proxies, which cannot. It is set even to turn the preference off, since Envoy's default
// is on.
func (o Outbound) zones(v *mesh.View) *upstream.Zones {
	if !v.Shape().SelfDiscovery {
		return nil
	}
	_, zones := o.localitySettings(v)
	return &upstream.Zones{Enabled: zones != nil, MinClusterSize: zones.GetMinClusterSize().GetValue()}
}

// SpreadsByWeight says whether proxies distribute load over localities by weight.
// Otherwise the load balancer alone chooses, and weights of localities must not bias it.
// The answer is the same for proxies of all localities.
func (o Outbound) SpreadsByWeight(v *mesh.View) bool {
	s, _ := o.localitySettings(v)
	return len(s.GetDistribute())+len(s.GetFailover())+len(s.GetFailoverPriority()) > 0
}

// ByLabels says whether endpoints of one locality may differ in priority.
func (s *LocalityPreference) ByLabels() bool { return s != nil && len(s.labels) > 0 }

// Arrange groups the endpoints of a cluster by locality, with the priorities and weights
// that apply to the proxy.
func (c Selection) Arrange(s *LocalityPreference, endpoints []*discovery.Endpoint) []upstream.Endpoints {
	if s == nil {
		return c.Localities(endpoints)
	}
	var out []upstream.Endpoints
	for at, some := range s.byMatches(endpoints) {
		for _, l := range c.Localities(some) {
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
	slices.SortStableFunc(kept, func(a, b upstream.Endpoints) int { return strings.Compare(a.Locality, b.Locality) })
	return kept
}

func weightOf(l upstream.Endpoints) uint32 {
	var sum uint64
	for _, e := range l.Endpoints {
		sum += uint64(max(e.Weight, 1))
	}
	return uint32(min(cmp.Or(uint64(l.Weight), sum), math.MaxUint32))
}

// byMatches groups endpoints by how many labels of failoverPriority they share with the
// proxy, most first. A label counts only if all labels before it match. Without labels
// there is one group.
func (s *LocalityPreference) byMatches(endpoints []*discovery.Endpoint) [][]*discovery.Endpoint {
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

// Locality is a locality as a proxy weighs it. As input of Place, Priority is the number
// of failoverPriority labels that do not match. As output, Weight 0 removes the locality.
type Locality struct {
	Label            string
	Priority, Weight uint32
}

// Place sets the priorities and weights of localities.
func (s *LocalityPreference) Place(localities []Locality) {
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

// farthest is the priority of other regions if failover names one but not this.
const farthest = 4

// distance returns the priority of a locality: 0 for the proxy's own subzone, 1 for its
// zone, 2 for its region, 3 for other regions, and 4 if failover names another region. If
// only regions count, it is 0 in the whole own region.
func (s *LocalityPreference) distance(label string) uint32 {
	own, other := upstream.Locality(s.locality), upstream.Locality(label)
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

// compact renumbers the priorities from 0 without gaps, as Envoy requires.
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

// distribute applies the first distribution for the proxy's locality: each locality that
// it names gets its share of the weight, and the others are removed. Localities under the
// same name share by their weights. Without such a distribution nothing changes.
func (s *LocalityPreference) distribute(localities []Locality) {
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

// matches says whether a locality is under a name like region/zone/* or region. (Istio:
// util.LocalityMatch.)
func matches(locality, name string) bool {
	l, n := upstream.Locality(locality), upstream.Locality(name)
	any := func(part string) bool { return part == "" || part == "*" }
	return (n.GetRegion() == "*" || n.GetRegion() == l.GetRegion()) &&
		(any(n.GetZone()) || n.GetZone() == l.GetZone()) && (any(n.GetSubZone()) || n.GetSubZone() == l.GetSubZone())
}
