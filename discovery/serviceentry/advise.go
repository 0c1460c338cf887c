package serviceentry

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The codes of advice, with that of Istio's analysis where it has one.
const (
	codeHost     = "PTL0105"
	codeAddress  = "PTL0106"
	codePort     = "PTL0107, IST0134"
	codeSelector = "PTL0108, IST0127"
	codeNoPort   = "PTL0109"
)

// maxLooked bounds the ServiceEntries that are looked at for one host, port or
// address of advice.
const maxLooked = 100

// Advise says of objects that are valid one by one, and about to be written as
// one, what is odd about them beside each other and what there is already: one
// list of warnings for each operation. It looks at what has a host, an address, a
// port or a label in common with them, found by index, and may be called from any
// goroutine.
func (s *Store) Advise(ops []storage.Op) [][]string {
	a := &advisor{stored: s.catalog, written: newCatalog(), replaced: map[string]bool{}}
	for _, op := range ops {
		key := op.Target()
		a.replaced[key.Path()] = true
		switch {
		case op.Config == nil:
		case isKind(op.Config, schema.ServiceEntry):
			a.written.addEntry(s.convert.entry(op.Config))
		case isKind(op.Config, schema.WorkloadEntry):
			a.written.replace(key.Namespace, nil, s.convert.workloadOf(op.Config))
		}
	}
	s.catalog.mu.RLock()
	defer s.catalog.mu.RUnlock()
	out := make([][]string, len(ops))
	for i, op := range ops {
		if op.Config != nil {
			out[i] = a.advise(op.Config, s.Cluster())
		}
	}
	return out
}

// isKind says whether an object is of a kind, whatever the version.
func isKind(object *config.Config, kind config.GroupVersionKind) bool {
	return object.Group == kind.Group && object.Kind == kind.Kind
}

// advisor knows the objects as they will be: those stored, without the replaced,
// and those written.
type advisor struct {
	stored, written *catalog
	replaced        map[string]bool // by path
	found           []string
}

// goes says whether a stored object will be replaced.
func (a *advisor) goes(object *config.Config) bool {
	key := object.Key()
	return a.replaced[key.Path()]
}

func (a *advisor) advise(object *config.Config, cluster string) []string {
	a.found = nil
	key := nameKey{object.Namespace, object.Name}
	switch {
	case isKind(object, schema.ServiceEntry):
		e := a.written.entries[key]
		a.hosts(e)
		a.addresses(e)
		a.ports(e)
		a.selector(e)
	case isKind(object, schema.WorkloadEntry):
		a.workload(a.written.workload(key, cluster))
	}
	return a.found
}

func (a *advisor) warn(code, format string, args ...any) {
	a.found = append(a.found, fmt.Sprintf(format, args...)+" ("+code+")")
}

// others are the entries of two lists that share proxies with e, the stored ones
// first, without e and those that are replaced.
func (a *advisor) others(e *entry, stored, written []*entry) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, o := range stored[:min(len(stored), maxLooked)] {
			if !a.goes(o.object) && meet(e, o) && !yield(o) {
				return
			}
		}
		for _, o := range written[:min(len(written), maxLooked)] {
			if o.key() != e.key() && meet(e, o) && !yield(o) {
				return
			}
		}
	}
}

// meet says whether some proxy may see the services of both. It takes a proxy for
// one of the namespaces that are named.
func meet(a, b *entry) bool {
	va, vb := a.exportTo(), b.exportTo()
	for _, namespace := range slices.Concat([]string{a.object.Namespace, b.object.Namespace}, va, vb) {
		if va.VisibleTo(namespace) && vb.VisibleTo(namespace) {
			return true
		}
	}
	return false
}

func (e *entry) exportTo() discovery.Visibility {
	for _, services := range e.services {
		return services[0].Attributes.ExportTo // of all alike
	}
	return discovery.Visibility{"~"}
}

func (a *advisor) hosts(e *entry) {
	for i, name := range lowerCase(e.spec.GetHosts()) {
		hostname := host.Name(name)
		for o := range a.others(e, a.stored.hosts[hostname], a.written.hosts[hostname]) {
			what := "proxies that see both use that of their own namespace, else the oldest"
			if o.object.Namespace == e.object.Namespace {
				what = "their endpoints are put together, and the oldest says the rest"
			}
			a.warn(codeHost, "spec.hosts[%d] %q is a host of %s too: %s", i, name, o.object.Key(), what)
			break
		}
	}
}

// addresses warns of ports that another has at the same address. Services of one
// host are one, and hosts says so.
func (a *advisor) addresses(e *entry) {
	for i, prefix := range e.ranges() {
		o := a.overlapping(e, prefix)
		if o == nil {
			continue
		}
		port, what := sharedPorts(e, o)[0], "all connections are the oldest's"
		if port.http {
			what = "only the host of a request tells them apart"
		}
		a.warn(codeAddress, "spec.addresses[%d] %s is an address of %s too, and both have port %d: %s",
			i, e.spec.GetAddresses()[i], o.object.Key(), port.number, what)
	}
}

// overlapping finds an entry with an address in a range of e, and a port that e
// has.
func (a *advisor) overlapping(e *entry, prefix netip.Prefix) (found *entry) {
	for _, c := range []*catalog{a.stored, a.written} {
		looked := 0
		c.vips.overlapping(prefix, func(o *entry) bool {
			looked++
			if (c == a.written || !a.goes(o.object)) && !sharesHost(e, o) && len(sharedPorts(e, o)) > 0 && meet(e, o) {
				found = o
			}
			return found == nil && looked < maxLooked
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// sharesHost says whether two are of one service: hosts warns of that.
func sharesHost(a, b *entry) bool {
	for hostname := range a.services {
		if _, both := b.services[hostname]; both && a.object.Namespace == b.object.Namespace {
			return true
		}
	}
	return false
}

type sharedPort struct {
	number uint32
	http   bool // in both
}

// sharedPorts are the ports that both have, those first that are not HTTP.
func sharedPorts(a, b *entry) []sharedPort {
	var out []sharedPort
	for _, p := range a.spec.GetPorts() {
		for _, q := range b.spec.GetPorts() {
			if p.GetNumber() == q.GetNumber() {
				http := discovery.ParseProtocol(p.GetProtocol()).IsHTTP() && discovery.ParseProtocol(q.GetProtocol()).IsHTTP()
				out = append(out, sharedPort{p.GetNumber(), http})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b sharedPort) int {
		switch {
		case a.http == b.http:
			return 0
		case b.http:
			return -1
		}
		return 1
	})
	return out
}

// bare are the ports of a ServiceEntry whose connections nothing but the port
// tells from others': they carry no host name, and the service has no address and
// gets none.
func (e *entry) bare() []uint32 {
	if len(e.spec.GetAddresses()) > 0 || len(address.Hosts(e.object)) == len(e.services) {
		return nil
	}
	var out []uint32
	for _, p := range e.spec.GetPorts() {
		protocol := discovery.ParseProtocol(p.GetProtocol())
		named := protocol.IsHTTP() || protocol == discovery.TLS || protocol == discovery.HTTPS
		if !named && protocol.IsServed() && !slices.Contains(out, p.GetNumber()) {
			out = append(out, p.GetNumber())
		}
	}
	return out
}

func (a *advisor) ports(e *entry) {
	for _, number := range e.bare() {
		for o := range a.others(e, a.stored.bare[number], a.written.bare[number]) {
			if sharesHost(e, o) {
				continue
			}
			a.warn(codePort, "spec.ports %d is a port of %s too, and neither has an address: all connections are the oldest's: set addresses, or other ports",
				number, o.object.Key())
			break
		}
	}
}

// selector warns where nothing is selected, and where a workload names a port
// that no ServiceEntry which selects it has.
func (a *advisor) selector(e *entry) {
	if e.selector == nil {
		return
	}
	some, odd := false, map[string]bool{}
	for w := range a.selected(e) {
		some = true
		for name := range w.instance.PortMap {
			if !a.serves(w, name) {
				odd[w.instance.Name+"\x00"+name] = true
			}
		}
	}
	if !some {
		a.warn(codeSelector, "spec.workloadSelector selects no workload of namespace %s now: there is no endpoint until one has the labels %s",
			e.object.Namespace, e.selector)
	}
	for _, key := range slices.Sorted(maps.Keys(odd))[:min(len(odd), 3)] {
		w, name, _ := strings.Cut(key, "\x00")
		a.warn(codeNoPort, "spec.workloadSelector selects workload %s, whose port %q no ServiceEntry that selects it has: it has no effect", w, name)
	}
}

func (a *advisor) selected(e *entry) iter.Seq[*workload] {
	return func(yield func(*workload) bool) {
		for w := range a.stored.place(e.object.Namespace).selected(e.selector) {
			if (w.object == nil || !a.goes(w.object)) && !yield(w) {
				return
			}
		}
		for w := range a.written.place(e.object.Namespace).selected(e.selector) {
			if !yield(w) {
				return
			}
		}
	}
}

// selecting are the ServiceEntries that will select a workload, in no order.
func (a *advisor) selecting(w *workload) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		namespace, all := w.instance.Namespace, w.instance.Endpoint.Labels
		for e := range a.stored.place(namespace).selecting(all) {
			if !a.goes(e.object) && !yield(e) {
				return
			}
		}
		for e := range a.written.place(namespace).selecting(all) {
			if !yield(e) {
				return
			}
		}
	}
}

// serves says whether a ServiceEntry that selects a workload has a port.
func (a *advisor) serves(w *workload, name string) bool {
	for e := range a.selecting(w) {
		if slices.ContainsFunc(e.spec.GetPorts(), func(p *networking.ServicePort) bool { return p.GetName() == name }) {
			return true
		}
	}
	return false
}

// workload warns of ports that no ServiceEntry has, where there is one that
// selects the workload.
func (a *advisor) workload(w *workload) {
	selected := false
	for range a.selecting(w) {
		selected = true
		break
	}
	for _, name := range slices.Sorted(maps.Keys(w.instance.PortMap)) {
		if selected && !a.serves(w, name) {
			a.warn(codeNoPort, "spec.ports[%s] is a port of no ServiceEntry that selects this workload: it has no effect", name)
		}
	}
}
