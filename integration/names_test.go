package integration

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/names/nds"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestNamesOfTheMesh: a DNS server beside a sidecar learns names host by host, and Istio's agent
// as one table. A new service is one more host, and no other is sent again.
func TestNamesOfTheMesh(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		service := func(name, address string) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  addresses: [$address]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.2}]
`, "$name", name, "$address", address)
		}
		s.apply(service("one", "10.9.0.1"), service("two", "10.9.0.2"))
		node := xdstest.NewNode("sidecar", "10.0.0.1", "vm", "shop", nil)
		node.GetMetadata().GetFields()["DNS_CAPTURE"] = structpb.NewStringValue("true")
		c := xdstest.Dial(t, s.xds, xdstest.ClientOptions{Node: node, Variant: v, Follow: true})
		for _, typeURL := range []string{xdstest.ClusterType, nds.TableType, nds.HostType} {
			c.Subscribe(typeURL)
		}
		want := map[string]string{"one.shop.test": "10.9.0.1", "two.shop.test": "10.9.0.2"}
		await := func(what string) {
			t.Helper()
			c.Await(what, func(held func(string) map[string]xdstest.Held) bool {
				table, hosts := &nds.NameTable{}, &nds.NameTable{Table: map[string]*nds.NameTable_NameInfo{}}
				for _, r := range held(nds.TableType) {
					if err := proto.Unmarshal(r.Body.GetValue(), table); err != nil {
						t.Error(err)
					}
				}
				for _, r := range held(nds.HostType) {
					one := &nds.Host{}
					if err := proto.Unmarshal(r.Body.GetValue(), one); err != nil {
						t.Error(err)
					}
					maps.Copy(hosts.Table, one.GetTable())
				}
				return isTable(table, want) && isTable(hosts, want)
			})
		}
		await("the names of two services")
		answers := len(c.Answers(nds.HostType))
		want["three.shop.test"] = "10.9.0.3"
		s.apply(service("three", "10.9.0.3"))
		await("the name of a new service")
		if last := c.AwaitAnswer(nds.HostType, answers); v == protocol.Delta && !slices.Equal(last.Names(), []string{"names/three.shop.test"}) {
			t.Errorf("the new service was sent with %v", last.Names())
		}
		delete(want, "one.shop.test")
		s.must("", "delete", "serviceentry/one", "-n", "shop", "--yes")
		await("one name less")
	})
}

func isTable(table *nds.NameTable, want map[string]string) bool {
	got := map[string]string{}
	for host, info := range table.GetTable() {
		got[host] = info.GetIps()[0]
	}
	return maps.Equal(got, want)
}
