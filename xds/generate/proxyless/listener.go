package proxyless

import (
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Listeners makes the listeners of clients, one for each port of a service.
type Listeners struct{}

var (
	_ generate.Generator = Listeners{}
	_ generate.Emptier   = Listeners{}
)

// TypeURL implements generate.Generator.
func (Listeners) TypeURL() string { return resource.ListenerType }

// Affected implements generate.Generator.
func (Listeners) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return eachName(v, d, func(p port) string { return names.HostPort(p.host, uint32(p.number)) })
}

// Build implements generate.Generator.
func (Listeners) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	hostname, text, ok := cutLast(name, ':')
	if !ok {
		return nil, nil, nil
	}
	number, err := strconv.ParseUint(text, 10, 16)
	p := port{hostname, int(number)}
	if err != nil || names.HostPort(p.host, uint32(p.number)) != name {
		return nil, nil, nil
	}
	if _, service := p.find(v); service == nil {
		return nil, nil, nil
	}
	return envoy.GRPCClientListener(name, p.routeConfig(), filter.HTTP(v, filter.GRPCClient, filter.Options{})), []resource.Need{
		{TypeURL: resource.RouteType, Name: p.routeConfig(), Kind: resource.Warm},
	}, nil
}

// Empty implements generate.Emptier. A client whose target is no port of a service gets a
// listener that leads nowhere. A server without an address gets none.
func (Listeners) Empty(name string) (proto.Message, []resource.Need, error) {
	if strings.HasPrefix(name, names.GRPCServerListenerPrefix) {
		return nil, nil, nil
	}
	return envoy.EmptyGRPCClientListener(name), nil, nil
}

// port is a port of a service, which clients call as host:port.
type port struct {
	host   string
	number int
}

// routeConfig is the name of the port's route configuration.
func (p port) routeConfig() string {
	return names.Cluster(names.Outbound, uint32(p.number), "", p.host)
}

// find returns the service as a client sees it on the port's egress listener. It is nil
// if the client does not see it or the port is not served.
func (p port) find(v *mesh.View) (mesh.EgressListener, *mesh.ServiceRow) {
	for _, l := range route.ListenersOf(v, p.number) {
		if row := v.ServiceAt(l, host.Name(p.host)); row != nil {
			if served, ok := row.Port(p.number); ok && served.Protocol.IsServed() {
				return l, row
			}
		}
	}
	return mesh.EgressListener{}, nil
}

// eachName yields, in the form that form gives them, the ports of the clusters that may
// appear or disappear because of d.
func eachName(v *mesh.View, d mesh.Delta, form func(port) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range cluster.Names(v, d) {
			ref, ok := names.ParseCluster(name)
			if ok && ref.Subset == "" && !yield(form(port{ref.Host, int(ref.Port)})) {
				return
			}
		}
	}
}

func cutLast(s string, separator byte) (before, after string, ok bool) {
	at := strings.LastIndexByte(s, separator)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+1:], true
}
