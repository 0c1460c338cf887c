package mesh

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Table names a table of rows.
type Table uint8

// The tables. Each comes after those from which it is derived.
const (
	// No View answers from these.
	hostOwners         Table = iota // who may speak for a host, if the mesh asks for consent
	hostClaimants                   // the paths of the objects that name a host, by host
	ingressObjects                  // Ingress in effect by path
	ingressHosts                    // Ingresses in effect by host
	ingressNames                    // the hosts by the path of their derived VirtualService
	ingressNeeds                    // the paths of Ingresses by what they depend on
	derivedObjects                  // what is derived from Ingresses, by path
	roots                           // VirtualService that delegates to others, as it was written, by path
	delegators                      // the paths of the roots, by the path that they delegate to
	virtualServices                 // VirtualService by path, with the routes of its delegates
	sidecars                        // Sidecar by path
	gatewayObjects                  // Gateway by path
	envoyFilterObjects              // EnvoyFilter by path
	wasmPluginObjects               // WasmPlugin by path
	attachments                     // what attaches to proxies by their labels, by kind and namespace
	namings                         // the number of rules that name a selector or trait
	reversedHosts                   // HostRow by reversed host
	routePatterns                   // the patterns among the hosts of the mesh gateway
	reversedStreams                 // RouteRow of Streams by reversed host
	rulePatterns                    // the patterns among the hosts of DestinationRules

	// Changed rows of these tables are not in Delta.Keys: only a workload's own resources
	// read them, or their change makes the Delta Whole.
	Self       // properties of the class, or of the workload
	MeshConfig // the mesh configuration by Field
	Services   // ServiceRow by rows.Key
	Instances  // InstancesAt by address
	Probes     // ProbesAt by ProbeKey

	ProxyConfigs // ConfigsAt by namespace, and by WorkloadGroup

	Endpoints      // EndpointRow by rows.Key
	Secrets        // SecretRow by SecretKey
	Hosts          // HostRow by host
	Aliases        // the hosts that have a host as their external name
	Addresses      // the hosts that have an address or were assigned it
	Headless       // the headless services with a workload at an address and port, by service.SocketKey
	Wildcards      // the hosts with an HTTP port that a pattern covers, by WildcardKey
	Ports          // the services that use a port, by PortUseKey
	Routes         // RouteRow of VirtualServices with http routes, by RouteKey
	Streams        // RouteRow of VirtualServices with tcp or tls routes, by host
	GatewayStreams // RouteRow of VirtualServices with tcp or tls routes of gateways, by GatewayStreamKey
	PassedServices // the services of all hosts, by one key
	Destinations   // ImportRow by host
	Rules          // RuleRow by host or pattern
	Peers          // peer.Policies by namespace
	Policies       // policy.Policies of AuthorizationPolicies by namespace
	TokenRules     // policy.Policies of RequestAuthentications by namespace
	Keys           // fetched keys of issuers by namespace and name of the KeySet
	Telemetries    // Telemetry by path
	Patches        // the patches of EnvoyFilters by kind of resource and namespace
	Plugins        // places and contents of WasmPlugins by path

	tableCount
)

// firstAsked is the first table that a View answers from. firstTracked is the first table
// whose changed rows Delta.Keys reports.
const firstAsked, firstTracked = Self, Endpoints

// tables has the implementation of each Table. To add a table, write one file that
// implements table, and add its name above and its entry here.
var tables = [tableCount]table{
	hostOwners:         ownerRows,
	hostClaimants:      claimantRows,
	ingressObjects:     ingressRows,
	ingressHosts:       ingressHostRows,
	ingressNames:       ingressNameRows,
	ingressNeeds:       ingressNeedRows,
	derivedObjects:     derivedRows,
	roots:              rootRows,
	delegators:         delegatorRows,
	virtualServices:    virtualServiceRows,
	sidecars:           sidecarRows,
	gatewayObjects:     gatewayRows,
	envoyFilterObjects: envoyFilterRows,
	wasmPluginObjects:  pluginRows,
	attachments:        attachmentRows,
	namings:            namingRows,
	reversedHosts:      reversedRows,
	routePatterns:      routePatternRows,
	reversedStreams:    reversedStreamRows,
	rulePatterns:       rulePatternRows,

	Self:       selfTable{tableOf[bool]{Self}},
	MeshConfig: fieldRows,
	Services:   given[*ServiceRow]{Services, func(in *Inputs) pmap.Map[*ServiceRow] { return in.Services }},
	Instances:  instanceRows,
	Probes:     probeRows,

	ProxyConfigs: proxyConfigRows,

	Endpoints:      given[*EndpointRow]{Endpoints, func(in *Inputs) pmap.Map[*EndpointRow] { return in.Endpoints }},
	Secrets:        secretRows,
	Hosts:          hostRows,
	Aliases:        aliasRows,
	Addresses:      addressRows,
	Headless:       headlessRows,
	Wildcards:      wildcardRows,
	Ports:          portRows,
	Routes:         routeRows,
	Streams:        streamRows,
	GatewayStreams: gatewayStreamRows,
	PassedServices: passedRows,
	Destinations:   importRows,
	Rules:          ruleRows,
	Peers:          peerRows,
	Policies:       policyRows,
	TokenRules:     tokenRuleRows,
	Keys:           keyRows,
	Telemetries:    telemetryRows,
	Patches:        patchRows,
	Plugins:        pluginViews,
}

// table derives, compares and queries the rows of one Table.
type table interface {
	// follow derives the rows of to from the changed inputs and earlier tables. At the
	// call, to has the rows of from.
	follow(from, to *PushContext)
	// changed appends the keys of rows that differ, or whose answers may differ.
	changed(from, to *PushContext, keys []RowKey) []RowKey
	// answer returns the result of a View's query. It is comparable by ==.
	answer(v *View, key, args string) any
}

// tableOf is a table of rows of one type. Tables that do more embed it.
type tableOf[V comparable] struct{ table Table }

func (t tableOf[V]) rowsOf(p *PushContext) pmap.Map[V] {
	m, _ := p.tables[t.table].(pmap.Map[V])
	return m
}

func (t tableOf[V]) replace(p *PushContext, m pmap.Map[V]) { p.tables[t.table] = m }

// put sets the row of a key, or removes it.
func (t tableOf[V]) put(p *PushContext, key string, row V, present bool) {
	if present {
		t.replace(p, t.rowsOf(p).Set(key, row))
	} else {
		t.replace(p, t.rowsOf(p).Delete(key))
	}
}

func (t tableOf[V]) diff(from, to *PushContext) iter.Seq[pmap.Change[V]] {
	return pmap.Diff(t.rowsOf(from), t.rowsOf(to))
}

func (t tableOf[V]) follow(_, _ *PushContext) {}

func (t tableOf[V]) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range t.diff(from, to) {
		keys = append(keys, RowKey{t.table, c.Key})
	}
	return keys
}

func (t tableOf[V]) answer(v *View, key, _ string) any { return t.rowsOf(v.push).Value(key) }

// members is a set of names.
type members = pmap.Map[bool]

// groups is a table whose rows are maps from member to value, none of them empty.
type groups[V comparable] struct{ tableOf[pmap.Map[V]] }

func groupsOf[V comparable](t Table) groups[V] { return groups[V]{tableOf[pmap.Map[V]]{t}} }

// add puts a member into a group.
func (t groups[V]) add(p *PushContext, group, member string, value V) {
	t.replace(p, pmap.Put(t.rowsOf(p), group, member, value))
}

// remove takes a member out of a group.
func (t groups[V]) remove(p *PushContext, group, member string) {
	t.replace(p, pmap.Remove(t.rowsOf(p), group, member))
}

// given is a table that is part of the inputs.
type given[V comparable] struct {
	table Table
	of    func(*Inputs) pmap.Map[V]
}

func (t given[V]) follow(_, _ *PushContext) {}

func (t given[V]) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range pmap.Diff(t.of(&from.inputs), t.of(&to.inputs)) {
		keys = append(keys, RowKey{t.table, c.Key})
	}
	return keys
}

func (t given[V]) answer(v *View, key, _ string) any { return t.of(&v.push.inputs).Value(key) }

// The path prefixes of the kinds that tables follow.
const (
	networkingGroup     = "networking.istio.io"
	virtualServicePath  = networkingGroup + "/VirtualService/"
	destinationRulePath = networkingGroup + "/DestinationRule/"
	gatewayPath         = networkingGroup + "/Gateway/"
	sidecarPath         = networkingGroup + "/Sidecar/"
	serviceEntryPath    = networkingGroup + "/ServiceEntry/"
	workloadEntryPath   = networkingGroup + "/WorkloadEntry/"
	workloadGroupPath   = networkingGroup + "/WorkloadGroup/"
	proxyConfigPath     = networkingGroup + "/ProxyConfig/"
	envoyFilterPath     = networkingGroup + "/EnvoyFilter/"

	ingressPath      = "networking.k8s.io/Ingress/"
	ingressClassPath = "networking.k8s.io/IngressClass/"

	authorizationPolicyPath = "security.istio.io/AuthorizationPolicy/"
	peerAuthenticationPath  = "security.istio.io/PeerAuthentication/"
	peerPhasePath           = "portolan.io/PeerPhase/"
	hostGrantPath           = "portolan.io/HostGrant/"
	keySetPath              = "portolan.io/KeySet/"
	telemetryPath           = "telemetry.istio.io/Telemetry/"
)

// eachObject calls f for each changed object whose path begins with path.
func eachObject(from, to *PushContext, path string, f func(pmap.Change[*config.Config])) {
	for c := range pmap.Diff(from.inputs.Configs.Configs(), to.inputs.Configs.Configs()) {
		if len(c.Key) > len(path) && c.Key[:len(path)] == path {
			f(c)
		}
	}
}
