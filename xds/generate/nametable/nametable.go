// Package nametable makes the names that a sidecar's DNS server answers: one resource for each
// host that it sees, and one table of them all for Istio's agent. An alias has the addresses of
// its service. Only sidecars with DNS_CAPTURE have any. (Istio: pkg/dns/server/name_table.go.)
package nametable

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names/nds"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Hosts makes the resources of hosts.
type Hosts struct{}

var (
	_ generate.Generator   = Hosts{}
	_ generate.Gatewayless = Hosts{}
)

// TypeURL implements generate.Generator.
func (Hosts) TypeURL() string { return nds.HostType }

// Gatewayless implements generate.Gatewayless.
func (Hosts) Gatewayless() {}

// Affected implements generate.Generator.
func (Hosts) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !answers(v) {
			return
		}
		for c := range d.Hosts() {
			if h := host.Name(c.Key); d.Whole && !v.Sees(c.New) {
				if _, alias := v.Alias(h); !alias {
					continue
				}
			}
			if !yield(prefix + c.Key) {
				return
			}
		}
		for row := range v.ImportedHosts(d) {
			if !yield(prefix + string(row.Hostname)) {
				return
			}
		}
	}
}

// Build implements generate.Generator.
func (Hosts) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	hostname, ok := strings.CutPrefix(name, prefix)
	if !ok || !answers(v) {
		return nil, nil, nil
	}
	row := v.Service(host.Name(hostname))
	named := row
	if alias, ok := v.Alias(host.Name(hostname)); ok {
		row, named = v.Service(alias.Of), alias.Service
	}
	if row == nil {
		return nil, nil, nil
	}
	ips := v.Shape().Addresses(row)
	if len(ips) == 0 {
		ips = ofEndpoints(v, row)
	}
	if len(ips) == 0 {
		return nil, nil, nil
	}
	of := named.Service().Attributes
	info := &nds.NameTable_NameInfo{Ips: ips, Registry: string(of.Provider)}
	if of.Provider == discovery.Kubernetes {
		info.Shortname, info.Namespace = of.Name, of.Namespace
	}
	return &nds.Host{Table: map[string]*nds.NameTable_NameInfo{hostname: info}}, nil, nil
}

const prefix = nds.TableName + "/"

// answers says whether a proxy has a DNS server beside it that answers the names of the mesh.
func answers(v *mesh.View) bool {
	return v.Shape().Type == discovery.Sidecar && v.Shape().DNSCapture
}

// ofEndpoints returns the addresses of the healthy endpoints of a service without an address of
// its own, in order. It returns none if clients resolve the host themselves, or call any address
// of a range.
func ofEndpoints(v *mesh.View, row *mesh.ServiceRow) []string {
	if r := row.Service().Resolution; r.IsDNS() || r == discovery.DynamicDNS || len(row.Ranges()) > 0 {
		return nil
	}
	var ips []netip.Addr
	for _, e := range v.EndpointsOf(row) {
		if ip, err := netip.ParseAddr(e.Address); err == nil && e.Health == discovery.Healthy {
			ips = append(ips, ip.Unmap())
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	var out []string
	for _, ip := range slices.Compact(ips) {
		out = append(out, ip.String())
	}
	return out
}

// Table makes the table of all hosts, for Istio's agent.
type Table struct{}

var (
	_ generate.Generator   = Table{}
	_ generate.Composer    = Table{}
	_ generate.Gatewayless = Table{}
)

// TypeURL implements generate.Generator.
func (Table) TypeURL() string { return nds.TableType }

// Gatewayless implements generate.Gatewayless.
func (Table) Gatewayless() {}

// Affected implements generate.Generator.
func (Table) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole && answers(v) {
			yield(nds.TableName)
		}
	}
}

// Build implements generate.Generator. It makes a table without hosts.
func (Table) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name != nds.TableName || !answers(v) {
		return nil, nil, nil
	}
	return &nds.NameTable{}, nil, nil
}

// PartsURL implements generate.Composer.
func (Table) PartsURL() string { return nds.HostType }

// Compose implements generate.Composer: a table is its hosts, one after the other.
func (Table) Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error) {
	body := slices.Clone(own.Body.GetValue())
	var all []*resource.Resource
	for part := range parts {
		body = append(body, part.Body.GetValue()...)
		all = append(all, part)
	}
	return own.With(body, all), nil
}
