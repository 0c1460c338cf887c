package patch

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
)

// Listener applies the patches of LISTENER and of all that is in a listener, also those of routes to
// the routes within an inbound listener. It returns nil if one removes the listener. It reads a
// connection manager only if a patch matches that is about something in it.
//
// Patches apply in Istio's order: those of LISTENER; those of LISTENER_FILTER; for each filter chain
// those of FILTER_CHAIN, NETWORK_FILTER and HTTP_FILTER, in each case first what is not merged; and
// added filter chains last.
func Listener(m *listenerv3.Listener, at Place, patches []*Patch) (*listenerv3.Listener, []Result) {
	chains, routes := chainsOf(m), []routeFacts(nil)
	if slices.ContainsFunc(patches, func(p *Patch) bool { return hasRoutes(at.Context) && p.ofRoutes(at.Context) }) {
		routes = routesIn(chains, at)
	}
	if !slices.ContainsFunc(patches, func(p *Patch) bool { return p.touchesListener(m, at, chains, routes) }) {
		return m, nil
	}
	return apply(m, patches, func(r *run, m *listenerv3.Listener, patches []*Patch) *listenerv3.Listener {
		e := &listenerEdit{run: r, l: m, at: at, patches: patches}
		if !e.listener() {
			return nil
		}
		return e.l
	})
}

// touchesListener says whether the patch changes something in a listener that no patch has changed
// yet, with these filter chains, and routes within. It does not look into connection managers.
func (p *Patch) touchesListener(l *listenerv3.Listener, at Place, chains []*listenerv3.FilterChain, routes []routeFacts) bool {
	if p.ofRoutes(at.Context) {
		return slices.ContainsFunc(routes, p.matchesRoutes)
	}
	if !p.ofListener(p.ApplyTo, l, at) {
		return false
	}
	switch p.ApplyTo {
	case networking.EnvoyFilter_LISTENER:
		return p.merges() || p.Operation == networking.EnvoyFilter_Patch_REMOVE
	case networking.EnvoyFilter_LISTENER_FILTER:
		return listenerFilters(l).touches(p)
	case networking.EnvoyFilter_FILTER_CHAIN, networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER:
		for _, c := range chains {
			if p.matchesChain(l, c) && p.touchesChain(c) {
				return true
			}
		}
		return p.ApplyTo == networking.EnvoyFilter_FILTER_CHAIN && p.Operation == networking.EnvoyFilter_Patch_ADD
	}
	return false
}

// touchesChain is touchesListener for a filter chain that the patch matches.
func (p *Patch) touchesChain(c *listenerv3.FilterChain) bool {
	switch p.ApplyTo {
	case networking.EnvoyFilter_NETWORK_FILTER:
		return networkFilters(c).touches(p)
	case networking.EnvoyFilter_HTTP_FILTER:
		return slices.ContainsFunc(c.GetFilters(), p.ofManager)
	}
	return p.merges() || p.Operation == networking.EnvoyFilter_Patch_REMOVE
}

// routesIn returns the facts of the routes within the filter chains of a listener.
func routesIn(chains []*listenerv3.FilterChain, at Place) []routeFacts {
	var out []routeFacts
	for _, c := range chains {
		for _, f := range c.GetFilters() {
			if name, ok := routesWithin(f.GetTypedConfig()); ok && isManager(f) {
				out = append(out, factsOfRoutes(name, at))
			}
		}
	}
	return out
}

// ofManager says whether the patch of HTTP_FILTER is about the filters of a connection manager.
func (p *Patch) ofManager(f *listenerv3.Filter) bool {
	return isManager(f) && (p.networkFilter() == "" || networkFilter.matches(p.networkFilter(), f.GetName()))
}

// routesWithin returns the name of the route configuration within a packed connection manager, false
// if there is none, without reading the rest.
func routesWithin(manager *anypb.Any) (string, bool) {
	routes, ok := member(manager.GetValue(), "route_config", (&hcmv3.HttpConnectionManager{}))
	if !ok {
		return "", false
	}
	name, _ := member(routes, "name", &routev3.RouteConfiguration{})
	return string(name), true
}

// member finds the bytes of a field in a marshalled message of the type of m.
func member(content []byte, field string, m proto.Message) ([]byte, bool) {
	want := m.ProtoReflect().Descriptor().Fields().ByTextName(field).Number()
	for len(content) > 0 {
		number, kind, n := protowire.ConsumeTag(content)
		if n < 0 {
			return nil, false
		}
		content = content[n:]
		if number == want && kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(content)
			return value, n >= 0
		}
		if n = protowire.ConsumeFieldValue(number, kind, content); n < 0 {
			return nil, false
		}
		content = content[n:]
	}
	return nil, false
}

// chainsOf returns the filter chains of a listener, and its default one last.
func chainsOf(l *listenerv3.Listener) []*listenerv3.FilterChain {
	if l.GetDefaultFilterChain() == nil {
		return l.GetFilterChains()
	}
	return append(slices.Clip(l.GetFilterChains()), l.GetDefaultFilterChain())
}

func listenerFilters(l *listenerv3.Listener) *filterList[*listenerv3.ListenerFilter] {
	return &filterList[*listenerv3.ListenerFilter]{
		kind: listenerFilter, list: l.GetListenerFilters(),
		asks: func(p *Patch) string { return p.match.GetListener().GetListenerFilter() },
	}
}

func networkFilters(c *listenerv3.FilterChain) *filterList[*listenerv3.Filter] {
	return &filterList[*listenerv3.Filter]{kind: networkFilter, list: c.GetFilters(), asks: (*Patch).networkFilter, isLast: isLastNetworkFilter}
}

// listenerEdit changes one listener.
type listenerEdit struct {
	*run
	l       *listenerv3.Listener
	at      Place
	patches []*Patch
}

// of returns the patches for the listener that apply to something in it.
func (e *listenerEdit) of(to networking.EnvoyFilter_ApplyTo) []*Patch {
	return filtered(e.patches, func(p *Patch) bool { return p.ofListener(to, e.l, e.at) })
}

// listener changes the listener. It returns false to remove it.
func (e *listenerEdit) listener() bool {
	for _, p := range e.patches {
		switch {
		case !p.ofListener(networking.EnvoyFilter_LISTENER, e.l, e.at):
		case p.Operation == networking.EnvoyFilter_Patch_REMOVE:
			e.done(p)
			return false
		case p.merges():
			e.merge(e.l, p)
		}
	}
	if of := e.of(networking.EnvoyFilter_LISTENER_FILTER); len(of) > 0 {
		e.l.ListenerFilters = listenerFilters(e.l).change(e.run, of)
	}
	e.chains()
	return true
}

func (e *listenerEdit) chains() {
	ofChain, ofNetwork, ofHTTP := e.of(networking.EnvoyFilter_FILTER_CHAIN), e.of(networking.EnvoyFilter_NETWORK_FILTER), e.of(networking.EnvoyFilter_HTTP_FILTER)
	removed := func(c *listenerv3.FilterChain) bool {
		if !e.chain(c, ofChain) {
			return true
		}
		if of := e.within(c, ofNetwork); len(of) > 0 {
			c.Filters = networkFilters(c).change(e.run, of)
		}
		for _, f := range c.GetFilters() {
			if isManager(f) {
				e.manager(f, e.within(c, ofHTTP))
			}
		}
		return false
	}
	e.l.FilterChains = slices.DeleteFunc(e.l.GetFilterChains(), removed)
	if c := e.l.GetDefaultFilterChain(); c != nil && removed(c) {
		e.l.DefaultFilterChain = nil
	}
	for _, p := range ofChain {
		if p.Operation == networking.EnvoyFilter_Patch_ADD {
			e.step(p, func() error {
				e.l.FilterChains = append(e.l.FilterChains, proto.CloneOf(p.value.(*listenerv3.FilterChain)))
				return nil
			})
		}
	}
}

// within returns the patches that match a filter chain.
func (e *listenerEdit) within(c *listenerv3.FilterChain, patches []*Patch) []*Patch {
	return filtered(patches, func(p *Patch) bool { return p.matchesChain(e.l, c) })
}

// chain changes a filter chain itself. It returns false to remove it.
func (e *listenerEdit) chain(c *listenerv3.FilterChain, patches []*Patch) bool {
	for _, p := range patches {
		switch {
		case !p.matchesChain(e.l, c):
		case p.Operation == networking.EnvoyFilter_Patch_REMOVE:
			e.done(p)
			return false
		case p.merges():
			e.step(p, func() error { return mergeChain(c, p) })
		}
	}
	return true
}

// mergeChain merges a patch into a filter chain, and a transport socket into one of its name.
func mergeChain(c *listenerv3.FilterChain, p *Patch) error {
	value := p.value.(*listenerv3.FilterChain)
	socket, target := value.GetTransportSocket(), c.GetTransportSocket()
	switch {
	case socket == nil || target == nil:
	case socket.GetName() == target.GetName():
		if err := mergeSocket(target, socket, p); err != nil {
			return err
		}
		value = proto.CloneOf(value)
		value.TransportSocket = nil
	default:
		c.TransportSocket = nil
	}
	p.merging().message(c.ProtoReflect(), value.ProtoReflect())
	return nil
}

// manager changes the routes within a connection manager, and its HTTP filters.
func (e *listenerEdit) manager(f *listenerv3.Filter, ofHTTP []*Patch) {
	ofHTTP = filtered(ofHTTP, func(p *Patch) bool { return p.ofManager(f) })
	var ofRoutes []*Patch
	if name, ok := routesWithin(f.GetTypedConfig()); ok && hasRoutes(e.at.Context) {
		facts := factsOfRoutes(name, e.at)
		ofRoutes = filtered(e.patches, func(p *Patch) bool { return p.ofRoutes(e.at.Context) && p.matchesRoutes(facts) })
	}
	if len(ofHTTP) == 0 && len(ofRoutes) == 0 {
		return
	}
	manager := &hcmv3.HttpConnectionManager{}
	if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
		e.invalid = err
		return
	}
	before := e.changes
	if len(ofRoutes) > 0 {
		(&routesEdit{run: e.run, at: e.at, patches: ofRoutes}).routes(manager.GetRouteConfig())
	}
	filters := &filterList[*hcmv3.HttpFilter]{kind: httpFilter, list: manager.GetHttpFilters(), asks: (*Patch).httpFilter, isLast: isRouter}
	manager.HttpFilters = filters.change(e.run, ofHTTP)
	if e.changes == before {
		return
	}
	packed, err := pack(manager, managerType)
	if err != nil {
		e.invalid = err
		return
	}
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
}
