package verdict

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Lookup is facts with the indexes that judges look things up in. It is never modified; the next
// one shares with it all that did not change.
type Lookup struct {
	Facts
	proxies proxies
	ports   pmap.Map[pmap.Map[*config.Config]] // Gateways by the port of a server, and path
}

// Next derives the Lookup of other facts.
func (l Lookup) Next(to Facts) Lookup {
	return Lookup{to, followProxies(l.proxies, l.Facts, to), followPorts(l.ports, l.Facts, to)}
}
