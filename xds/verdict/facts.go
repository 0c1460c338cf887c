package verdict

import (
	"iter"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// Facts are the inputs that verdicts are derived from, at one moment. The zero Facts is an
// empty mesh.
type Facts struct {
	// Mesh has the configuration and the services.
	Mesh *mesh.PushContext
	// Registries are the forks of the registries that the services came from, nil for none.
	Registries discovery.Fork
	// Proxies are the proxies that have connected to a server, by node.
	Proxies pmap.Map[*status.Proxy]
	// Replicas are the reports of the servers, by id. They name what a server could not build.
	Replicas pmap.Map[*status.Replica]
	// KeyFaults are the reasons why the keys of a TokenIssuer cannot be fetched, by its path.
	KeyFaults pmap.Map[string]
	// FlagClusters are the names of the clusters of Kubernetes that flags name, and ClusterFaults are what
	// is wrong with those that Secrets name, by remote.FaultKey.
	FlagClusters  pmap.Map[bool]
	ClusterFaults pmap.Map[remote.Fault]
	// SecretNamespaces are the namespaces whose secrets are read from clusters. They stay while a
	// server runs.
	SecretNamespaces pmap.Map[bool]
	// Selects says that flags name a cluster whose namespaces discoverySelectors select. It stays while
	// a server runs.
	Selects bool
	// Minute is the time, in minutes since 1970. If it is unknown (0), nothing expires.
	Minute int64
}

// Configs returns the objects, by path.
func (f Facts) Configs() pmap.Map[*config.Config] { return f.Mesh.Inputs().Configs.Configs() }

// Shadows returns the objects whose key several sources have, by path.
func (f Facts) Shadows() pmap.Map[*cache.Shadow] { return f.Mesh.Inputs().Configs.Shadows() }

// A Row is something that a judgement may depend on: the letter of its table, and a key.
type Row string

// The tables that only verdicts need.
const (
	ObjectRow   Row = "o" // an object by path
	ObjectsRow  Row = "n" // the objects of a kind in a namespace, by config.NamespacePath
	HostsRow    Row = "h" // the services that a name or a pattern covers
	RulesRow    Row = "r" // the DestinationRules of a name or a pattern
	portRow     Row = "g" // the Gateways with a server at a port
	RoutersRow  Row = "p" // the gateway proxies; no key
	SidecarsRow Row = "s" // the sidecars of a namespace
	AddressRow  Row = "a" // the proxies at an address
	ClientsRow  Row = "c" // the gRPC clients without a proxy; no key
	ZonesRow    Row = "z" // the proxies that know the endpoints of their own service; no key

	BystandersRow Row = "u" // the sidecars that capture neither traffic nor DNS; no key
	PlacedRow     Row = "l" // the proxies that have a locality, or may have one, of a namespace, or of all
	UnplacedRow   Row = "m" // the other proxies, of a namespace, or of all
	ConnectedRow  Row = "f" // the connected Envoys of a namespace, or of all

	SecretRow Row = "t" // whether a secret can be opened, and the stages of its certificates, by its path

	ClusterRow Row = "j" // why clusters that a Secret names are not followed, by its path

	UnreadSecretsRow Row = "x" // why the secrets of a namespace of clusters are not read, by the namespace

	UserRow    Row = "k" // whether a token of a user is valid, by the user's path
	BindersRow Row = "b" // the RoleBindings of a role, by its name
	IssuerRow  Row = "i" // why the keys of an issuer cannot be fetched, by its path

	ModuleRow Row = "e" // why the module of a WasmPlugin cannot be fetched, by its path

	QuietRow Row = "q" // whether an object is an hour old, by its path

	HealthRow Row = "w" // what is reported of the health of a WorkloadEntry, by health.Path

	DelegatorsRow Row = "d" // the VirtualServices that delegate to an object, by its path
)

// rowOf returns the Row of a row of package mesh. Those tables have letters beyond ASCII.
func rowOf(key mesh.RowKey) Row { return Row(string(rune(firstMeshRow+key.Table)) + key.Key) }

// firstMeshRow is the letter of the first table of package mesh.
const firstMeshRow = mesh.Table(0x80)

// ChangedRows iterates over the rows that differ between two facts. It may yield a row twice.
// The mesh configuration must be the same in both.
func ChangedRows(from, to Facts) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		_ = changedObjects(from, to, yield) && changedHealth(from, to, yield) && changedMesh(from, to, yield) && changedProxies(from, to, yield) && changedSecrets(from, to, yield) && changedUnread(from, to, yield) && changedUsers(from, to, yield) && changedKeys(from, to, yield) && changedClusters(from, to, yield) && changedModules(from, to, yield) && grownQuiet(from, to, yield)
	}
}

func changedObjects(from, to Facts, yield func(Row) bool) bool {
	for c := range pmap.Diff(from.Configs(), to.Configs()) {
		if !yield(ObjectRow+Row(c.Key)) || !yield(ObjectsRow+Row(c.Key[:strings.LastIndexByte(c.Key, '/')+1])) {
			return false
		}
		for _, object := range []*config.Config{c.Old, c.New} {
			if role := BoundBy(object); role != "" && !yield(BindersRow+Row(role)) {
				return false
			}
			for port := range serverPorts(object) {
				if !yield(portRow + Row(port)) {
					return false
				}
			}
		}
	}
	return true
}

func changedModules(from, to Facts, yield func(Row) bool) bool {
	before, after := from.Mesh.Inputs().Modules, to.Mesh.Inputs().Modules
	if before == after {
		return true
	}
	for path, c := range to.Configs().Prefix(modules.PathPrefix) {
		if before.Fault(c) != after.Fault(c) && !yield(ModuleRow+Row(path)) {
			return false
		}
	}
	return true
}

func changedHealth(from, to Facts, yield func(Row) bool) bool {
	for c := range pmap.Diff(from.Mesh.Inputs().Configs.Health(), to.Mesh.Inputs().Configs.Health()) {
		if !yield(HealthRow + Row(c.Key)) {
			return false
		}
	}
	return true
}

func changedMesh(from, to Facts, yield func(Row) bool) bool {
	delta := mesh.Diff(from.Mesh, to.Mesh)
	for _, key := range delta.Rows() {
		if !yield(rowOf(key)) {
			return false
		}
	}
	for c := range delta.Hosts() {
		for name := range host.Name(c.Key).Covers() {
			if !yield(HostsRow + Row(name)) {
				return false
			}
		}
	}
	for c := range delta.Rules() {
		if !yield(RulesRow + Row(c.Key)) {
			return false
		}
	}
	for path := range delta.Delegates() {
		if !yield(DelegatorsRow + Row(path)) {
			return false
		}
	}
	return true
}

func changedProxies(from, to Facts, yield func(Row) bool) bool {
	for c := range pmap.Diff(from.Proxies, to.Proxies) {
		same := c.HasOld && c.HasNew && c.Old.Like(c.New)
		stays := c.HasOld && c.HasNew && c.Old.Type == c.New.Type && c.Old.Namespace == c.New.Namespace && c.Old.SelfDiscovery == c.New.SelfDiscovery
		for _, p := range []*status.Proxy{c.Old, c.New} {
			if p == nil {
				continue
			}
			for _, key := range proxyRows(p) {
				// Readers of ClientsRow and ZonesRow look only at what stays compares. Readers
				// of rows ofNature do not look at whether a proxy is connected.
				if (key != ClientsRow && key != ZonesRow || !stays) && (!same || !key.ofNature()) && !yield(key) {
					return false
				}
			}
		}
	}
	return true
}

// ofNature reports whether judges read only what the proxies of a row say of themselves.
func (r Row) ofNature() bool {
	table := r[:1]
	return table == BystandersRow || table == PlacedRow || table == UnplacedRow
}

// proxyRows returns the rows that a proxy is in.
func proxyRows(p *status.Proxy) []Row {
	proxy := ProxyOf(p)
	if proxy == nil {
		return nil
	}
	out := []Row{RoutersRow}
	if proxy.Type != discovery.Router {
		out[0] = SidecarsRow + Row(proxy.Namespace)
	}
	if proxy.Type == discovery.Proxyless {
		out = append(out, ClientsRow)
	}
	if p.SelfDiscovery {
		out = append(out, ZonesRow)
	}
	if proxy.Type == discovery.Sidecar && proxy.InterceptionMode == discovery.InterceptionNone && !proxy.DNSCapture {
		out = append(out, BystandersRow)
	}
	where := UnplacedRow
	if p.Interception == "" || proxy.Place(proxy.Labels(nil), discovery.Place{}).Locality != "" {
		where = PlacedRow
	}
	out = append(out, where, where+Row(proxy.Namespace))
	if p.Replica != "" && proxy.Type != discovery.Proxyless {
		out = append(out, ConnectedRow, ConnectedRow+Row(proxy.Namespace))
	}
	for _, address := range proxy.IPAddresses {
		out = append(out, AddressRow+Row(address))
	}
	return out
}

// ProxyOf returns a known proxy as a discovery.Proxy. It returns nil if a server of an older
// version recorded the proxy, without its type.
func ProxyOf(p *status.Proxy) *discovery.Proxy {
	if p.Type == "" {
		return nil
	}
	return &discovery.Proxy{
		ID: p.Node, Type: discovery.ProxyType(p.Type), Namespace: p.Namespace, IPAddresses: p.Addresses,
		StaticLabels: labels.Instance(p.Labels), InterceptionMode: discovery.InterceptionMode(p.Interception), DNSCapture: p.DNSCapture, Locality: p.Locality, Identity: p.Identity,
	}
}

// proxies are the known proxies, by row and node.
type proxies = pmap.Map[pmap.Map[*status.Proxy]]

// followProxies updates the proxies by row after a change of facts.
func followProxies(all proxies, from, to Facts) proxies {
	for c := range pmap.Diff(from.Proxies, to.Proxies) {
		if c.HasOld {
			for _, r := range proxyRows(c.Old) {
				all = pmap.Remove(all, string(r), c.Key)
			}
		}
		if c.HasNew {
			for _, r := range proxyRows(c.New) {
				all = pmap.Put(all, string(r), c.Key, c.New)
			}
		}
	}
	return all
}
