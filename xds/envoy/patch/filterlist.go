package patch

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
)

// filter is a listener filter, a network filter or an HTTP filter.
type filter interface {
	proto.Message
	GetName() string
	GetTypedConfig() *anypb.Any
}

const (
	managerType  = typeURLPrefix + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	tcpProxyType = typeURLPrefix + "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
	routerType   = typeURLPrefix + "envoy.extensions.filters.http.router.v3.Router"
	routerName   = "envoy.filters.http.router"
)

// isManager says whether a network filter is a connection manager.
func isManager(f *listenerv3.Filter) bool { return f.GetTypedConfig().GetTypeUrl() == managerType }

// isLastNetworkFilter says whether a network filter takes all bytes, so that none may come after it.
func isLastNetworkFilter(f *listenerv3.Filter) bool {
	return isManager(f) || f.GetTypedConfig().GetTypeUrl() == tcpProxyType
}

// isRouter says whether an HTTP filter is the router, which takes all requests.
func isRouter(f *hcmv3.HttpFilter) bool { return f.GetTypedConfig().GetTypeUrl() == routerType }

// filterList is a list of filters that patches change.
type filterList[F filter] struct {
	kind filterKind
	// asks returns the name of the filter that a patch matches, "" if it matches none.
	asks func(*Patch) string
	// isLast says whether nothing may come after a filter; nil if there is no such filter.
	isLast func(F) bool
	list   []F
	// added has the last filter that was added in a class.
	added map[networking.EnvoyFilter_Patch_FilterClass]F
}

// change applies the patches that concern the list: first all that add, insert, replace and remove,
// then those that merge. So a patch merges also into a filter that a later one adds.
func (l *filterList[F]) change(r *run, patches []*Patch) []F {
	for _, p := range patches {
		if !p.merges() {
			l.arrange(r, p)
		}
	}
	for _, f := range l.list {
		for _, p := range patches {
			if p.merges() && l.mergesInto(p, f) {
				r.step(p, func() error { return l.merge(p, f) })
			}
		}
	}
	return l.list
}

// touches says whether a patch that concerns the list would change it.
func (l *filterList[F]) touches(p *Patch) bool {
	switch p.Operation {
	case networking.EnvoyFilter_Patch_ADD, networking.EnvoyFilter_Patch_INSERT_FIRST:
		return true
	case networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_Patch_INSERT_AFTER:
		return l.asks(p) == "" || l.find(p) >= 0
	case networking.EnvoyFilter_Patch_REPLACE, networking.EnvoyFilter_Patch_REMOVE:
		return l.find(p) >= 0
	}
	return p.merges() && slices.ContainsFunc(l.list, func(f F) bool { return l.mergesInto(p, f) })
}

func (l *filterList[F]) arrange(r *run, p *Patch) {
	at := l.find(p)
	switch p.Operation {
	case networking.EnvoyFilter_Patch_ADD:
		l.add(r, p)
	case networking.EnvoyFilter_Patch_INSERT_FIRST:
		l.insert(r, p, 0)
	case networking.EnvoyFilter_Patch_INSERT_BEFORE:
		if l.asks(p) == "" {
			at = 0
		}
		if at >= 0 {
			l.insert(r, p, at)
		}
	case networking.EnvoyFilter_Patch_INSERT_AFTER:
		if l.asks(p) == "" {
			at = len(l.list) - 1
		} else if at < 0 {
			return
		}
		for i := range l.list {
			if i > at && l.isAlias(p, i) {
				at = i
			}
		}
		l.insert(r, p, at+1)
	case networking.EnvoyFilter_Patch_REPLACE:
		if at >= 0 {
			l.replace(r, p, at)
		}
	case networking.EnvoyFilter_Patch_REMOVE:
		if at >= 0 {
			r.step(p, func() error {
				l.list = slices.DeleteFunc(slices.Clone(l.list), func(f F) bool { return l.kind.matches(l.asks(p), f.GetName()) })
				return nil
			})
		}
	}
}

// find returns the index of the first filter that a patch asks for, -1 for none.
func (l *filterList[F]) find(p *Patch) int {
	asked := l.asks(p)
	if asked == "" {
		return -1
	}
	return slices.IndexFunc(l.list, func(f F) bool { return l.kind.matches(asked, f.GetName()) })
}

// isAlias says whether the filter at an index is one of policies, of which several stand for the
// one that the patch asks for.
func (l *filterList[F]) isAlias(p *Patch, at int) bool {
	name, asked := l.list[at].GetName(), l.kind.canonical(l.asks(p))
	return asked != "" && l.kind.canonical(name) != asked && l.kind.matches(asked, name)
}

func (l *filterList[F]) insert(r *run, p *Patch, at int) {
	r.step(p, func() error {
		l.list = slices.Insert(slices.Clip(l.list), at, proto.CloneOf(p.value).(F))
		return nil
	})
}

// replace puts the filter of a patch in the place of the one it asks for. If several filters of
// policies stand for that, it is in the place of all of them.
func (l *filterList[F]) replace(r *run, p *Patch, at int) {
	r.step(p, func() error {
		var out []F
		for i, f := range l.list {
			switch {
			case i == at:
				out = append(out, proto.CloneOf(p.value).(F))
			case i > at && l.isAlias(p, i):
			default:
				out = append(out, f)
			}
		}
		l.list = out
		return nil
	})
}

// add adds a filter where its class says: after the filters that authenticate, after those that
// authorize too, or else before the filter that must be the last. Filters of a class come in order.
// (Istio has the classes in its API, and always appends.)
func (l *filterList[F]) add(r *run, p *Patch) {
	at := len(l.list)
	if at > 0 && l.isLast != nil && l.isLast(l.list[at-1]) {
		at--
	}
	class := networking.EnvoyFilter_Patch_UNSPECIFIED
	if l.kind == httpFilter {
		class = p.class
	}
	switch class {
	case networking.EnvoyFilter_Patch_AUTHN:
		at = l.after("envoy.filters.http.jwt_authn")
	case networking.EnvoyFilter_Patch_AUTHZ:
		at = l.after("envoy.filters.http.jwt_authn", "envoy.filters.http.rbac", "envoy.filters.http.ext_authz")
	case networking.EnvoyFilter_Patch_STATS:
		if i := slices.IndexFunc(l.list, func(f F) bool { return f.GetName() == "istio.stats" }); i >= 0 {
			at = i
		}
	}
	if earlier, ok := l.added[class]; ok {
		if i := slices.IndexFunc(l.list, func(f F) bool { return proto.Message(f) == proto.Message(earlier) }); i >= 0 {
			at = i + 1
		}
	}
	l.insert(r, p, at)
	if l.added == nil {
		l.added = map[networking.EnvoyFilter_Patch_FilterClass]F{}
	}
	l.added[class] = l.list[at]
}

// after returns the index after the last filter with one of the names, 0 if there is none.
func (l *filterList[F]) after(asked ...string) int {
	for i := len(l.list) - 1; i >= 0; i-- {
		if slices.ContainsFunc(asked, func(name string) bool { return l.kind.matches(name, l.list[i].GetName()) }) {
			return i + 1
		}
	}
	return 0
}

// mergesInto says whether a patch merges into a filter: the one that it asks for, or, if it asks for
// none, each with a configuration of the same type. For HTTP filters it has to ask for one.
func (l *filterList[F]) mergesInto(p *Patch, f F) bool {
	if asked := l.asks(p); asked != "" || l.kind == httpFilter {
		return asked != "" && l.kind.matches(asked, f.GetName())
	}
	url := p.value.(F).GetTypedConfig().GetTypeUrl()
	return url != "" && url == f.GetTypedConfig().GetTypeUrl()
}

// merge merges a patch into a filter. The name of the filter stays if the patch has another one for
// the same filter.
func (l *filterList[F]) merge(p *Patch, f F) error {
	value := p.value
	if l.kind.matches(value.(F).GetName(), f.GetName()) {
		value = proto.CloneOf(value)
		m := value.ProtoReflect()
		m.Clear(m.Descriptor().Fields().ByName("name"))
	}
	return p.merging().configured(f.ProtoReflect(), value.ProtoReflect())
}
