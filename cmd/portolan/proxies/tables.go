package proxies

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/names"
)

type portFilter struct{ port int }

func (f *portFilter) register(c *cobra.Command) {
	c.Flags().IntVar(&f.port, "port", 0, "only of this port")
}

func (f *portFilter) check() error {
	if f.port < 0 || f.port > 65535 {
		return exit.With(exit.Usage, fmt.Errorf("--port %d: give a port from 1 to 65535", f.port))
	}
	return nil
}

func (f *portFilter) has(port uint32) bool { return f.port == 0 || uint32(f.port) == port }

func portCell(port uint32) string {
	if port == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(port), 10)
}

// contains says whether a text contains the wanted one, ignoring case.
func contains(text, wanted string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(wanted))
}

// originCell returns the object that metadata name, as NAME.NAMESPACE.
func originCell(m *corev3.Metadata) string {
	key, ok := generate.KeyOfPath(message.ConfigOf(m))
	if !ok {
		return ""
	}
	return key.Name + "." + key.Namespace
}

// clusterFilter holds the flags of proxy config cluster.
type clusterFilter struct {
	portFilter
	fqdn, subset, direction string
}

func (f *clusterFilter) register(c *cobra.Command) {
	f.portFilter.register(c)
	c.Flags().StringVar(&f.fqdn, "fqdn", "", "only of hosts whose name contains this")
	c.Flags().StringVar(&f.subset, "subset", "", "only of this subset")
	c.Flags().StringVar(&f.direction, "direction", "", "only inbound or outbound")
}

func (f *clusterFilter) check() error {
	if f.direction != "" {
		if err := cli.OneOf("--direction", f.direction, string(names.Inbound), string(names.Outbound)); err != nil {
			return err
		}
	}
	return f.portFilter.check()
}

func (f *clusterFilter) apply(config *admin.ProxyConfig) error {
	return keepResources(config, "CDS", func(c *clusterv3.Cluster) bool {
		ref := clusterRef(c)
		return contains(ref.Host, f.fqdn) && f.has(ref.Port) && (f.subset == "" || f.subset == ref.Subset) &&
			(f.direction == "" || f.direction == string(ref.Direction))
	})
}

// A name in another form counts as a host.
func clusterRef(c *clusterv3.Cluster) names.ClusterRef {
	ref, ok := names.ParseCluster(c.GetName())
	if !ok {
		return names.ClusterRef{Host: c.GetName()}
	}
	return ref
}

func clusterRows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE", "OBJECTS"}}
	err := eachOf(config, "CDS", func(r *admin.ProxyResource, c *clusterv3.Cluster) {
		ref, kind := clusterRef(c), c.GetType().String()
		if custom := c.GetClusterType().GetName(); custom != "" {
			kind = custom
		}
		rows = append(rows, []string{ref.Host, portCell(ref.Port), ref.Subset, string(ref.Direction), kind, originCell(c.GetMetadata()), cli.FormatList(r.Objects, false)})
	})
	return rows, err
}

// extensionRows has a row for each filter. Its kind is the last part of its type.
func extensionRows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"NAME", "FILTER", "OBJECTS"}}
	err := eachOf(config, "ECDS", func(r *admin.ProxyResource, c *corev3.TypedExtensionConfig) {
		kind := c.GetTypedConfig().GetTypeUrl()
		rows = append(rows, []string{c.GetName(), kind[strings.LastIndexByte(kind, '.')+1:], cli.FormatList(r.Objects, false)})
	})
	return rows, err
}

// routeFilter holds the flags of proxy config route.
type routeFilter struct{ name string }

func (f *routeFilter) register(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "name", "", "only the route configuration of this name")
}

func (f *routeFilter) check() error { return nil }

func (f *routeFilter) apply(config *admin.ProxyConfig) error {
	return errors.Join(
		keepResources(config, "RDS", func(r *routev3.RouteConfiguration) bool { return f.name == "" || f.name == r.GetName() }),
		keepResources(config, "VHDS", func(h *routev3.VirtualHost) bool { return f.name == "" || f.name == protocol.ScopeOf(h.GetName()) }),
	)
}

// Virtual hosts that came by delta follow their route configuration, under their names
// within it.
func routeRows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"NAME", "VHOST NAME", "DOMAINS", "MATCH", "VIRTUAL SERVICE", "OBJECTS"}}
	byDelta := map[string][][]string{}
	err := eachOf(config, "VHDS", func(r *admin.ProxyResource, h *routev3.VirtualHost) {
		of := protocol.ScopeOf(h.GetName())
		byDelta[of] = append(byDelta[of], hostRows(of, strings.TrimPrefix(h.GetName(), of+"/"), h, r)...)
	})
	if err != nil {
		return nil, err
	}
	err = eachOf(config, "RDS", func(r *admin.ProxyResource, c *routev3.RouteConfiguration) {
		before := len(rows)
		rows = append(rows, byDelta[c.GetName()]...)
		for _, h := range c.GetVirtualHosts() {
			rows = append(rows, hostRows(c.GetName(), h.GetName(), h, r)...)
		}
		if len(rows) == before {
			rows = append(rows, []string{c.GetName(), "", "", "", "", cli.FormatList(r.Objects, false)})
		}
	})
	return rows, err
}

// hostRows returns a row for each route of a virtual host.
func hostRows(config, name string, h *routev3.VirtualHost, r *admin.ProxyResource) [][]string {
	domains, objects := cli.FormatList(h.GetDomains(), false), cli.FormatList(r.Objects, false)
	var rows [][]string
	for _, route := range h.GetRoutes() {
		rows = append(rows, []string{config, name, domains, matchCell(route.GetMatch()), originCell(route.GetMetadata()), objects})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{config, name, domains, "", "", objects})
	}
	return rows
}

// matchCell returns what a route matches: its path, and the names of its other conditions.
func matchCell(m *routev3.RouteMatch) string {
	out := ""
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		out = p.Prefix + "*"
	case *routev3.RouteMatch_Path:
		out = p.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		out = p.PathSeparatedPrefix + "[/*]"
	case *routev3.RouteMatch_SafeRegex:
		out = "regex " + p.SafeRegex.GetRegex()
	}
	var more []string
	for _, h := range m.GetHeaders() {
		more = append(more, h.GetName())
	}
	for _, q := range m.GetQueryParameters() {
		more = append(more, "?"+q.GetName())
	}
	if len(more) > 0 {
		out += " (" + cli.FormatList(more, false) + ")"
	}
	return out
}

// endpointFilter holds the flags of proxy config endpoint.
type endpointFilter struct {
	portFilter
	address, status, cluster string
}

func (f *endpointFilter) register(c *cobra.Command) {
	f.portFilter.register(c)
	c.Flags().StringVar(&f.address, "address", "", "only at this address")
	c.Flags().StringVar(&f.status, "status", "", "only those that are healthy, unhealthy, draining, timeout or degraded")
	c.Flags().StringVar(&f.cluster, "cluster", "", "only of the cluster of this name")
}

func (f *endpointFilter) check() error {
	if f.status != "" {
		if err := cli.OneOf("--status", strings.ToLower(f.status), "healthy", "unhealthy", "draining", "timeout", "degraded"); err != nil {
			return err
		}
	}
	return f.portFilter.check()
}

func (f *endpointFilter) apply(config *admin.ProxyConfig) error {
	return errors.Join(
		keepResources(config, "CDS", func(c *clusterv3.Cluster) bool { return len(f.rowsOf(c.GetName(), c.GetLoadAssignment(), nil)) > 0 }),
		keepResources(config, "EDS", func(a *endpointv3.ClusterLoadAssignment) bool {
			return *f == endpointFilter{} || len(f.rowsOf(a.GetClusterName(), a, nil)) > 0
		}),
	)
}

// rows returns a row for each endpoint, including those inside clusters, such as clusters
// whose hosts the proxy resolves.
func (f *endpointFilter) rows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"ENDPOINT", "STATUS", "WEIGHT", "LOCALITY", "CLUSTER", "OBJECTS"}}
	err := errors.Join(
		eachOf(config, "EDS", func(r *admin.ProxyResource, a *endpointv3.ClusterLoadAssignment) {
			rows = append(rows, f.rowsOf(a.GetClusterName(), a, r)...)
		}),
		eachOf(config, "CDS", func(r *admin.ProxyResource, c *clusterv3.Cluster) {
			rows = append(rows, f.rowsOf(c.GetName(), c.GetLoadAssignment(), r)...)
		}),
	)
	return rows, err
}

func (f *endpointFilter) rowsOf(cluster string, a *endpointv3.ClusterLoadAssignment, r *admin.ProxyResource) (rows [][]string) {
	if f.cluster != "" && f.cluster != cluster {
		return nil
	}
	objects := ""
	if r != nil {
		objects = cli.FormatList(r.Objects, false)
	}
	for _, l := range a.GetEndpoints() {
		at := l.GetLocality()
		locality := discovery.LocalityOf(at.GetRegion(), at.GetZone(), at.GetSubZone())
		for _, e := range l.GetLbEndpoints() {
			host, port := hostPort(e.GetEndpoint().GetAddress())
			status := e.GetHealthStatus().String()
			if e.GetHealthStatus() == corev3.HealthStatus_UNKNOWN {
				status = corev3.HealthStatus_HEALTHY.String()
			}
			if f.address != "" && f.address != host || !f.has(port) || f.status != "" && !strings.EqualFold(f.status, status) {
				continue
			}
			endpoint := host
			if port != 0 {
				endpoint = names.HostPort(host, port)
			}
			weight := max(e.GetLoadBalancingWeight().GetValue(), 1)
			rows = append(rows, []string{endpoint, status, strconv.FormatUint(uint64(weight), 10), locality, cluster, objects})
		}
	}
	return rows
}

// hostPort returns the host and port of an address, or the path of a socket.
func hostPort(a *corev3.Address) (string, uint32) {
	if s := a.GetSocketAddress(); s != nil {
		return s.GetAddress(), s.GetPortValue()
	}
	return a.GetPipe().GetPath(), 0
}
