package workload

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// uncaptured warns of a ServiceEntry that sidecars without traffic capture cannot serve: they
// cannot tell which service a connection is for, or which address the client meant.
func (j *judge) uncaptured(object *config.Config, spec *networking.ServiceEntry) {
	for i, h := range spec.GetHosts() {
		s := j.serviceIn(host.Name(strings.ToLower(h)), object.Namespace)
		switch {
		case s == nil || verdict.IsDynamic(s):
		case s.Service().Resolution == discovery.Passthrough:
			if j.unreached(s) {
				return
			}
		case entryOf(s) == object.Key():
			j.uncapturedPorts(verdict.At("spec.hosts", i), s)
		}
	}
}

// serviceIn returns the service of a host in a namespace, nil for none.
func (j *judge) serviceIn(h host.Name, namespace string) *mesh.ServiceRow {
	j.Read(verdict.HostsRow, string(h))
	if row := j.Mesh().Host(h); row != nil {
		for _, s := range row.Services {
			if s.Namespace == namespace {
				return s
			}
		}
	}
	return nil
}

// unreached warns, and returns true, if a sidecar that captures no traffic sees a service with
// resolution NONE.
func (j *judge) unreached(s *mesh.ServiceRow) bool {
	for namespace, v := range j.bystanders() {
		if v.Service(s.Hostname) != s {
			continue
		}
		j.Add(verdict.Verdict{
			Code: verdict.NoneUncaptured, Field: "spec.resolution",
			Message: fmt.Sprintf("NONE passes connections on to the address that the client meant, and there are sidecars in namespace %s that capture no traffic and do not know it: calls through these fail", namespace),
			Remedy:  "have these sidecars capture traffic, or use resolution STATIC or DNS with endpoints",
		})
		return true
	}
	return false
}

// uncapturedPorts warns of the first port on which a sidecar that captures no traffic sends the
// connections to a service to an older one.
func (j *judge) uncapturedPorts(field string, s *mesh.ServiceRow) {
	ports := slices.DeleteFunc(slices.Clone(s.Ports()), func(p discovery.Port) bool { return p.Protocol.IsHTTP() || !p.Protocol.IsServed() })
	if len(ports) == 0 {
		return
	}
	for namespace, v := range j.bystanders() {
		if v.Service(s.Hostname) != s {
			continue
		}
		for _, p := range ports {
			o := receiver(v, s, p)
			if o == nil {
				continue
			}
			j.Add(verdict.Verdict{
				Code: verdict.PortUncaptured, Field: field, Other: entryOf(o),
				Message: fmt.Sprintf("%s shares port %d with %s, which is older, and there are sidecars in namespace %s that capture no traffic: from these, all connections on the port are those of %s", s.Hostname, p.Number, o.Hostname, namespace, o.Hostname),
				Remedy:  "use another port, or have these sidecars capture traffic",
			})
			return
		}
	}
}

// receiver returns the service that gets the connections to s on a port, on every listener that
// carries s. It returns nil if s gets its own on one of them, or none carries s. If both speak
// TLS, the SNI tells them apart.
func receiver(v *mesh.View, s *mesh.ServiceRow, p discovery.Port) *mesh.ServiceRow {
	var found *mesh.ServiceRow
	for _, l := range v.Egress() {
		if l.Socket != "" || l.Port != 0 && l.Port != p.Number || l.Protocol.IsHTTP() || l.IsHTTPProxy() || v.ServiceAt(l, s.Hostname) != s {
			continue
		}
		for o := range v.ServicesOnPort(l, service.PortTCP, p.Number) {
			theirs, _ := o.Port(p.Number)
			if o == s || p.Protocol.IsTLS() && theirs.Protocol.IsTLS() {
				return nil
			}
			if verdict.IsDynamic(o) {
				continue
			}
			found = o
			break
		}
	}
	return found
}

// bystanders iterates over the views of known sidecars whose listeners are bound to no service
// address: they capture no traffic, and do not listen on the addresses of services. It yields
// one view for each class of namespace, Sidecar and shape.
func (j *judge) bystanders() iter.Seq2[string, *mesh.View] {
	return func(yield func(string, *mesh.View) bool) {
		seen := map[*mesh.View]bool{}
		looked := 0
		for p := range j.Known(verdict.BystandersRow, "").Values() {
			if looked++; looked > verdict.MaxLooked {
				return
			}
			proxy := verdict.ProxyOf(p)
			view := j.SeenBy(proxy)
			if seen[view] {
				continue
			}
			if seen[view] = true; !yield(proxy.Namespace, view) {
				return
			}
		}
	}
}
