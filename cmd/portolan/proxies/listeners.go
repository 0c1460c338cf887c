package proxies

import (
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// The types of listeners that --type takes.
const (
	listensHTTP  = "HTTP"
	listensTCP   = "TCP"
	listensBoth  = "HTTP+TCP"
	listensOther = "UNKNOWN"
)

// listenerFilter holds the flags of proxy config listener.
type listenerFilter struct {
	portFilter
	address, kind string
}

func (f *listenerFilter) register(c *cobra.Command) {
	f.portFilter.register(c)
	c.Flags().StringVar(&f.address, "address", "", "only at this address")
	c.Flags().StringVar(&f.kind, "type", "", "only of this type: "+help.Alternatives([]string{listensHTTP, listensTCP, listensBoth, listensOther}))
}

func (f *listenerFilter) check() error {
	if f.kind != "" {
		if err := cli.OneOf("--type", strings.ToUpper(f.kind), listensHTTP, listensTCP, listensBoth, listensOther); err != nil {
			return err
		}
	}
	return f.portFilter.check()
}

func (f *listenerFilter) apply(config *admin.ProxyConfig) error {
	return keepResources(config, "LDS", func(l *listenerv3.Listener) bool {
		matches := slices.ContainsFunc(listenerAddresses(l), func(a *corev3.Address) bool {
			host, port := hostPort(a)
			return (f.address == "" || f.address == host) && f.has(port)
		})
		return matches && (f.kind == "" || strings.EqualFold(f.kind, listenerType(l)))
	})
}

// The first address may be nil: a listener of a gRPC client has none.
func listenerAddresses(l *listenerv3.Listener) []*corev3.Address {
	out := []*corev3.Address{l.GetAddress()}
	for _, more := range l.GetAdditionalAddresses() {
		out = append(out, more.GetAddress())
	}
	return out
}

// listenerType returns the type of traffic that a listener's filter chains accept.
func listenerType(l *listenerv3.Listener) string {
	http, tcp := l.GetApiListener() != nil, false
	for _, chain := range chainsOf(l) {
		for _, f := range chain.GetFilters() {
			switch networkFilter(f.GetTypedConfig()).(type) {
			case *hcmv3.HttpConnectionManager:
				http = true
			case *tcpproxyv3.TcpProxy:
				tcp = true
			}
		}
	}
	switch {
	case http && tcp:
		return listensBoth
	case http:
		return listensHTTP
	case tcp:
		return listensTCP
	}
	return listensOther
}

func chainsOf(l *listenerv3.Listener) []*listenerv3.FilterChain {
	chains := slices.Clone(l.GetFilterChains())
	if last := l.GetDefaultFilterChain(); last != nil {
		chains = append(chains, last)
	}
	return chains
}

// networkFilter decodes the configuration of a filter; nil if this binary does not know its
// type.
func networkFilter(config *anypb.Any) any {
	message, err := config.UnmarshalNew()
	if err != nil {
		return nil
	}
	return message
}

// listenerRows returns a row for each filter chain.
func listenerRows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"ADDRESSES", "PORT", "MATCH", "DESTINATION", "OBJECTS"}}
	err := eachOf(config, "LDS", func(r *admin.ProxyResource, l *listenerv3.Listener) {
		var hosts []string
		_, port := hostPort(l.GetAddress())
		for _, a := range listenerAddresses(l) {
			if host, _ := hostPort(a); host != "" {
				hosts = append(hosts, host)
			}
		}
		row := func(match, destination string) {
			rows = append(rows, []string{cli.FormatList(hosts, false), portCell(port), match, destination, cli.FormatList(r.Objects, false)})
		}
		if api := l.GetApiListener(); api != nil {
			row("ALL", filterDestination(l.GetName(), api.GetApiListener()))
		}
		for _, chain := range chainsOf(l) {
			row(chainMatch(chain.GetFilterChainMatch()), chainDestination(chain))
		}
	})
	return rows, err
}

// chainMatch describes which connections a filter chain matches.
func chainMatch(m *listenerv3.FilterChainMatch) string {
	var parts []string
	add := func(what string, values ...string) {
		if len(values) > 0 {
			parts = append(parts, what+": "+strings.Join(values, ","))
		}
	}
	add("SNI", m.GetServerNames()...)
	if t := m.GetTransportProtocol(); t != "" {
		add("Trans", t)
	}
	add("App", m.GetApplicationProtocols()...)
	add("Addr", cli.MapSlice(m.GetPrefixRanges(), func(r *corev3.CidrRange) string {
		return fmt.Sprintf("%s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
	})...)
	if port := m.GetDestinationPort(); port != nil {
		add("Port", fmt.Sprint(port.GetValue()))
	}
	if len(parts) == 0 {
		return "ALL"
	}
	return strings.Join(parts, "; ")
}

func chainDestination(chain *listenerv3.FilterChain) string {
	var out []string
	for _, f := range chain.GetFilters() {
		out = append(out, filterDestination(f.GetName(), f.GetTypedConfig()))
	}
	return strings.Join(out, ", ")
}

// filterDestination says where a filter sends connections or requests: the routes or
// clusters, else the name of the filter.
func filterDestination(name string, config *anypb.Any) string {
	switch f := networkFilter(config).(type) {
	case *hcmv3.HttpConnectionManager:
		if inline := f.GetRouteConfig(); inline != nil {
			return "Inline Route: " + cli.FormatList(inlineMatches(inline), false)
		}
		return "Route: " + f.GetRds().GetRouteConfigName()
	case *tcpproxyv3.TcpProxy:
		if c := f.GetCluster(); c != "" {
			return "Cluster: " + c
		}
		var clusters []string
		for _, c := range f.GetWeightedClusters().GetClusters() {
			clusters = append(clusters, fmt.Sprintf("%s[%d]", c.GetName(), c.GetWeight()))
		}
		return "Clusters: " + strings.Join(clusters, " ")
	}
	return name
}

func inlineMatches(c *routev3.RouteConfiguration) (out []string) {
	for _, h := range c.GetVirtualHosts() {
		for _, r := range h.GetRoutes() {
			out = append(out, matchCell(r.GetMatch()))
		}
	}
	return out
}
