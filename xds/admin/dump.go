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

// Dump is what an Envoy took from its servers, as /config_dump?include_eds of its admin
// interface tells: of each resource the newest form that it took, in use or warming.
type Dump struct {
	// Node is the node id of the Envoy, empty if the dump has no bootstrap.
	Node string
	// Resources are by type URL and name. Virtual hosts that came by delta are apart from
	// their route configurations. A type is absent if the dump does not list it.
	Resources map[string]map[string]proto.Message
	// Static is how many resources are left out because the bootstrap or a listener
	// contains them, and Draining how many listeners because the Envoy gives them up.
	Static, Draining int

	routesInUse map[string]bool // the route configurations that listeners name
}

// Drains says whether nothing but a draining listener uses a route configuration or a
// virtual host. A server may have forgotten it.
func (d *Dump) Drains(typeURL, name string) bool {
	switch typeURL {
	case resource.RouteType:
	case resource.VirtualHostType:
		name, _, _ = strings.Cut(name, "/")
	default:
		return false
	}
	return d.Resources[resource.ListenerType] != nil && !d.routesInUse[name]
}

// dumpSection is a part of a config dump: the fields of all its kinds.
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
}

// dumpedResource is a resource in a config dump, of whichever type.
type dumpedResource struct {
	Cluster   json.RawMessage `json:"cluster"`
	Listener  json.RawMessage `json:"listener"`
	Route     json.RawMessage `json:"route_config"`
	Endpoints json.RawMessage `json:"endpoint_config"`
}

// ReadDump reads a config dump in JSON.
func ReadDump(in io.Reader) (*Dump, error) {
	var document struct {
		Configs []dumpSection `json:"configs"`
	}
	if err := json.NewDecoder(in).Decode(&document); err != nil {
		return nil, fmt.Errorf("it is no config dump in JSON: %w", err)
	}
	d := &Dump{Resources: map[string]map[string]proto.Message{}, routesInUse: map[string]bool{}}
	for _, section := range document.Configs {
		if err := d.read(section); err != nil {
			return nil, err
		}
	}
	if len(d.Resources) == 0 {
		return nil, errors.New("it has no clusters, listeners or routes: take it from /config_dump?include_eds of Envoy's admin interface")
	}
	d.dropForeignEndpoints()
	return d, nil
}

// read takes over a section.
func (d *Dump) read(s dumpSection) error {
	d.Static += len(s.StaticClusters) + len(s.StaticListeners) + len(s.StaticRoutes) + len(s.StaticEndpoints)
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
			for _, state := range []*dumpedResource{l.Active, l.Warming} { // warming is the newer
				if state == nil {
					continue
				}
				if err := add(of, state.Listener); err != nil {
					return fmt.Errorf("listener: %w", err)
				}
				if err := routesOf(state.Listener, d.routesInUse); err != nil {
					return err
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
	case "EndpointsConfigDump":
		of := d.typed(resource.EndpointType)
		for _, r := range slices.Concat(s.Endpoints, s.StaticEndpoints) {
			if err := add(of, r.Endpoints); err != nil {
				return fmt.Errorf("endpoints: %w", err)
			}
		}
		if of[names.LocalCluster] != nil { // Envoy lists it by its cluster, which is static
			d.Static--
		}
	}
	return nil
}

// typed returns the resources of a type, which the dump lists.
func (d *Dump) typed(typeURL string) map[string]proto.Message {
	if d.Resources[typeURL] == nil {
		d.Resources[typeURL] = map[string]proto.Message{}
	}
	return d.Resources[typeURL]
}

// add reads a message and puts it under its name.
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

// addRoutes adds a route configuration, and apart from it the virtual hosts that came by
// delta: these have its name before their own.
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

// routesOf notes the names of the route configurations that a listener asks for.
func routesOf(listener json.RawMessage, into map[string]bool) error {
	var value any
	if err := json.Unmarshal(listener, &value); err != nil {
		return err
	}
	var walk func(any)
	walk = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, element := range v {
				walk(element)
			}
		case map[string]any:
			if rds, ok := v["rds"].(map[string]any); ok {
				if name, ok := rds["route_config_name"].(string); ok {
					into[name] = true
				}
			}
			for _, field := range v {
				walk(field)
			}
		}
	}
	walk(value)
	return nil
}

// dropForeignEndpoints leaves out the endpoints that no server sent: Envoy lists those of
// every cluster, resolved host names too.
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

// Difference is a resource that an Envoy has otherwise than it should; nil for nothing.
type Difference struct {
	Type, Name  string
	Has, Should proto.Message
}

// Comparison is what came of comparing a dump with what a server says.
type Comparison struct {
	Differences []Difference
	// Absent are the names of the types that the dump does not list.
	Absent []string
	// Compared is how many resources were compared. Draining is how many were left out
	// because the Envoy gives them up.
	Compared, Draining int
}

// Differences compares what the Envoy has with what a server says that it should have, in
// the order of the types and names.
func (d *Dump) Differences(c *ProxyConfig) (*Comparison, error) {
	out := &Comparison{Draining: d.Draining}
	for i := range c.Types {
		t := &c.Types[i]
		has := d.Resources[t.TypeURL]
		if has == nil {
			if t.Total > 0 {
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

// Comparable returns two messages in a form in which they are equal if an Envoy that was
// sent the second one dumps the first one. Either may be nil. Envoy keeps resources as
// they were sent, except endpoints: of these it dumps the hosts that it made of them.
func Comparable(dumped, sent proto.Message) (proto.Message, proto.Message) {
	d, _ := dumped.(*endpointv3.ClusterLoadAssignment)
	s, _ := sent.(*endpointv3.ClusterLoadAssignment)
	if d == nil || s == nil {
		return dumped, sent
	}
	return comparableEndpoints(d, s)
}
