package xds

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/desired"
)

// Foreseen is what would differ on one stream of a proxy.
type Foreseen struct {
	Node        string // the node id of the proxy, which may have a stream for each type
	Differences []desired.Difference
}

// Foresee returns, for each stream of a proxy, what differs between two moments of WouldBe.
func (s *DiscoveryServer) Foresee(is, would Moment) []Foreseen {
	var viewers []desired.Viewer
	var connections []*Connection
	for _, c := range s.all() {
		if p, ok := c.note.Read(); ok && isProxy(p.Proxy) {
			viewers, connections = append(viewers, desired.Viewer{Proxy: p.Proxy, Reads: c.reads.Load()}), append(connections, c)
		}
	}
	out := make([]Foreseen, 0, len(viewers))
	for i, differences := range s.desired.Foresee(is.Context, would.Context, viewers) {
		if viewers[i].Proxy.Type == discovery.Proxyless {
			differences = connections[i].requested(differences)
		}
		out = append(out, Foreseen{viewers[i].Proxy.ID, differences})
	}
	return out
}

// requested returns the differences in resources that the client has requested. A gRPC
// client requests those of the services that it calls. If the connection is busy, it
// returns all.
func (c *Connection) requested(differences []desired.Difference) (out []desired.Difference) {
	if len(differences) == 0 || !c.mu.TryLock() {
		return differences
	}
	defer c.mu.Unlock()
	for _, d := range differences {
		if t := c.typeState(d.TypeURL); t != nil && t.subscription.Wants(d.Name) {
			out = append(out, d)
		}
	}
	return out
}
