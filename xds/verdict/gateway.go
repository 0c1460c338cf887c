package verdict

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gateway judges whom a Gateway selects, and its servers beside those of others that
// one proxy may run.
func (j *judge) gateway(object *config.Config) {
	spec := object.Spec.(*networking.Gateway)
	if routers := j.known(routersRow, ""); !j.selects(spec.GetSelector(), routers) {
		unused := Verdict{
			Code: GatewayUnused, Field: "spec.selector",
			Message: fmt.Sprintf("selects no gateway proxy: nobody listens on its ports until one has the labels %s", labels.Instance(spec.GetSelector())),
			Remedy:  "start a gateway with these labels, or mend the selector",
		}
		if routers.Len() == 0 {
			unused.Remedy = "start a gateway with these labels: no gateway is known yet"
		}
		j.add(unused)
	}
	for i, s := range j.mesh().Gateway(object.Key().Path()).Servers {
		switch o := j.earlierServer(object, i, s); {
		case o != nil:
			j.add(serverConflict(object, o, i, s))
		case s.PassesBytes():
			j.unrouted(object, i, s)
		}
	}
}

func serverConflict(object, o *config.Config, i int, s *routing.Server) Verdict {
	v := Verdict{
		Code: ServerConflict, Field: at("spec.servers", i) + ".port", Other: o.Key(),
		Message: fmt.Sprintf("%d is a port of %s too, which is older and does not share it: this server has no listener", s.Port(), o.Key()),
		Remedy:  "use another port; only servers of HTTP share one",
	}
	if o == object {
		v.Other = config.Key{}
		v.Message = fmt.Sprintf("%d is the port of an earlier server too, which does not share it: this one has no listener", s.Port())
	}
	return v
}

// unrouted judges whether a tcp route is for a server that passes bytes.
func (j *judge) unrouted(object *config.Config, i int, s *routing.Server) {
	if vs, _ := j.view(object.Namespace).GatewayTCPRoute(s); vs != nil {
		return
	}
	j.add(Verdict{
		Code: ServerUnrouted, Field: at("spec.servers", i),
		Message: fmt.Sprintf("passes on what comes to port %d, and no tcp route is for it: no proxy listens there", s.Port()),
		Remedy:  "add a VirtualService that names the Gateway and a host of the server, with a tcp route, or mend the gateways, hosts and ports of one",
	})
}

// earlierServer finds the Gateway of a server that comes before one of a Gateway, has its
// port, and does not share it. A proxy may run both.
func (j *judge) earlierServer(object *config.Config, index int, s *routing.Server) *config.Config {
	selector := labels.Instance(object.Spec.(*networking.Gateway).GetSelector())
	looked := 0
	for o := range j.gatewaysAt(s.Spec.GetPort().GetNumber()) {
		if looked++; looked > maxLooked {
			break
		}
		theirs := labels.Instance(o.Spec.(*networking.Gateway).GetSelector())
		if config.Compare(o, object) > 0 || !selector.SubsetOf(theirs) && !theirs.SubsetOf(selector) {
			continue
		}
		servers := j.mesh().Gateway(o.Key().Path()).Servers
		if o == object {
			servers = servers[:index]
		}
		if slices.ContainsFunc(servers, func(t *routing.Server) bool { return collide(s, t) }) {
			return o
		}
	}
	return nil
}

// collide says whether two servers have one address and port, and cannot share it.
func collide(s, t *routing.Server) bool {
	return s.Port() == t.Port() && s.Spec.GetBind() == t.Spec.GetBind() &&
		(s.Protocol().IsHTTP() != t.Protocol().IsHTTP() || s.PassesBytes() && t.PassesBytes())
}

// gatewaysAt iterates over the Gateways with a server at a port, by path.
func (j *judge) gatewaysAt(port uint32) iter.Seq[*config.Config] {
	key := strconv.FormatUint(uint64(port), 10)
	j.read(portRow, key)
	return j.index.ports.Value(key).Values()
}

// followPorts derives the Gateways by port from those of earlier facts.
func followPorts(all pmap.Map[pmap.Map[*config.Config]], from, to Facts) pmap.Map[pmap.Map[*config.Config]] {
	for c := range pmap.Diff(from.configs(), to.configs()) {
		for port := range serverPorts(c.Old) {
			all = pmap.Remove(all, port, c.Key)
		}
		for port := range serverPorts(c.New) {
			all = pmap.Put(all, port, c.Key, c.New)
		}
	}
	return all
}

// serverPorts iterates over the ports of the servers of a Gateway, each once; none of
// another object.
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
