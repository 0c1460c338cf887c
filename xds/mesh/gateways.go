package mesh

import (
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Gateway is one Gateway object.
type Gateway struct {
	Config *config.Config
	Spec   *networking.Gateway
}

// at is the gateway if it has a server at a port, any where none is said, else nil.
func (g *Gateway) at(port string) *Gateway {
	if g == nil || port == "" || slices.ContainsFunc(g.Spec.GetServers(), func(s *networking.Server) bool {
		return strconv.FormatUint(uint64(s.GetPort().GetNumber()), 10) == port
	}) {
		return g
	}
	return nil
}

// Name is "namespace/name", as VirtualServices refer to it.
func (g *Gateway) Name() string { return g.Config.Namespace + "/" + g.Config.Name }

// nextGateways follows one changed Gateway.
func nextGateways(gateways pmap.Map[*Gateway], c pmap.Change[*config.Config]) pmap.Map[*Gateway] {
	if !c.HasNew {
		return gateways.Delete(c.Key)
	}
	return gateways.Set(c.Key, &Gateway{Config: c.New, Spec: c.New.Spec.(*networking.Gateway)})
}

// Server is one server of a Gateway, with the gateway it stands in.
type Server struct {
	Gateway *Gateway
	Spec    *networking.Server
}

// Port is the number of its port.
func (s *Server) Port() int { return int(s.Spec.GetPort().GetNumber()) }

// MergedGateway is all Gateways of one workload: their servers, the oldest
// gateway first. It is never modified.
type MergedGateway struct {
	Gateways []*Gateway
	Servers  []*Server
}

// selectedGateways are the paths of the gateways whose selector matches a
// router's labels, in order.
func selectedGateways(gateways pmap.Map[*Gateway], workload labels.Instance) string {
	var out []string
	for path, g := range gateways.All() {
		if labels.Instance(g.Spec.GetSelector()).SubsetOf(workload) {
			out = append(out, path)
		}
	}
	return strings.Join(out, separator)
}

// mergeGateways puts gateways together.
func mergeGateways(gateways []*Gateway) *MergedGateway {
	m := &MergedGateway{Gateways: gateways}
	slices.SortFunc(m.Gateways, func(a, b *Gateway) int { return config.Compare(a.Config, b.Config) })
	for _, g := range m.Gateways {
		for _, s := range g.Spec.GetServers() {
			m.Servers = append(m.Servers, &Server{Gateway: g, Spec: s})
		}
	}
	return m
}
