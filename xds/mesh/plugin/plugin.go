// Package plugin is the arithmetic of WasmPlugins: which stand in the filters of a listener, and in
// which order. It knows neither the mesh nor Envoy.
package plugin

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Plugin is a WasmPlugin as proxies have it. It is never modified.
type Plugin struct {
	modules.Version
	content *Content
	matches []*extensions.WasmPlugin_TrafficSelector
}

// Content is what the filter of a plugin is made of. It is never modified.
type Content struct {
	Key    config.Key
	Spec   *extensions.WasmPlugin
	Module *modules.Module
	// Missing: the module is not there.
	Missing bool
}

// New returns a plugin. last is what it was before, or nil: it keeps an equal content.
func New(v modules.Version, last *Plugin) *Plugin {
	spec := v.Config.Spec.(*extensions.WasmPlugin)
	content := &Content{Key: v.Config.Key(), Spec: spec, Module: v.Module, Missing: v.Missing}
	if last != nil && last.Module == v.Module && last.Missing == v.Missing && proto.Equal(last.content.Spec, spec) {
		content = last.content
	}
	return &Plugin{Version: v, content: content, matches: spec.GetMatch()}
}

// Content returns what its filter is made of; nil for the nil Plugin. It is the same for equal specs.
func (p *Plugin) Content() *Content {
	if p == nil {
		return nil
	}
	return p.content
}

// IsNetwork says whether a plugin looks at the bytes of connections, and not at requests.
func IsNetwork(spec *extensions.WasmPlugin) bool {
	return spec.GetType() == extensions.PluginType_NETWORK
}

// Place is a place in a proxy where plugins stand.
type Place struct {
	// Server: the listener takes what comes into a workload. Others are those of outgoing traffic,
	// and all of a gateway.
	Server bool
	// Network: the filters of connections, not those of requests.
	Network bool
	// Port is the port of the service or, of a Server, that of the workload; 0 for a chain that is
	// for any port.
	Port int
}

// String returns the place as a text that Parse reads.
func (p Place) String() string {
	flag := func(b bool, text string) string {
		if b {
			return text
		}
		return "-"
	}
	return flag(p.Server, "s") + flag(p.Network, "n") + strconv.Itoa(p.Port)
}

// Parse reads the String of a Place.
func Parse(text string) Place {
	port, err := strconv.Atoi(text[2:])
	if err != nil {
		panic(err) // it is no String
	}
	return Place{Server: text[0] == 's', Network: text[1] == 'n', Port: port}
}

// Standing is where a plugin stands among the filters of a place. It is comparable.
type Standing struct {
	// Namespace and Name are those of the WasmPlugin; empty if it does not stand there.
	Namespace, Name string
	Phase           extensions.PluginPhase
	// Open: what the plugin cannot judge passes. Else it is refused.
	Open bool

	network  bool
	priority int32
	created  int64 // in seconds
}

// At returns where the plugin stands at a place, the zero Standing if it does not. It stands there if
// its type fits, and it matches all traffic or that of the direction and port. A chain for any port
// has those plugins that are for all ports. (Istio: matchTrafficSelectors.)
func (p *Plugin) At(at Place) Standing {
	if p == nil || IsNetwork(p.content.Spec) != at.Network || len(p.matches) > 0 && !slices.ContainsFunc(p.matches, at.matches) {
		return Standing{}
	}
	out := Standing{
		Namespace: p.Config.Namespace, Name: p.Config.Name, Phase: p.content.Spec.GetPhase(), Open: p.content.Open(), network: at.Network,
		priority: math.MinInt32, created: p.Config.CreationTimestamp.Unix(),
	}
	if set := p.content.Spec.GetPriority(); set != nil {
		out.priority = set.GetValue()
	}
	return out
}

// Open says whether requests pass when the plugin has failed for good.
func (c *Content) Open() bool { return c.Spec.GetFailStrategy() == extensions.FailStrategy_FAIL_OPEN }

func (p Place) matches(m *extensions.WasmPlugin_TrafficSelector) bool {
	switch m.GetMode() {
	case typev1beta1.WorkloadMode_CLIENT:
		if p.Server {
			return false
		}
	case typev1beta1.WorkloadMode_SERVER:
		if !p.Server {
			return false
		}
	}
	return len(m.GetPorts()) == 0 || slices.ContainsFunc(m.GetPorts(), func(s *typev1beta1.PortSelector) bool { return int(s.GetNumber()) == p.Port })
}

// Sort puts plugins into the order in which requests pass them within a phase: by priority, the highest
// first, those without one last; then those of the root namespace, then the oldest. (Istio:
// WasmPluginsByListenerInfo.)
func Sort(plugins []Standing, root string) {
	slices.SortFunc(plugins, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), inRoot(b, root)-inRoot(a, root), cmp.Compare(a.created, b.created),
			strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	})
}

func inRoot(s Standing, root string) int {
	if s.Namespace == root {
		return 1
	}
	return 0
}
