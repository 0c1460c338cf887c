package nametable_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/names/nds"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// world has services of every kind that a name table may have.
func world(t *testing.T) *xdstest.World {
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], addresses: [10.9.0.1], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}"),
		xdstest.Object("ServiceEntry", "shop/both", "{hosts: [both.test], addresses: [10.9.0.2, 'fd00:9::2'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}"),
		xdstest.Object("ServiceEntry", "shop/range", "{hosts: [range.test], addresses: [10.8.0.0/16], ports: [{number: 5432, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}"),
		xdstest.Object("ServiceEntry", "shop/given", "{hosts: [given.test], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: elsewhere.test}]}"),
		xdstest.Object("ServiceEntry", "shop/dns", "{hosts: [dns.test], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}"),
		xdstest.Object("ServiceEntry", "shop/headless", "{hosts: [headless.test], ports: [{number: 5432, name: tcp, protocol: TCP}], resolution: NONE, workloadSelector: {labels: {app: db}}}"),
		xdstest.Object("WorkloadEntry", "shop/db-2", "{address: 10.0.0.22, labels: {app: db}}"),
		xdstest.Object("WorkloadEntry", "shop/db-1", "{address: 10.0.0.3, labels: {app: db}}"),
		xdstest.Object("ServiceEntry", "shop/none", "{hosts: [none.test], ports: [{number: 5432, name: tcp, protocol: TCP}], resolution: NONE}"),
		xdstest.Object("ServiceEntry", "shop/wild", "{hosts: ['*.wild.test'], addresses: [10.9.0.3], ports: [{number: 443, name: tls, protocol: TLS}], resolution: NONE}"),
		xdstest.Object("ServiceEntry", "bank/own", "{hosts: [own.test], exportTo: ['.'], addresses: [10.9.0.4], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}"))
	w.Assign("shop", "given.test", "240.240.0.1")
	return w
}

// tableOf returns the addresses that a proxy's DNS server answers, by host. The table and the
// hosts one by one must be the same.
func tableOf(t *testing.T, m xdstest.Member) map[string][]string {
	t.Helper()
	m.Follow()
	table, hosts := &nds.NameTable{}, &nds.NameTable{}
	if r := m.Set("NDS").Value(nds.TableName); r != nil {
		if err := proto.Unmarshal(r.Body.GetValue(), table); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range m.Set("NAMES").All() {
		one := &nds.Host{}
		if err := proto.Unmarshal(r.Body.GetValue(), one); err != nil {
			t.Fatal(err)
		}
		for h := range one.GetTable() {
			if name != nds.TableName+"/"+h || len(one.GetTable()) != 1 {
				t.Errorf("the resource %s has the host %s among %d", name, h, len(one.GetTable()))
			}
		}
		proto.Merge(hosts, &nds.NameTable{Table: one.GetTable()})
	}
	if !proto.Equal(table, hosts) {
		t.Errorf("the table is %v, and its hosts are %v", table, hosts)
	}
	out := map[string][]string{}
	for h, info := range table.GetTable() {
		if info.GetRegistry() != string(discovery.External) || info.GetShortname() != "" {
			t.Errorf("%s: %v", h, info)
		}
		out[h] = info.GetIps()
	}
	return out
}

// TestNamesOfAliases: an alias has the addresses of its service, and follows them; one without a service has
// no name.
func TestNamesOfAliases(t *testing.T) {
	t.Parallel()
	const h = "a.shop.svc.cluster.local"
	w := world(t)
	w.Offer(discovery.Row{
		Hostname: h, Namespace: "shop",
		Services: []*discovery.Service{{
			Hostname: h, Address: discovery.UnspecifiedIP, Resolution: discovery.DNSLB, MeshExternal: true,
			Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: "a", Namespace: "shop", ExternalName: "late.test"},
		}},
	})
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	m := all.Join(xdstest.Node{Namespace: "shop", IP: "10.0.0.9", DNSCapture: true}.Proxy(t))
	t.Cleanup(m.Close)
	late := func(address string) func() {
		return func() {
			w.Apply(xdstest.Object("ServiceEntry", "shop/late", "{hosts: [late.test], addresses: ["+address+"], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}"))
		}
	}
	for i, step := range []struct {
		do   func()
		want *nds.NameTable_NameInfo
	}{
		{func() {}, nil},
		{late("10.9.0.8"), &nds.NameTable_NameInfo{Ips: []string{"10.9.0.8"}, Registry: "Kubernetes", Shortname: "a", Namespace: "shop"}},
		{late("10.9.0.9"), &nds.NameTable_NameInfo{Ips: []string{"10.9.0.9"}, Registry: "Kubernetes", Shortname: "a", Namespace: "shop"}},
		{func() { w.Delete("serviceentry/shop/late") }, nil},
	} {
		step.do()
		m.Follow()
		one := &nds.Host{}
		if r := m.Set("NAMES").Value(nds.HostName(h)); r != nil {
			if err := proto.Unmarshal(r.Body.GetValue(), one); err != nil {
				t.Fatal(err)
			}
		}
		if got := one.GetTable()[h]; !proto.Equal(got, step.want) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	fresh := all.Join(xdstest.Node{Namespace: "shop", IP: "10.0.0.8", DNSCapture: true}.Proxy(t))
	t.Cleanup(fresh.Close)
	late("10.9.0.9")()
	fresh.Follow()
	if fresh.Set("NAMES").Value(nds.HostName(h)) == nil {
		t.Error("who begins with an alias has no name of it")
	}
}

// TestNames: a sidecar with DNS_CAPTURE has the addresses of every host that it sees, and follows
// changes by host; others have no names.
func TestNames(t *testing.T) {
	t.Parallel()
	w := world(t)
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	join := func(n xdstest.Node) xdstest.Member {
		m := all.Join(n.Proxy(t))
		t.Cleanup(m.Close)
		return m
	}
	m := join(xdstest.Node{Namespace: "shop", IP: "10.0.0.9", DNSCapture: true})
	want := map[string][]string{
		"web.test": {"10.9.0.1"}, "both.test": {"10.9.0.2", "fd00:9::2"}, "given.test": {"240.240.0.1"},
		"headless.test": {"10.0.0.3", "10.0.0.22"}, "*.wild.test": {"10.9.0.3"},
	}
	if diff := cmp.Diff(want, tableOf(t, m)); diff != "" {
		t.Errorf("names of shop (-want +got):\n%s", diff)
	}
	for _, n := range []xdstest.Node{
		{Namespace: "shop", IP: "10.0.0.8"},
		{Namespace: "shop", IP: "10.0.0.7", Type: discovery.Router, DNSCapture: true},
		{Namespace: "shop", IP: "10.0.0.6", Type: discovery.Proxyless, DNSCapture: true},
	} {
		if got := tableOf(t, join(n)); len(got) > 0 {
			t.Errorf("%v has names: %v", n, got)
		}
	}
	if got := tableOf(t, join(xdstest.Node{Namespace: "bank", IP: "10.0.0.5", DNSCapture: true})); !slices.Equal(got["own.test"], []string{"10.9.0.4"}) {
		t.Errorf("names of bank: %v", got)
	}

	before := m.Versions()
	w.Apply(xdstest.Object("WorkloadEntry", "shop/db-2", "{address: 10.0.0.23, labels: {app: db}}"))
	want["headless.test"] = []string{"10.0.0.3", "10.0.0.23"}
	if diff := cmp.Diff(want, tableOf(t, m)); diff != "" {
		t.Errorf("after an endpoint has moved (-want +got):\n%s", diff)
	}
	for name, version := range m.Versions() {
		switch name {
		case "NDS names", "NAMES names/headless.test":
			if before[name] == version {
				t.Errorf("%s is the same after its endpoint has moved", name)
			}
		default:
			if len(name) > 5 && name[:5] == "NAMES" && before[name] != version {
				t.Errorf("%s changed with the endpoint of another host", name)
			}
		}
	}
	w.Apply(xdstest.Object("Sidecar", "shop/default", "{egress: [{hosts: ['*/web.test', './headless.test']}]}"))
	want = map[string][]string{"web.test": want["web.test"], "headless.test": want["headless.test"]}
	if diff := cmp.Diff(want, tableOf(t, m)); diff != "" {
		t.Errorf("with a Sidecar (-want +got):\n%s", diff)
	}
	w.Delete("serviceentry/shop/web")
	delete(want, "web.test")
	if diff := cmp.Diff(want, tableOf(t, m)); diff != "" {
		t.Errorf("after a service has gone (-want +got):\n%s", diff)
	}
}
