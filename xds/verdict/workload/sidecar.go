package workload

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// Sidecar judges a Sidecar.
func Sidecar(j *verdict.Judge, object *config.Config) { (&judge{j}).sidecar(object) }

// sidecar judges whom a Sidecar selects, alone and together with other Sidecars, and what its
// egress listeners import.
func (j *judge) sidecar(object *config.Config) {
	spec := object.Spec.(*networking.Sidecar)
	selector := labels.Instance(spec.GetWorkloadSelector().GetLabels())
	if len(selector) > 0 && !j.selectsWorkload(object.Namespace, selector) {
		j.Add(verdict.Verdict{
			Code: verdict.SidecarUnused, Field: "spec.workloadSelector",
			Message: fmt.Sprintf("selects no workload of namespace %s: the Sidecar has no effect until one has the labels %s", object.Namespace, selector),
			Remedy:  "mend the labels, or add the workload",
		})
	}
	for o := range j.Objects(schema.Sidecar, object.Namespace) {
		if config.Compare(o, object) < 0 && j.overlap(object.Namespace, selector, o.Spec.(*networking.Sidecar).GetWorkloadSelector().GetLabels()) {
			j.Add(verdict.Verdict{
				Code: verdict.SidecarsOverlap, Field: "spec.workloadSelector", Other: o.Key(),
				Message: fmt.Sprintf("selects workloads that %s selects too, which is older and is used alone for these", o.Key()),
				Remedy:  "put both into one Sidecar, or give them other labels",
			})
			break
		}
	}
	for i, e := range spec.GetEgress() {
		for k, h := range e.GetHosts() {
			j.imports(object.Namespace, verdict.At(verdict.At("spec.egress", i)+".hosts", k), h)
		}
	}
	j.egressListeners(object)
	j.egressProxy(object)
	j.sidecarOfClients(object, spec)
}

// egressProxy judges the destination of traffic to unknown hosts.
func (j *judge) egressProxy(object *config.Config) {
	own := j.ViewOf(classOf(object))
	p := own.EgressProxy()
	if p == nil {
		return
	}
	const field, effect = "spec.outboundTrafficPolicy.egressProxy", "traffic to unknown hosts fails"
	written := object.Spec.(*networking.Sidecar).GetOutboundTrafficPolicy().GetEgressProxy()
	s := own.Service(p.Host)
	switch {
	case s == nil && j.Mesh().Host(p.Host) == nil:
		j.Add(verdict.Verdict{
			Code: verdict.HostUnknown, Field: field + ".host",
			Message: fmt.Sprintf("%s is of no service: %s", verdict.Named(written.GetHost(), p.Host), effect),
			Remedy:  "add a ServiceEntry with the host, or mend the name",
		})
	case s == nil:
		j.Add(verdict.Verdict{
			Code: verdict.HostNotVisible, Field: field + ".host",
			Message: fmt.Sprintf("%s is of a service that is not exported to namespace %s: %s", verdict.Named(written.GetHost(), p.Host), object.Namespace, effect),
			Remedy:  "add the namespace to exportTo of the service",
		})
	default:
		j.PortAndSubset(s, written, object.Namespace, field, effect)
	}
}

// classOf returns a class of proxies that a Sidecar is for.
func classOf(object *config.Config) mesh.Class {
	return mesh.Class{Namespace: object.Namespace, Attached: class.Attached("").Add(class.Sidecar, object.Key().Path())}
}

// egressListeners warns of an egress listener that carries no service, or that blocks a service
// on its port. It reports one blocked service for each listener.
func (j *judge) egressListeners(object *config.Config) {
	all, own := j.View(object.Namespace), j.ViewOf(classOf(object))
	for _, l := range own.Egress() {
		j.unusedListener(own, l)
		if l.Port == 0 {
			continue
		}
		looked := 0
		for s, use := range onPort(all, l.Port) {
			if looked++; looked > verdict.MaxLooked || j.takenPort(own, l, s, use) {
				break
			}
		}
	}
}

// unusedListener warns of an egress listener with a port or a socket that carries no service. A
// listener for HTTP of all ports needs none.
func (j *judge) unusedListener(own *mesh.View, l mesh.EgressListener) {
	whole := l.IsHTTPProxy() || l.Socket != "" && l.TakesHTTP()
	switch {
	case whole || !l.Protocol.IsServed():
	case l.Socket != "":
		if s, _ := own.SocketService(l); s == nil {
			j.Add(verdict.Verdict{
				Code: verdict.ListenerUnused, Field: verdict.At("spec.egress", l.Index) + ".hosts",
				Message: "names no service by its full host that has one port, or one without HTTP: the proxies do not open the socket, whose connections go to one service",
				Remedy:  "name the host of the service, or use the protocol HTTP",
			})
		}
	case l.Port != 0 && !own.SeesPort(l, l.Port):
		j.Add(verdict.Verdict{
			Code: verdict.ListenerUnused, Field: verdict.At("spec.egress", l.Index) + ".port",
			Message: fmt.Sprintf("%d is a port of no service that the listener imports: the proxies do not open it", l.Port),
			Remedy:  "use a port of the services, import others, or use the protocol HTTP_PROXY for services of all ports",
		})
	}
}

// onPort iterates over the services that a view sees on a port.
func onPort(v *mesh.View, port int) iter.Seq2[*mesh.ServiceRow, service.PortUse] {
	return func(yield func(*mesh.ServiceRow, service.PortUse) bool) {
		for _, use := range []service.PortUse{service.PortHTTP, service.PortTCP} {
			for s := range v.ServicesOnPort(v.Egress()[0], use, port) {
				if !yield(s, use) {
					return
				}
			}
		}
	}
}

// takenPort warns if proxies see a service but cannot call it, because an egress listener has
// its port. It reports whether it warned.
func (j *judge) takenPort(v *mesh.View, l mesh.EgressListener, s *mesh.ServiceRow, use service.PortUse) bool {
	verdict := verdict.Verdict{Code: verdict.ListenerTaken, Field: verdict.At("spec.egress", l.Index) + ".port", Other: entryOf(s)}
	switch {
	case v.Service(s.Hostname) != s:
		return false
	case slices.ContainsFunc(v.Egress(), func(o mesh.EgressListener) bool {
		return o.Port == l.Port && o.Index != l.Index && v.ServiceAt(o, s.Hostname) == s
	}):
		return false // a listener of the port at another address has it
	case l.IsHTTPProxy():
		verdict.Message = fmt.Sprintf("%d is a port of %s too, and this listener is an HTTP proxy: the proxies cannot call the service on the port", l.Port, s.Hostname)
		verdict.Remedy = "use another port"
	case v.ServiceAt(l, s.Hostname) != s:
		verdict.Message = fmt.Sprintf("%d is a port of %s too, which this listener does not import: the proxies cannot call it on the port", l.Port, s.Hostname)
		verdict.Remedy = "add the host to the hosts of this listener, or use another port"
	case l.Protocol.IsHTTP() && use == service.PortTCP:
		verdict.Message = fmt.Sprintf("%d speaks HTTP here and not at %s: the proxies cannot call that on the port", l.Port, s.Hostname)
		verdict.Remedy = "use the protocol of the service, or another port"
	default:
		return false
	}
	j.Add(verdict)
	return true
}

// entryOf returns the ServiceEntry of a service, the zero Key if it is of another registry.
func entryOf(s *mesh.ServiceRow) config.Key {
	a := s.Service().Attributes
	if a.Provider != discovery.External {
		return config.Key{}
	}
	return config.Key{Kind: schema.ServiceEntry, Namespace: a.Namespace, Name: a.Name}
}

// overlap reports whether two selectors select a common workload. One without labels is only the
// default, and overlaps only with another default.
func (j *judge) overlap(namespace string, selector, theirs labels.Instance) bool {
	if len(selector) == 0 || len(theirs) == 0 {
		return len(selector) == len(theirs)
	}
	both := maps.Clone(theirs)
	for k, v := range selector {
		if t, has := both[k]; has && t != v {
			return false
		}
		both[k] = v
	}
	return j.selectsWorkload(namespace, both)
}

// selectsWorkload reports whether a selector selects a known sidecar in a namespace, or a
// WorkloadEntry.
func (j *judge) selectsWorkload(namespace string, selector labels.Instance) bool {
	if j.Selects(selector, j.Known(verdict.SidecarsRow, namespace)) {
		return true
	}
	for entry := range j.Objects(schema.WorkloadEntry, namespace) {
		if selector.SubsetOf(labels.Instance(entry.Spec.(*networking.WorkloadEntry).GetLabels())) {
			return true
		}
	}
	return false
}

// imports warns if an entry of an egress listener imports no service. It accepts entries for
// all hosts of the own namespace, or of all namespaces: users write them for services to come.
func (j *judge) imports(own, field, entry string) {
	namespace, name, _ := strings.Cut(strings.ToLower(entry), "/")
	if strings.HasPrefix(namespace, "~") || name == "*" && (namespace == "." || namespace == "*" || namespace == own) {
		return
	}
	if namespace == "." {
		namespace = own
	}
	hidden := false
	for s := range j.Services(host.Name(name)) {
		if namespace == "*" || s.Namespace == namespace {
			if s.Service().Attributes.ExportTo.VisibleTo(own) {
				return
			}
			hidden = true
		}
	}
	message := fmt.Sprintf("%q imports no service", entry)
	if hidden {
		message += ": what it names is not exported to namespace " + own
	}
	j.Add(verdict.Verdict{Code: verdict.ImportsNothing, Field: field, Message: message, Remedy: "mend the namespace or the host"})
}
