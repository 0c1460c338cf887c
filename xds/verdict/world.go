package verdict

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// World is facts with the indexes that judges look things up in. It is never modified; the next
// one shares with it all that did not change.
type World struct {
	Facts
	proxies proxies
	ports   pmap.Map[pmap.Map[*config.Config]] // Gateways by the port of a server, and path
}

// Next derives the world of other facts.
func (w World) Next(to Facts) World {
	return World{to, followProxies(w.proxies, w.Facts, to), followPorts(w.ports, w.Facts, to)}
}
