package schema

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

func checkLocality(c checker, p policy) {
	s := p.GetLoadBalancer().GetLocalityLbSetting()
	checkZoneAware(c.at("zoneAwareLbSetting"), p.GetLoadBalancer())
	if s == nil {
		return
	}
	c.at("localityLbSetting").localityLbSetting(s)
}

// checkZoneAware checks a setting that prefers the zone of the proxy.
func checkZoneAware(c checker, l *networking.LoadBalancerSettings) {
	s := l.GetZoneAwareLbSetting()
	if s == nil {
		return
	}
	if l.GetLocalityLbSetting() != nil {
		c.fail("excludes localityLbSetting: set one of them")
	}
	c.zoneAwareLbSetting(s)
	switch {
	case s.GetEnabled() != nil && !s.GetEnabled().GetValue():
	case l.GetConsistentHash() != nil:
		c.warn("prefers the region, and no zone: consistentHash chooses the endpoint")
	case l.GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH:
		c.warn("has no effect beside simple PASSTHROUGH, which chooses no endpoint")
	}
}

func (c checker) zoneAwareLbSetting(s *networking.ZoneAwareLoadBalancerSetting) {
	each(c.at("failover"), s.GetFailover(), func(c checker, f *networking.ZoneAwareLoadBalancerSetting_Failover) {
		c.failover(f.GetFrom(), f.GetTo())
	})
	failoverTwice(c.at("failover"), s.GetFailover())
	each(c.at("failoverPriority"), s.GetFailoverPriority(), func(c checker, label string) {
		key, _, _ := strings.Cut(label, "=")
		if key == "" {
			c.warn("is empty and has no effect: name a label")
		}
		if slices.Contains([]string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"}, key) {
			c.fail("%q is not for this list: regions and zones are ordered by themselves", key)
		}
	})
	if size := s.GetMinClusterSize(); size != nil && size.GetValue() == 0 {
		c.at("minClusterSize").fail("must be at least 1, is 0")
	}
}

// failoverTwice warns of a region that an earlier element of a list is for, too.
func failoverTwice[F interface{ GetFrom() string }](c checker, list []F) {
	for i, f := range list {
		if slices.ContainsFunc(list[:i], func(o F) bool { return o.GetFrom() == f.GetFrom() }) {
			c.index(i).warn("has no effect: an earlier one is for region %q, too", f.GetFrom())
		}
	}
}

// failover checks the region that a proxy leaves, and the one that it uses instead.
func (c checker) failover(from, to string) {
	c.at("from").region(from)
	c.at("to").region(to)
	if from == to {
		c.at("to").fail("must be another region than from, is %q", to)
	}
}

// (Istio: validateLocalityLbSetting.)
func (c checker) localityLbSetting(s *networking.LocalityLoadBalancerSetting) {
	if len(s.GetDistribute()) > 0 && len(s.GetFailover()) > 0 {
		c.at("failover").fail("excludes distribute: set one of them")
	}
	if len(s.GetDistribute()) > 0 && len(s.GetFailoverPriority()) > 0 {
		c.at("failoverPriority").warn("has no effect beside distribute")
	}
	each(c.at("distribute"), s.GetDistribute(), func(c checker, d *networking.LocalityLoadBalancerSetting_Distribute) {
		c.at("from").locality(d.GetFrom())
		names := slices.Sorted(maps.Keys(d.GetTo()))
		var total uint64
		for _, name := range names {
			c.at("to").key(name).locality(name)
			weight := d.GetTo()[name]
			if total += uint64(weight); weight == 0 || weight > 100 {
				c.at("to").key(name).fail("must be from 1 to 100, is %d", weight)
			}
		}
		if total != 100 {
			c.at("to").fail("the weights must add up to 100, and add up to %d", total)
		}
		c.at("to").disjoint(names)
	})
	c.at("distribute").ordered(s.GetDistribute())
	each(c.at("failover"), s.GetFailover(), func(c checker, f *networking.LocalityLoadBalancerSetting_Failover) {
		c.failover(f.GetFrom(), f.GetTo())
	})
	failoverTwice(c.at("failover"), s.GetFailover())
	each(c.at("failoverPriority"), s.GetFailoverPriority(), func(c checker, label string) {
		key, _, _ := strings.Cut(label, "=")
		if key == "" {
			c.warn("is empty and has no effect: name a label")
		}
		if key == "topology.kubernetes.io/region" && len(s.GetFailover()) > 0 {
			c.fail("%q excludes failover, which orders regions, too", key)
		}
	})
}

// locality checks a name for localities: region/zone/subzone, parts from the right may be
// missing, and the last may be "*".
func (c checker) locality(name string) {
	parts := strings.Split(name, "/")
	switch {
	case name == "":
		c.fail("is missing: name a region, region/zone or region/zone/subzone")
	case slices.Contains(parts, ""):
		c.fail("%q has an empty part", name)
	case strings.Contains(name[:len(name)-1], "*"):
		c.fail(`%q: "*" stands for all that is last`, name)
	case strings.HasSuffix(name, "*") && parts[len(parts)-1] != "*":
		c.warn(`%q: "*" stands for all only as a whole part, and no locality is named so: write region/*`, name)
	}
}

func (c checker) region(name string) {
	if strings.ContainsAny(name, "/*") {
		c.fail("must be one region, is %q", name)
	} else if name == "" {
		c.warn("is empty: it stands for what has no region")
	}
}

// ordered reports a distribution if an earlier one applies to all its callers. A narrower
// one may precede a wider one.
func (c checker) ordered(list []*networking.LocalityLoadBalancerSetting_Distribute) {
	for i, d := range list {
		for _, earlier := range list[:i] {
			if from, wide := d.GetFrom(), earlier.GetFrom(); from != "" && wide != "" && covers(wide, from) {
				c.index(i).at("from").fail("%q is never used, as an earlier one is for %q: put the narrower first", from, wide)
				break
			}
		}
	}
}

// disjoint reports localities if one of them covers another.
func (c checker) disjoint(names []string) {
	for i, name := range names {
		for _, other := range names[:i] {
			if name != "" && other != "" && (covers(name, other) || covers(other, name)) {
				c.fail("%q and %q overlap: which of them counts would be unclear", other, name)
			}
		}
	}
}

// covers says whether the name wide stands for all localities of the name narrow.
func covers(wide, narrow string) bool {
	wide = strings.TrimSuffix(strings.TrimSuffix(wide, "*"), "/")
	return wide == "" || narrow == wide || strings.HasPrefix(narrow, wide+"/")
}
