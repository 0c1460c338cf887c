package serve

import (
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
)

// previewer foresees what operations would change for the proxies of this server, and counts
// the proxies of the others.
type previewer struct{ server *server }

// Preview implements rest.Previewer.
func (p previewer) Preview(ops []storage.Op, what effect.Preview) (effect.Effect, bool) {
	effect, known := admin.Preview(p.server.xds, catalogue.Types(), ops, what)
	facts, _ := p.server.statusCache.Reports()
	if facts == nil {
		return effect, known
	}
	for replica := range facts.Replicas.Values() {
		if replica.ID != p.server.reporter.ID {
			effect.Elsewhere += replica.Proxies
		}
	}
	return effect, known
}
