package progress

import (
	"time"

	"github.com/portolan-mesh/portolan/cache/statuses"
)

// Place says where a known proxy is connected, if not to this server.
type Place struct {
	Node string
	// Namespace is that of the proxy, empty where a server of an older version met it.
	Namespace string
	// Server is the id of the other server, empty for none, and API the address of its
	// config API, empty if that is unknown.
	Server, API string
	// Seen is when the proxy connected, or was last seen.
	Seen time.Time
}

// Elsewhere returns where the known proxies are connected, by node id. What it says of
// the proxies of this server means nothing, and the rest is about a second old.
func (v *View) Elsewhere() []Place { return elsewhere(v.ID, v.facts()) }

// elsewhere returns the places of the known proxies, as a server with an id sees them.
func elsewhere(id string, facts *statuses.Facts) []Place {
	var out []Place
	for proxy := range facts.Proxies.Values() {
		place := Place{Node: proxy.Node, Namespace: proxy.Namespace, Seen: proxy.Seen}
		if replica := liveServer(facts, proxy.Replica); replica != nil && replica.ID != id {
			place.Server, place.API = replica.ID, replica.API
		}
		out = append(out, place)
	}
	return out
}
