package simulate

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Patched says which objects changed listeners beyond what the generators make: by the name of a
// listener, a function that names those behind one of its filters.
type Patched map[string]func(filter string) string

// NewPatched is New for a proxy with patched listeners. The simulation passes over their filters that
// it does not know, and results say so (Result.PassedOver).
func NewPatched(resources []*resource.Resource, patched Patched) (*Proxy, error) {
	p, err := New(resources)
	if err == nil {
		p.patched = patched
	}
	return p, err
}

// passOver notes that the simulation passes over a filter of a listener; false if no object patched
// that, and it is none of a WasmPlugin.
func (p *Proxy) passOver(filter string, result *Result) bool {
	by := p.patched[result.Listener]
	if f, ok := names.ParsePluginFilter(filter); ok {
		by = func(string) string { return "wasmplugin/" + f.Namespace + "/" + f.Name }
	}
	if by != nil && !slices.ContainsFunc(result.PassedOver, func(o PassedOver) bool { return o.Filter == filter }) {
		result.PassedOver = append(result.PassedOver, PassedOver{filter, by(filter)})
	}
	return by != nil
}

// PassedOver is a filter that the simulation does not know: it may answer requests or change them.
type PassedOver struct {
	Filter string
	// By names the objects that patched the listener, or the WasmPlugin.
	By string
}

// passOverListenerFilters notes the listener filters that the simulation does not know, where a listener
// is patched.
func (p *Proxy) passOverListenerFilters(l *listenerv3.Listener, result *Result) {
	for _, f := range l.GetListenerFilters() {
		if name, _ := strings.CutPrefix(f.GetTypedConfig().GetTypeUrl(), "type.googleapis.com/envoy.extensions.filters.listener."); !slices.Contains(knownListenerFilters, name) {
			p.passOver(f.GetName(), result)
		}
	}
}

// knownListenerFilters are the types of listener filters that change nothing unnoticed.
var knownListenerFilters = []string{
	"tls_inspector.v3.TlsInspector", "http_inspector.v3.HttpInspector", "original_dst.v3.OriginalDst", "proxy_protocol.v3.ProxyProtocol",
}
