package consul_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
)

func service(f func(*api.AgentService)) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) { f(e.Service) }
}

func meta(pairs ...string) func(*api.ServiceEntry) {
	return service(func(s *api.AgentService) {
		s.Meta = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			s.Meta[pairs[i]] = pairs[i+1]
		}
	})
}

func tags(tags ...string) func(*api.ServiceEntry) {
	return service(func(s *api.AgentService) { s.Tags = tags })
}

func node(f func(*api.Node)) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) { f(e.Node) }
}

// check adds a check of the instance, or of its node where the id says so.
func check(id, status string) func(*api.ServiceEntry) {
	return func(e *api.ServiceEntry) {
		c := &api.HealthCheck{CheckID: id, Status: status, Node: e.Node.Node, ServiceID: e.Service.ID}
		if strings.HasPrefix(id, "node") || id == api.NodeMaint {
			c.ServiceID = ""
		}
		e.Checks = append(e.Checks, c)
	}
}

// described returns a row in a short text form.
func described(row discovery.Row) []string {
	var out []string
	for _, s := range row.Services {
		for _, p := range s.Ports {
			out = append(out, fmt.Sprintf("port %s %d %s", p.Name, p.Number, p.Protocol))
		}
		if s.Address != discovery.UnspecifiedIP {
			out = append(out, "address "+s.Address)
		}
		if s.MeshExternal || s.Resolution != discovery.ClientSideLB {
			out = append(out, "not an internal service of pushed endpoints")
		}
	}
	for _, e := range row.Endpoints {
		line := fmt.Sprintf("%s:%d at %s for %s weight %d", e.Address, e.Port, e.Locality.Label, e.ServicePortName, e.Weight)
		switch e.Health {
		case discovery.Healthy:
		case discovery.OutOfUse:
			line += " out of use"
		default:
			line += " unhealthy"
		}
		if len(e.Labels) > 0 {
			line += fmt.Sprintf(" %v", map[string]string(e.Labels))
		}
		out = append(out, line)
	}
	return out
}

func TestConversion(t *testing.T) {
	t.Parallel()
	web := func(more ...func(*api.ServiceEntry)) *api.ServiceEntry {
		return entry("n1", "web", "web-1", "10.0.0.1", 8080, more...)
	}
	const plain = "10.0.0.1:8080 at dc1 for tcp-8080 weight 1"
	tests := []struct {
		name    string
		entries []*api.ServiceEntry
		options func(*consul.Options)
		want    []string
	}{
		{name: "TCP unless something says otherwise", entries: []*api.ServiceEntry{web()}, want: []string{"port tcp-8080 8080 TCP", plain}},
		{name: "protocol by metadata", entries: []*api.ServiceEntry{web(meta("protocol", "http"))},
			want: []string{"port http-8080 8080 HTTP", "10.0.0.1:8080 at dc1 for http-8080 weight 1 map[protocol:http]"}},
		{name: "portolan-protocol outranks protocol", entries: []*api.ServiceEntry{web(meta("protocol", "http", "portolan-protocol", "grpc"))},
			want: []string{"port grpc-8080 8080 GRPC", "10.0.0.1:8080 at dc1 for grpc-8080 weight 1 map[portolan-protocol:grpc protocol:http]"}},
		{name: "protocol by a tag of two parts", entries: []*api.ServiceEntry{web(tags("protocol|http2"))},
			want: []string{"port http2-8080 8080 HTTP2", "10.0.0.1:8080 at dc1 for http2-8080 weight 1 map[protocol:http2]"}},
		{name: "protocol by a plain tag", entries: []*api.ServiceEntry{web(tags("blue", "HTTP"))},
			want: []string{"port http-8080 8080 HTTP", "10.0.0.1:8080 at dc1 for http-8080 weight 1 map[HTTP:true blue:true]"}},
		{name: "a protocol that is not known is TCP", entries: []*api.ServiceEntry{web(meta("protocol", "smtp"))},
			want: []string{"port tcp-8080 8080 TCP", plain + " map[protocol:smtp]"}},
		{name: "labels of tags and of metadata, which outranks", entries: []*api.ServiceEntry{web(tags("version=v1", "canary", "team|a", "x=1"), meta("x", "2"))},
			want: []string{"port tcp-8080 8080 TCP", plain + " map[canary:true team:a version:v1 x:2]"}},
		{name: "ports named by Consul", entries: []*api.ServiceEntry{web(service(func(s *api.AgentService) {
			s.Ports = api.ServicePorts{{Name: "http", Port: 80, Default: true}, {Name: "grpc-admin", Port: 81}}
		}))}, want: []string{"port http-80 80 HTTP", "port grpc-81 81 GRPC", "10.0.0.1:81 at dc1 for grpc-81 weight 1", "10.0.0.1:80 at dc1 for http-80 weight 1"}},
		{name: "a port for each number that instances have", entries: []*api.ServiceEntry{web(), entry("n1", "web", "web-2", "10.0.0.2", 9090)},
			want: []string{"port tcp-8080 8080 TCP", "port tcp-9090 9090 TCP", plain, "10.0.0.2:9090 at dc1 for tcp-9090 weight 1"}},
		{name: "one port of the service over the instances' own", entries: []*api.ServiceEntry{web(meta("portolan-port", "80")), entry("n1", "web", "web-2", "10.0.0.2", 9090, meta("portolan-port", "80"))},
			want: []string{"port tcp-80 80 TCP", "10.0.0.1:8080 at dc1 for tcp-80 weight 1 map[portolan-port:80]", "10.0.0.2:9090 at dc1 for tcp-80 weight 1 map[portolan-port:80]"}},
		{name: "a port of the service that is none", entries: []*api.ServiceEntry{web(meta("portolan-port", "http"))},
			want: []string{"port tcp-8080 8080 TCP", plain + " map[portolan-port:http]"}},
		{name: "most instances decide on the protocol", entries: []*api.ServiceEntry{
			web(tags("http")), entry("n1", "web", "web-2", "10.0.0.2", 8080, tags("grpc")), entry("n1", "web", "web-3", "10.0.0.3", 8080, tags("grpc")),
		}, want: []string{"port grpc-8080 8080 GRPC", "10.0.0.1:8080 at dc1 for grpc-8080 weight 1 map[http:true]",
			"10.0.0.2:8080 at dc1 for grpc-8080 weight 1 map[grpc:true]", "10.0.0.3:8080 at dc1 for grpc-8080 weight 1 map[grpc:true]"}},
		{name: "the node's address where the instance has none", entries: []*api.ServiceEntry{entry("n1", "web", "web-1", "", 8080)},
			want: []string{"port tcp-8080 8080 TCP", "10.9.9.9:8080 at dc1 for tcp-8080 weight 1"}},
		{name: "the tagged address lan before the node's", entries: []*api.ServiceEntry{entry("n1", "web", "web-1", "", 8080, service(func(s *api.AgentService) {
			s.TaggedAddresses = map[string]api.ServiceAddress{"lan": {Address: "10.0.0.7"}, "wan": {Address: "1.2.3.4"}}
		}))}, want: []string{"port tcp-8080 8080 TCP", "10.0.0.7:8080 at dc1 for tcp-8080 weight 1"}},
		{name: "the tagged address virtual is the service's", entries: []*api.ServiceEntry{web(service(func(s *api.AgentService) {
			s.TaggedAddresses = map[string]api.ServiceAddress{"virtual": {Address: "240.9.0.1"}, "consul-virtual": {Address: "240.0.0.1"}}
		}))}, want: []string{"port tcp-8080 8080 TCP", "address 240.9.0.1", plain}},
		{name: "zones of the node's metadata", entries: []*api.ServiceEntry{web(node(func(n *api.Node) { n.Meta = map[string]string{"zone": "a", "subzone": "rack-7"} }))},
			want: []string{"port tcp-8080 8080 TCP", "10.0.0.1:8080 at dc1/a/rack-7 for tcp-8080 weight 1"}},
		{name: "a locality of Consul's own", entries: []*api.ServiceEntry{web(service(func(s *api.AgentService) { s.Locality = &api.Locality{Region: "eu", Zone: "eu-1"} }))},
			want: []string{"port tcp-8080 8080 TCP", "10.0.0.1:8080 at eu/eu-1 for tcp-8080 weight 1"}},
		{name: "weights", entries: []*api.ServiceEntry{web(service(func(s *api.AgentService) { s.Weights = api.AgentWeights{Passing: 5, Warning: 2} }))},
			want: []string{"port tcp-8080 8080 TCP", "10.0.0.1:8080 at dc1 for tcp-8080 weight 5"}},
		{name: "warning gets its weight", entries: []*api.ServiceEntry{web(check("c", "warning"), service(func(s *api.AgentService) { s.Weights = api.AgentWeights{Passing: 5, Warning: 2} }))},
			want: []string{"port tcp-8080 8080 TCP", "10.0.0.1:8080 at dc1 for tcp-8080 weight 2"}},
		{name: "warning may be unhealthy", entries: []*api.ServiceEntry{web(check("c", "warning"))}, options: func(o *consul.Options) { o.WarningUnhealthy = true },
			want: []string{"port tcp-8080 8080 TCP", plain + " unhealthy"}},
		{name: "critical is unhealthy", entries: []*api.ServiceEntry{web(check("a", "passing"), check("b", "critical"))}, want: []string{"port tcp-8080 8080 TCP", plain + " unhealthy"}},
		{name: "a critical node is too", entries: []*api.ServiceEntry{web(check("node", "critical"))}, want: []string{"port tcp-8080 8080 TCP", plain + " unhealthy"}},
		{name: "maintenance leaves, and the service keeps its port", entries: []*api.ServiceEntry{web(check(api.ServiceMaintPrefix+"web-1", "critical"))}, want: []string{"port tcp-8080 8080 TCP", plain + " out of use"}},
		{name: "the node's maintenance too", entries: []*api.ServiceEntry{web(check(api.NodeMaint, "critical"))}, want: []string{"port tcp-8080 8080 TCP", plain + " out of use"}},
		{name: "proxies of Consul's own mesh are not taken", entries: []*api.ServiceEntry{web(service(func(s *api.AgentService) { s.Kind = api.ServiceKindConnectProxy }))}},
		{name: "an address that is a name", entries: []*api.ServiceEntry{entry("n1", "web", "web-1", "web.example.com", 80)}},
		{name: "no port", entries: []*api.ServiceEntry{entry("n1", "web", "web-1", "10.0.0.1", 0)}},
		{name: "names are in lower case", entries: []*api.ServiceEntry{entry("n1", "Web", "web-1", "10.0.0.1", 8080)}, want: []string{"port tcp-8080 8080 TCP", plain}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t)
			for _, e := range tt.entries {
				a.put(e)
			}
			f := follow(t, a, func(o *consul.Options) {
				if tt.options != nil {
					tt.options(o)
				}
			}).synced()
			if diff := cmp.Diff(tt.want, described(f.xds.Rows()["consul/web.service.consul"])); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// What the registry leaves out of the mesh shows as a flaw.
func TestFlawsAreVisible(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.put(entry("n1", "no_label", "x", "10.0.0.1", 80))
	a.put(entry("n1", "named", "named-1", "host.example.com", 80))
	a.put(entry("n1", "portless", "p", "10.0.0.1", 0))
	a.put(entry("n1", "mixed", "m1", "10.0.0.1", 80, tags("http")))
	a.put(entry("n1", "mixed", "m2", "10.0.0.2", 80, tags("grpc")))
	f := follow(t, a).synced()
	want := []consul.Flaw{
		{Datacenter: "local", Service: "no_label", Reason: "the name is not a DNS label: left out", LeftOut: true},
		{Service: "mixed", Reason: "the instances of port 80 say GRPC and HTTP: it is taken for GRPC"},
		{Datacenter: "local", Service: "named", Instance: "n1/named-1", Reason: `the address "host.example.com" is not an IP address: left out`, LeftOut: true},
		{Datacenter: "local", Service: "portless", Instance: "n1/p", Reason: "it has no port: left out", LeftOut: true},
	}
	if diff := cmp.Diff(want, f.Status().Flaws); diff != "" {
		t.Error(diff)
	}
	for _, word := range []string{"no_label", "it has no port", "is not an IP address", "it is taken for GRPC"} {
		if n := strings.Count(f.log.String(), word); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", word, n, f.log)
		}
	}
	if got := f.gauge("portolan_consul_left_out"); got != 3 {
		t.Errorf("portolan_consul_left_out is %v", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]consul.Options{
		"is not http://HOST:PORT": {Address: "localhost:8500"},
		"not a DNS name":          {Address: "http://localhost:8500", Domain: "a..b"},
		"not a DNS label":         {Address: "http://localhost:8500", Namespace: "a.b"},
		"is too few":              {Address: "http://localhost:8500", MaxQueries: 7, Datacenters: []string{"a", "b"}},
	} {
		if _, err := consul.New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// gauge returns the value of a metric without labels, or the first value of one with labels.
func (f *fixture) gauge(name string) float64 {
	f.t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	f.t.Fatalf("there is no metric %s", name)
	return 0
}
