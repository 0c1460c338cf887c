package verdict

import (
	"fmt"
	"iter"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
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
	for i, s := range spec.GetServers() {
		if o := j.earlierServer(object, s); o != nil {
			j.add(Verdict{
				Code: ServerConflict, Field: at("spec.servers", i) + ".port", Other: o.Key(),
				Message: fmt.Sprintf("%d is a port of %s too, which is older and speaks another protocol there: this server has no listener", s.GetPort().GetNumber(), o.Key()),
				Remedy:  "use another port, or the same protocol",
			})
		}
	}
}

// earlierServer finds an older Gateway with the port of a server and another protocol,
// which a proxy may run that runs this one.
func (j *judge) earlierServer(object *config.Config, s *networking.Server) *config.Config {
	selector := labels.Instance(object.Spec.(*networking.Gateway).GetSelector())
	looked := 0
	for o := range j.gatewaysAt(s.GetPort().GetNumber()) {
		if looked++; looked > maxLooked {
			break
		}
		other := o.Spec.(*networking.Gateway)
		if o == object || config.Compare(o, object) > 0 {
			continue
		}
		theirs := labels.Instance(other.GetSelector())
		if !selector.SubsetOf(theirs) && !theirs.SubsetOf(selector) {
			continue
		}
		for _, t := range other.GetServers() {
			if t.GetPort().GetNumber() == s.GetPort().GetNumber() && t.GetBind() == s.GetBind() && isHTTP(t) != isHTTP(s) {
				return o
			}
		}
	}
	return nil
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

func isHTTP(s *networking.Server) bool {
	return discovery.ParseProtocol(s.GetPort().GetProtocol()).IsHTTP()
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
