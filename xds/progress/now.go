package progress

import (
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// An object of another source than the store has no revision by which it could be said
// which proxies have it. It is judged by all that there is: a server has published its
// content, and its proxies lack nothing of what is published.

// Now counts how the proxies took all that is published, whatever its revision: who lacks
// nothing is Accepted, who rejects something Rejected.
func (s *Snapshot) Now() status.Count {
	return s.count(func(p *Proxy) outcome { return p.now(s.generation) })
}

// now returns how the proxy took all up to a push.
func (p *Proxy) now(generation uint64) outcome {
	out := accepted
	if p.Generation < generation {
		return waiting
	}
	for i := range p.Types {
		switch p.Types[i].State {
		case protocol.Stale:
			return waiting
		case protocol.Rejected:
			out = rejected
		}
	}
	return out
}
