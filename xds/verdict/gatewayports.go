package verdict

import (
	"iter"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// GatewaysAt iterates over the Gateways with a server at a port, by path. Some are derived from
// Ingresses.
func (j *Judge) GatewaysAt(port uint32) iter.Seq[*config.Config] {
	key := strconv.FormatUint(uint64(port), 10)
	j.Read(portRow, key)
	return j.of.ports.Value(key).Values()
}

// followPorts updates the Gateways by port after a change of facts.
func followPorts(all pmap.Map[pmap.Map[*config.Config]], from, to Facts) pmap.Map[pmap.Map[*config.Config]] {
	for c := range to.Mesh.EffectiveChanges(from.Mesh) {
		for port := range serverPorts(c.Old) {
			all = pmap.Remove(all, port, c.Key)
		}
		for port := range serverPorts(c.New) {
			all = pmap.Put(all, port, c.Key, c.New)
		}
	}
	return all
}

// serverPorts iterates over the ports of a Gateway's servers, each once. It yields none for an
// object of another kind.
func serverPorts(object *config.Config) iter.Seq[string] {
	return func(yield func(string) bool) {
		if object == nil {
			return
		}
		spec, ok := object.Spec.(*networking.Gateway)
		if !ok {
			return
		}
		seen := map[uint32]bool{}
		for _, s := range spec.GetServers() {
			port := s.GetPort().GetNumber()
			if !seen[port] && !yield(strconv.FormatUint(uint64(port), 10)) {
				return
			}
			seen[port] = true
		}
	}
}
