package mesh

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// Workload names the object of a workload, as an endpoint does.
type Workload struct{ Namespace, Name string }

// WorkloadsAt are the headless services with a workload at one address and port, by rows.Key.
type WorkloadsAt = pmap.Map[Workload]

// headless maps an address and a port to the headless services that have a workload there,
// whatever its health: clients name the address.
type headless struct{ groups[Workload] }

var headlessRows = headless{groupsOf[Workload](Headless)}

func (t headless) follow(from, to *PushContext) {
	for c := range pmap.Diff(from.inputs.Services, to.inputs.Services) {
		if c.Old.Headless() || c.New.Headless() {
			old, now := from.inputs.Endpoints.Value(c.Key).Workloads(), to.inputs.Endpoints.Value(c.Key).Workloads()
			t.set(to, c.Key, socketsOf(c.Old, old, nil), socketsOf(c.New, now, nil))
		}
	}
	for c := range pmap.Diff(from.inputs.Endpoints, to.inputs.Endpoints) {
		s := to.inputs.Services.Value(c.Key)
		if !s.Headless() || s != from.inputs.Services.Value(c.Key) {
			continue // not headless, or done above
		}
		old, now := c.Old.Workloads(), c.New.Workloads()
		touched := service.TouchedAddresses(old, now)
		t.set(to, c.Key, socketsOf(s, old, touched), socketsOf(s, now, touched))
	}
}

// socketsOf returns the first workload at each SocketKey of a service. It looks at some addresses,
// or if these are nil at all.
func socketsOf(s *ServiceRow, endpoints []*discovery.Endpoint, at map[string]bool) map[string]Workload {
	out := map[string]Workload{}
	for port, e := range service.Sockets(s, endpoints) {
		if at != nil && !at[service.AddressKey(e.Address)] {
			continue
		}
		key := service.SocketKey(e.Address, port)
		if _, known := out[key]; !known {
			out[key] = Workload{e.Namespace, e.WorkloadName}
		}
	}
	return out
}

// set replaces the sockets of a service.
func (t headless) set(p *PushContext, key string, before, after map[string]Workload) {
	for socket := range before {
		if _, still := after[socket]; !still {
			t.remove(p, socket, key)
		}
	}
	for socket, w := range after {
		if was, already := before[socket]; !already || was != w {
			t.add(p, socket, key, w)
		}
	}
}

// HeadlessAt returns the headless services with a workload at an address and port that the proxy
// sees through a listener, the oldest first.
func (v *View) HeadlessAt(l EgressListener, address string, port int) []*ServiceRow {
	var out []*ServiceRow
	for key := range v.ask(Headless, service.SocketKey(address, port), "").(WorkloadsAt).Keys() {
		h, namespace := rows.SplitKey(key)
		if s := v.ServiceAt(l, h); s != nil && s.Namespace == namespace {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, rows.Compare)
	return out
}

// Sockets iterates over the addresses at which clients call a port of a headless service, some
// maybe twice. It does not record.
func (v *View) Sockets(s *ServiceRow, port int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at, e := range service.Sockets(s, v.push.EndpointsOf(s).Workloads()) {
			if at == port && !yield(service.AddressKey(e.Address)) {
				return
			}
		}
	}
}

// Sockets iterates over the addresses and ports at which headless services have begun or ceased to
// have a workload, in order.
func (d Delta) Sockets() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for c := range headlessRows.diff(d.from, d.to) {
			if !yield(service.SplitSocketKey(c.Key)) {
				return
			}
		}
	}
}
