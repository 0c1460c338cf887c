package filter_test

import (
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// Each kind of listener has its filters, in order, and the router last.
func TestOrder(t *testing.T) {
	t.Parallel()
	const fault, cors, router = "envoy.filters.http.fault", "envoy.filters.http.cors", "envoy.filters.http.router"
	for name, c := range map[string]struct {
		kind filter.Kind
		want []string
	}{
		"sidecar, outbound": {filter.SidecarOutbound, []string{fault, cors, router}},
		"sidecar, inbound":  {filter.SidecarInbound, []string{router}},
		"gateway":           {filter.Gateway, []string{fault, cors, router}},
		"gRPC client":       {filter.GRPCClient, []string{fault, router}},
		"gRPC server":       {filter.GRPCServer, []string{router}},
	} {
		var got []string
		for _, f := range filter.HTTP(c.kind) {
			got = append(got, f.GetName())
		}
		with := filter.HTTP(c.kind, envoy.DynamicDNSFilter(envoy.DNSv4Only))
		if at := with[len(with)-2]; len(with) != len(got)+1 || at.GetName() != envoy.DynamicDNSFilterName {
			t.Errorf("%s: hosts are resolved by %v, want that right before the router", name, with)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// A gateway trusts no client, an inbound listener forwards identities, and a
// sidecar's outbound listener does neither.
func TestManager(t *testing.T) {
	t.Parallel()
	type told struct {
		Edge, Identity bool
		Server         string
	}
	view := xdstest.NewWorld(t).View(xdstest.Node{})
	for name, c := range map[string]struct {
		kind filter.Kind
		want told
	}{
		"outbound": {filter.SidecarOutbound, told{}},
		"inbound":  {filter.SidecarInbound, told{Identity: true, Server: "istio-envoy"}},
		"gateway":  {filter.Gateway, told{Edge: true, Server: "istio-envoy"}},
	} {
		m := &hcmv3.HttpConnectionManager{}
		if err := filter.Manager(view, c.kind, filter.Options{StatPrefix: "p", RouteConfigName: "80"}).GetTypedConfig().UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
		got := told{
			m.GetUseRemoteAddress().GetValue(),
			m.GetForwardClientCertDetails() == hcmv3.HttpConnectionManager_APPEND_FORWARD,
			m.GetServerName(),
		}
		if diff := cmp.Diff(c.want, got); diff != "" || m.GetRds().GetRouteConfigName() != "80" {
			t.Errorf("%s: %v (-want +got)\n%s", name, m, diff)
		}
	}
}
