package discovery_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

func service(hostname host.Name, namespace string, sec int64, address string, ports ...string) *discovery.Service {
	s := &discovery.Service{
		Hostname: hostname, Address: address, CreationTime: time.Unix(sec, 0),
		Attributes: discovery.Attributes{Name: "se-" + string(hostname), Namespace: namespace},
	}
	for i, name := range ports {
		s.Ports = append(s.Ports, discovery.Port{Name: name, Number: 80 + i})
	}
	return s
}

func endpoint(address, port string, l labels.Instance) *discovery.Endpoint {
	return &discovery.Endpoint{Address: address, Port: 8080, ServicePortName: port, Labels: l, Weight: 1}
}

// index returns an index with two services of one host in two namespaces, and one more.
func index() *discovery.Index {
	x := &discovery.Index{}
	for _, row := range []discovery.Row{
		{
			Hostname: "web.example", Namespace: "shop",
			Services: []*discovery.Service{service("web.example", "shop", 2, "10.1.0.2", "http", "admin"), service("web.example", "shop", 2, "10.1.0.1", "http", "admin")},
			Endpoints: []*discovery.Endpoint{
				endpoint("10.0.0.1", "http", labels.Instance{"app": "web", "v": "1"}), endpoint("10.0.0.1", "admin", nil),
				endpoint("10.0.0.2", "http", labels.Instance{"app": "web", "v": "2"}), endpoint("10.0.0.1", "unknown", nil),
			},
		},
		{
			Hostname: "web.example", Namespace: "old", Services: []*discovery.Service{service("web.example", "old", 1, "0.0.0.0", "http")},
			Endpoints: []*discovery.Endpoint{endpoint("::ffff:10.0.0.1", "http", labels.Instance{"app": "old"}), endpoint("/run/web.sock", "http", nil)},
		},
		{
			Hostname: "web.example.org", Namespace: "shop", Services: []*discovery.Service{service("web.example.org", "shop", 3, "0.0.0.0", "http")},
			Endpoints: []*discovery.Endpoint{endpoint("10.0.0.1", "http", nil)},
		},
	} {
		x.Publish(&discoverytest.Recorder{}, discovery.ShardKey{}, row)
	}
	return x
}

func names(services []*discovery.Service) (out []string) {
	for _, s := range services {
		out = append(out, s.Attributes.Namespace+"/"+string(s.Hostname)+" "+s.Address)
	}
	return out
}

func instances(in []*discovery.ServiceInstance) (out []string) {
	for _, i := range in {
		out = append(out, fmt.Sprintf("%s/%s %s=%s", i.Service.Attributes.Namespace, i.Service.Hostname, i.ServicePort.Name, i.Endpoint.Address))
	}
	return out
}

func expect(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestIndexServices(t *testing.T) {
	t.Parallel()
	expect(t, names(index().Services()), []string{
		"old/web.example 0.0.0.0", "shop/web.example 10.1.0.1", "shop/web.example 10.1.0.2", "shop/web.example.org 0.0.0.0",
	})
	if got := new(discovery.Index).Services(); got != nil {
		t.Errorf("the empty index has %v", got)
	}
}

func TestIndexGetServiceIsTheOldest(t *testing.T) {
	t.Parallel()
	x := index()
	expect(t, names([]*discovery.Service{x.GetService("web.example"), x.GetService("web.example.org")}),
		[]string{"old/web.example 0.0.0.0", "shop/web.example.org 0.0.0.0"})
	if x.GetService("web") != nil {
		t.Error("a service of another host")
	}
}

func TestIndexInstancesByPort(t *testing.T) {
	t.Parallel()
	x := index()
	web := x.Row("web.example", "shop").Services[0]
	for _, tc := range []struct {
		name     string
		port     int
		selector labels.Instance
		want     []string
	}{
		{"no labels select all", 80, nil, []string{"shop/web.example http=10.0.0.1", "shop/web.example http=10.0.0.2"}},
		{"labels select supersets", 80, labels.Instance{"v": "2"}, []string{"shop/web.example http=10.0.0.2"}},
		{"labels that none has", 80, labels.Instance{"v": "3"}, nil},
		{"another port", 81, nil, []string{"shop/web.example admin=10.0.0.1"}},
		{"an unknown port", 82, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			expect(t, instances(x.InstancesByPort(web, tc.port, tc.selector)), tc.want)
		})
	}
}

func TestIndexGetProxyServiceInstances(t *testing.T) {
	t.Parallel()
	x := index()
	for _, tc := range []struct {
		name  string
		proxy discovery.Proxy
		want  []string
	}{
		{
			"one per service port of its namespace", discovery.Proxy{Namespace: "shop", IPAddresses: []string{"10.0.0.1"}},
			[]string{"shop/web.example.org http=10.0.0.1", "shop/web.example http=10.0.0.1", "shop/web.example admin=10.0.0.1"},
		},
		{
			"once for several addresses", discovery.Proxy{Namespace: "shop", IPAddresses: []string{"10.0.0.2", "10.0.0.1"}},
			[]string{"shop/web.example http=10.0.0.2", "shop/web.example.org http=10.0.0.1", "shop/web.example admin=10.0.0.1"},
		},
		{
			"an address in another spelling", discovery.Proxy{Namespace: "old", IPAddresses: []string{"10.0.0.1"}},
			[]string{"old/web.example http=::ffff:10.0.0.1"},
		},
		{"a stand-alone proxy", discovery.Proxy{Namespace: "shop", IPAddresses: []string{"10.0.0.9"}}, nil},
		{"a prefix of an address", discovery.Proxy{Namespace: "shop", IPAddresses: []string{"10.0.0"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			expect(t, instances(x.GetProxyServiceInstances(&tc.proxy)), tc.want)
		})
	}
}

func TestIndexGetProxyWorkloadLabels(t *testing.T) {
	t.Parallel()
	x := index()
	for _, tc := range []struct {
		name, namespace, ip string
		want                labels.Instance
	}{
		{"the own namespace first", "shop", "10.0.0.1", labels.Instance{"app": "web", "v": "1"}},
		{"then the others", "elsewhere", "10.0.0.1", labels.Instance{"app": "old"}},
		{"an unknown address", "shop", "10.0.0.9", nil},
	} {
		got := x.GetProxyWorkloadLabels(&discovery.Proxy{Namespace: tc.namespace, IPAddresses: []string{tc.ip}})
		if !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestPublishHandsOverWhatDiffers(t *testing.T) {
	t.Parallel()
	x, xds := &discovery.Index{}, &discoverytest.Recorder{}
	row := func(services, endpoints int) discovery.Row {
		r := discovery.Row{Hostname: "a", Namespace: "n"}
		for i := range services {
			r.Services = append(r.Services, service("a", "n", 1, fmt.Sprint("10.0.0.", i), "http"))
		}
		for i := range endpoints {
			r.Endpoints = append(r.Endpoints, endpoint(fmt.Sprint("10.0.1.", i), "http", nil))
		}
		return r
	}
	for _, step := range []struct {
		name                string
		services, endpoints int
		want                []string
	}{
		{"both", 1, 1, []string{"services n/a 1", "endpoints (silent) n/a 1"}},
		{"nothing", 1, 1, nil},
		{"endpoints alone", 1, 2, []string{"endpoints n/a 2"}},
		{"services alone", 2, 2, []string{"services n/a 2"}},
		{"no endpoints left", 2, 0, []string{"endpoints n/a 0"}},
		{"endpoints again", 2, 1, []string{"endpoints n/a 1"}},
		{"no services: the endpoints go with them", 0, 1, []string{"services n/a 0"}},
		{"gone already", 0, 0, nil},
		{"back again", 1, 1, []string{"services n/a 1", "endpoints (silent) n/a 1"}},
	} {
		x.Publish(xds, discovery.ShardKey{}, row(step.services, step.endpoints))
		if diff := cmp.Diff(step.want, xds.Take()); diff != "" {
			t.Fatalf("%s (-want +got)\n%s", step.name, diff)
		}
	}
	x.Publish(xds, discovery.ShardKey{}, row(0, 0))
	if got := x.GetProxyServiceInstances(&discovery.Proxy{IPAddresses: []string{"10.0.1.0"}}); got != nil {
		t.Errorf("an address of a removed row still has %v", instances(got))
	}
}

func TestChangeEachService(t *testing.T) {
	t.Parallel()
	x := &discovery.Index{}
	publish := func(services ...*discovery.Service) discovery.Change {
		return x.Publish(&discoverytest.Recorder{}, discovery.ShardKey{}, discovery.Row{Hostname: "a", Namespace: "n", Services: services})
	}
	publish(service("a", "n", 1, "1", "http"), service("a", "n", 1, "2", "http"), service("a", "n", 1, "3", "http"))
	change := publish(service("a", "n", 1, "4", "http"), service("a", "n", 1, "2", "http", "admin"), service("a", "n", 1, "3", "http"))
	var got []string
	change.EachService(func(old, curr *discovery.Service, event cache.Event) {
		line := event.String()
		if old != nil {
			line += " old " + old.Address
		}
		if curr != nil {
			line += " curr " + curr.Address
		}
		got = append(got, line)
	})
	expect(t, got, []string{"delete old 1", "update old 2 curr 2", "add curr 4"})
}

func TestHandlersAreCalledInOrderAndClosed(t *testing.T) {
	t.Parallel()
	var h discovery.Handlers
	var got []string
	for _, name := range []string{"first", "second"} {
		h.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, event cache.Event) {
			got = append(got, name+" "+w.Name+" "+event.String())
		})
		h.AppendServiceHandler(func(_, curr *discovery.Service, _ cache.Event) { got = append(got, name+" "+curr.Address) })
	}
	h.WorkloadChanged(&discovery.WorkloadInstance{Name: "w"}, cache.EventAdd)
	h.ServicesChanged(discovery.Change{Services: true, After: discovery.Row{Services: []*discovery.Service{{Address: "1"}}}})
	want := []string{"first w add", "second w add", "first 1", "second 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	h.Close()
	defer func() {
		if recover() == nil {
			t.Error("a handler was appended after Close")
		}
	}()
	h.AppendServiceHandler(nil)
}

// TestInstancesAreOfTheIdentityThatWasProved: among several services at one address, a proxy
// with a proven identity gets no instance of another identity.
func TestInstancesAreOfTheIdentityThatWasProved(t *testing.T) {
	t.Parallel()
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	x := &discovery.Index{}
	for hostname, account := range map[string]string{"mine.example": web, "nobodys.example": "", "theirs.example": "spiffe://cluster.local/ns/shop/sa/db"} {
		e := *endpoint("10.0.0.1", "http", nil)
		e.ServiceAccount = account
		x.Publish(&discoverytest.Recorder{}, discovery.ShardKey{}, discovery.Row{
			Hostname: host.Name(hostname), Namespace: "shop",
			Services: []*discovery.Service{service(host.Name(hostname), "shop", 1, discovery.UnspecifiedIP, "http")}, Endpoints: []*discovery.Endpoint{&e},
		})
	}
	for identity, want := range map[string]int{"": 3, web: 2} {
		got := x.GetProxyServiceInstances(&discovery.Proxy{Namespace: "shop", IPAddresses: []string{"10.0.0.1"}, Identity: identity})
		if len(got) != want {
			t.Errorf("%q has %d instances, not %d", identity, len(got), want)
		}
	}
}
