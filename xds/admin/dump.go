package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Dump has the resources that an Envoy accepted from its servers, as /config_dump?include_eds
// of its admin interface lists them. Of each resource it has the newest accepted version,
// active or warming.
type Dump struct {
	// Node is the node id of the Envoy, empty if the dump has no bootstrap.
	Node string
	// Resources are by type URL and name. Virtual hosts received over VHDS are apart from their
	// route configurations. A type is absent if the dump does not list it.
	Resources map[string]map[string]proto.Message
	// Secrets are the secrets that came over SDS, by name; nil if the dump does not list them.
	Secrets map[string]*ProxySecret
	// Static counts the resources that are left out because the bootstrap or a listener
	// contains them. Draining counts the listeners that are left out because Envoy drains them.
	Static, Draining int

	inUse map[used]bool // what listeners name
}

// used is a resource that another names.
type used struct{ typeURL, name string }

// Drains reports whether at most a draining listener uses a route configuration, a virtual host
// or the configuration of a filter. The server may no longer know such a resource.
func (d *Dump) Drains(typeURL, name string) bool {
	switch typeURL {
	case resource.RouteType, resource.ExtensionType:
	case resource.VirtualHostType:
		typeURL = resource.RouteType
		name, _, _ = strings.Cut(name, "/")
	default:
		return false
	}
	return d.Resources[resource.ListenerType] != nil && !d.inUse[used{typeURL, name}]
}

// dumpSection has the fields of all kinds of sections.
type dumpSection struct {
	Type      string `json:"@type"`
	Bootstrap struct {
		Node struct {
			ID string `json:"id"`
		} `json:"node"`
	} `json:"bootstrap"`

	StaticClusters  []json.RawMessage `json:"static_clusters"`
	ActiveClusters  []dumpedResource  `json:"dynamic_active_clusters"`
	WarmingClusters []dumpedResource  `json:"dynamic_warming_clusters"`

	StaticListeners []json.RawMessage `json:"static_listeners"`
	Listeners       []struct {
		Active  *dumpedResource `json:"active_state"`
		Warming *dumpedResource `json:"warming_state"`
	} `json:"dynamic_listeners"`

	StaticRoutes []json.RawMessage `json:"static_route_configs"`
	Routes       []dumpedResource  `json:"dynamic_route_configs"`

	StaticEndpoints []dumpedResource `json:"static_endpoint_configs"`
	Endpoints       []dumpedResource `json:"dynamic_endpoint_configs"`

	Extensions     []dumpedResource  `json:"ecds_filters"`
	StaticSecrets  []json.RawMessage `json:"static_secrets"`
	ActiveSecrets  []dumpedResource  `json:"dynamic_active_secrets"`
	WarmingSecrets []dumpedResource  `json:"dynamic_warming_secrets"`
}

// dumpedResource is a resource of any type in a config dump.
type dumpedResource struct {
	Cluster   json.RawMessage `json:"cluster"`
	Listener  json.RawMessage `json:"listener"`
	Route     json.RawMessage `json:"route_config"`
	Endpoints json.RawMessage `json:"endpoint_config"`
	Extension json.RawMessage `json:"ecds_filter"`
	Secret    json.RawMessage `json:"secret"`
}

// ReadDump reads a config dump in JSON.
func ReadDump(in io.Reader) (*Dump, error) {
	var document struct {
		Configs []dumpSection `json:"configs"`
	}
	if err := json.NewDecoder(in).Decode(&document); err != nil {
		return nil, fmt.Errorf("it is no config dump in JSON: %w", err)
	}
	d := &Dump{Resources: map[string]map[string]proto.Message{}, inUse: map[used]bool{}}
	for _, section := range document.Configs {
		if err := d.read(section); err != nil {
			return nil, err
		}
	}
	if len(d.Resources) == 0 {
		return nil, errors.New("it has no clusters, listeners or routes: take it from /config_dump?include_eds of Envoy's admin interface")
	}
	d.dropForeignEndpoints()
	return d, d.addNeeders()
}

func (d *Dump) read(s dumpSection) error {
	d.Static += len(s.StaticClusters) + len(s.StaticListeners) + len(s.StaticRoutes) + len(s.StaticEndpoints) + len(s.StaticSecrets)
	switch kind := s.Type[strings.LastIndexByte(s.Type, '.')+1:]; kind {
	case "BootstrapConfigDump":
		d.Node = s.Bootstrap.Node.ID
	case "ClustersConfigDump":
		of := d.typed(resource.ClusterType)
		for _, r := range slices.Concat(s.ActiveClusters, s.WarmingClusters) {
			if err := add(of, r.Cluster); err != nil {
				return fmt.Errorf("cluster: %w", err)
			}
		}
	case "ListenersConfigDump":
		of := d.typed(resource.ListenerType)
		for _, l := range s.Listeners {
			if l.Active == nil && l.Warming == nil {
				d.Draining++
			}
			for _, state := range []*dumpedResource{l.Active, l.Warming} { // warming is the newer one
				if state == nil {
					continue
				}
				if err := add(of, state.Listener); err != nil {
					return fmt.Errorf("listener: %w", err)
				}
				if err := d.use(state.Listener); err != nil {
					return fmt.Errorf("listener: %w", err)
				}
			}
		}
	case "RoutesConfigDump":
		d.typed(resource.RouteType)
		d.typed(resource.VirtualHostType)
		for _, r := range s.Routes {
			if err := d.addRoutes(r.Route); err != nil {
				return fmt.Errorf("route configuration: %w", err)
			}
		}
	case "EcdsConfigDump":
		of := d.typed(resource.ExtensionType)
		for _, r := range s.Extensions {
			if err := add(of, r.Extension); err != nil {
				return fmt.Errorf("filter: %w", err)
			}
		}
	case "EndpointsConfigDump":
		of := d.typed(resource.EndpointType)
		for _, r := range slices.Concat(s.Endpoints, s.StaticEndpoints) {
			if err := add(of, r.Endpoints); err != nil {
				return fmt.Errorf("endpoints: %w", err)
			}
		}
		if of[names.LocalCluster] != nil { // Envoy lists it as static, since its cluster is
			d.Static--
		}
	case "SecretsConfigDump":
		if d.Secrets == nil {
			d.Secrets = map[string]*ProxySecret{}
		}
		for _, r := range slices.Concat(s.ActiveSecrets, s.WarmingSecrets) {
			if err := d.addSecret(r.Secret); err != nil {
				return fmt.Errorf("secret: %w", err)
			}
		}
	}
	return nil
}

// typed returns the resources of a type, and notes that the dump lists the type.
func (d *Dump) typed(typeURL string) map[string]proto.Message {
	if d.Resources[typeURL] == nil {
		d.Resources[typeURL] = map[string]proto.Message{}
	}
	return d.Resources[typeURL]
}

// add parses a message and puts it under its name.
func add(into map[string]proto.Message, text json.RawMessage) error {
	m, err := messageOf(text)
	if err != nil || m == nil {
		return err
	}
	name := ""
	switch m := m.(type) {
	case interface{ GetClusterName() string }:
		name = m.GetClusterName()
	case interface{ GetName() string }:
		name = m.GetName()
	}
	into[name] = m
	return nil
}

// addRoutes adds a route configuration, and separately the virtual hosts received over VHDS.
// The name of such a virtual host begins with that of the route configuration.
func (d *Dump) addRoutes(text json.RawMessage) error {
	routes := d.typed(resource.RouteType)
	one := map[string]proto.Message{}
	if err := add(one, text); err != nil {
		return err
	}
	for name, m := range one {
		config, ok := m.(*routev3.RouteConfiguration)
		if !ok {
			return fmt.Errorf("%s is a %s", name, m.ProtoReflect().Descriptor().FullName())
		}
		routes[name] = config
		if config.GetVhds() == nil {
			continue
		}
		hosts := d.typed(resource.VirtualHostType)
		var own []*routev3.VirtualHost
		for _, h := range config.GetVirtualHosts() {
			if strings.HasPrefix(h.GetName(), name+"/") {
				hosts[h.GetName()] = h
			} else {
				own = append(own, h)
			}
		}
		config.VirtualHosts = own
	}
	return nil
}

// use notes what a listener needs.
func (d *Dump) use(listener json.RawMessage) error {
	m, err := messageOf(listener)
	if err != nil || m == nil {
		return err
	}
	needs, err := resource.NeedsOf(m)
	for _, n := range needs {
		d.inUse[used{n.TypeURL, n.Name}] = true
	}
	return err
}

// dropForeignEndpoints removes the endpoints that no server sent: Envoy lists the endpoints of
// every cluster, also resolved host names.
func (d *Dump) dropForeignEndpoints() {
	sent := map[string]bool{names.LocalCluster: true}
	for name, m := range d.Resources[resource.ClusterType] {
		if c, ok := m.(*clusterv3.Cluster); ok && c.GetType() == clusterv3.Cluster_EDS {
			if service := c.GetEdsClusterConfig().GetServiceName(); service != "" {
				name = service
			}
			sent[name] = true
		}
	}
	maps.DeleteFunc(d.Resources[resource.EndpointType], func(name string, _ proto.Message) bool { return !sent[name] })
}

// Difference is a resource that differs between an Envoy and what it should have. Has and
// Should are nil if the resource is missing there.
type Difference struct {
	Type, Name  string
	Has, Should proto.Message
}

// Comparison is the result of comparing a dump with the answer of a server.
type Comparison struct {
	Differences []Difference
	// Absent are the names of the types that the dump does not list.
	Absent []string
	// Compared counts the resources that were compared. Draining counts those that were left
	// out because Envoy drains them.
	Compared, Draining int
}

// Differences compares what the Envoy has with what it should have according to a server. The
// result is in the order of types and names.
func (d *Dump) Differences(c *ProxyConfig) (*Comparison, error) {
	out := &Comparison{Draining: d.Draining}
	for i := range c.Types {
		t := &c.Types[i]
		has := d.Resources[t.TypeURL]
		if has == nil {
			if t.Total > 0 && !slices.Contains(secretTypes, t.TypeURL) { // a server shows no message of a secret
				out.Absent = append(out.Absent, t.Name)
			}
			continue
		}
		should := map[string]proto.Message{}
		for j := range t.Resources {
			r := &t.Resources[j]
			m, err := r.Should()
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", t.Name, r.Name, err)
			}
			if m != nil {
				should[r.Name] = m
			}
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(has)), maps.Keys(should))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if should[name] == nil && d.Drains(t.TypeURL, name) {
				out.Draining++
				continue
			}
			out.Compared++
			if has, should := Comparable(has[name], should[name]); !proto.Equal(has, should) {
				out.Differences = append(out.Differences, Difference{t.Name, name, has, should})
			}
		}
	}
	return out, nil
}

// Comparable normalizes two messages: the results are equal if an Envoy that got sent would
// dump dumped. Either may be nil. Envoy dumps resources as they were sent, except endpoints:
// there it dumps the hosts that it derived.
func Comparable(dumped, sent proto.Message) (proto.Message, proto.Message) {
	d, _ := dumped.(*endpointv3.ClusterLoadAssignment)
	s, _ := sent.(*endpointv3.ClusterLoadAssignment)
	if d == nil || s == nil {
		return dumped, sent
	}
	return comparableEndpoints(d, s)
}
