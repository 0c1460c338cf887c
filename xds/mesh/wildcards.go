package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// wildcards maps a port and a pattern to the hosts under the pattern that may be routed
// by HTTP on the port.
type wildcards struct{ groups[bool] }

var wildcardRows = wildcards{groupsOf[bool](Wildcards)}

// WildcardKey is the key of a port and a pattern in the wildcard index.
func WildcardKey(port int, pattern host.Name) string {
	return service.PortKey(port) + "|" + string(pattern)
}

func (t wildcards) follow(from, to *PushContext) {
	for c := range hostRows.diff(from, to) {
		before, after := c.Old.Routable(), c.New.Routable()
		for port := range before {
			if !after[port] {
				eachWildcard(c.Key, port, func(key string) { t.remove(to, key, c.Key) })
			}
		}
		for port := range after {
			if !before[port] {
				eachWildcard(c.Key, port, func(key string) { t.add(to, key, c.Key, true) })
			}
		}
	}
}

// eachWildcard calls f with the keys of the patterns that cover a host.
func eachWildcard(h string, port int, f func(key string)) {
	for pattern := range host.Name(h).Covers() {
		if pattern.IsWildcard() {
			f(WildcardKey(port, pattern))
		}
	}
}

// HTTPHostsUnder iterates over the hosts under a pattern that may be routed by HTTP on a
// port, in order. The proxy need not see them: call Service or ServiceAt for each.
func (v *View) HTTPHostsUnder(pattern host.Name, port int) iter.Seq[string] {
	return v.ask(Wildcards, WildcardKey(port, pattern), "").(members).Keys()
}
