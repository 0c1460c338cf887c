package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

// leastPercentage is the smallest share of requests that Envoy can draw.
const leastPercentage = 0.0001

// checkMirrors checks the mirrors of a route, and warns of those that mirror nothing.
func checkMirrors(c checker, r *networking.HTTPRoute) {
	if r.GetMirror() != nil && len(r.GetMirrors()) > 0 {
		c.at("mirror").fail("excludes mirrors: move it into the list")
	}
	if r.GetMirror() != nil {
		checkDestination(c.at("mirror"), r.GetMirror())
	}
	//lint:ignore SA1019 Istio takes the deprecated field still.
	percent := r.GetMirrorPercent()
	if percent != nil {
		c.at("mirrorPercent").percentage(float64(percent.GetValue()))
	}
	c.at("mirrorPercentage").mirrorShare(r.GetMirrorPercentage())
	switch {
	case r.GetMirror() != nil && percent != nil && r.GetMirrorPercentage() != nil:
		c.at("mirrorPercent").warn("has no effect: mirrorPercentage outranks it")
	case r.GetMirror() == nil && r.GetMirrorPercentage() != nil:
		c.at("mirrorPercentage").warn("has no effect: it is the share of mirror, which is not set")
	case r.GetMirror() == nil && percent != nil:
		c.at("mirrorPercent").warn("has no effect: it is the share of mirror, which is not set")
	}
	each(c.at("mirrors"), r.GetMirrors(), func(c checker, m *networking.HTTPMirrorPolicy) {
		if m.GetDestination() == nil {
			c.at("destination").fail("is missing")
		} else {
			checkDestination(c.at("destination"), m.GetDestination())
		}
		c.at("percentage").mirrorShare(m.GetPercentage())
	})
	if len(r.GetRoute()) > 0 || r.GetDelegate() != nil {
		return
	}
	if r.GetMirror() != nil {
		c.at("mirror").warn("has no effect: only requests that go to a destination are mirrored")
	}
	if len(r.GetMirrors()) > 0 {
		c.at("mirrors").warn("has no effect: only requests that go to a destination are mirrored")
	}
}

func (c checker) mirrorShare(p *networking.Percent) {
	c.at("value").percentage(p.GetValue())
	if v := p.GetValue(); v > 0 && v < leastPercentage {
		c.at("value").warn("is less than %v and mirrors no request", leastPercentage)
	}
}
