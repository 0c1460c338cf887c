package filter_test

import (
	"slices"
	"strings"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// Each kind of listener has its filters in order, with the router last.
func TestOrder(t *testing.T) {
	t.Parallel()
	const web, fault, cors, router = "envoy.filters.http.grpc_web", "envoy.filters.http.fault", "envoy.filters.http.cors", "envoy.filters.http.router"
	guards := []string{
		"portolan.authorization.http.custom.rules", "portolan.authorization.http.custom.check", "portolan.tokens.http",
		"portolan.authorization.http.audit", "portolan.authorization.http.deny", "portolan.authorization.http.allow",
	}
	view := xdstest.NewWorld(t).View(xdstest.Node{})
	for name, c := range map[string]struct {
		kind filter.Kind
		want []string
	}{
		"sidecar, outbound": {filter.SidecarOutbound, []string{web, fault, cors, router}},
		"sidecar, inbound":  {filter.SidecarInbound, append(slices.Clone(guards), router)},
		"gateway":           {filter.Gateway, append(slices.Clone(guards), web, fault, cors, router)},
		"gRPC client":       {filter.GRPCClient, []string{fault, router}},
		"gRPC server":       {filter.GRPCServer, []string{router}},
	} {
		var got []string
		for _, f := range filter.HTTP(view, c.kind, filter.Options{}) {
			got = append(got, f.GetName())
		}
		with := filter.HTTP(view, c.kind, filter.Options{DynamicDNS: true})
		if at := with[len(with)-2]; len(with) != len(got)+1 || at.GetName() != envoy.DynamicDNSFilterName {
			t.Errorf("%s: hosts are resolved by %v, want that right before the router", name, with)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// What resolves SNI names comes right before what takes the bytes.
func TestNetworkOrder(t *testing.T) {
	t.Parallel()
	view := xdstest.NewWorld(t).View(xdstest.Node{})
	for port, want := range map[int][]string{0: {envoy.TCPProxyName}, 443: {envoy.SNIDynamicDNSFilterName, envoy.TCPProxyName}} {
		var got []string
		for _, f := range filter.Network(view, filter.SidecarOutbound, filter.NetworkOptions{ResolveSNI: port}, envoy.TCPProxy(envoy.TCPProxyOptions{StatPrefix: "x", Clusters: []envoy.WeightedCluster{{Name: "x"}}})) {
			got = append(got, f.GetName())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// A gateway trusts no client. An inbound listener forwards identities. A sidecar's
// outbound listener does neither.
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

// The topology decides how a gateway handles X-Forwarded-Client-Cert and how many hops it
// trusts. If it adds the client's certificate, it adds the whole one.
func TestTopology(t *testing.T) {
	t.Parallel()
	type told struct {
		Details string
		Whole   bool
		Hops    uint32
	}
	for topology, want := range map[string]told{
		"{}": {Details: "SANITIZE_SET", Whole: true},
		"{forwardClientCertDetails: SANITIZE_SET, numTrustedProxies: 2}": {Details: "SANITIZE_SET", Whole: true, Hops: 2},
		"{forwardClientCertDetails: APPEND_FORWARD}":                     {Details: "APPEND_FORWARD", Whole: true},
		"{forwardClientCertDetails: SANITIZE}":                           {Details: "SANITIZE"},
		"{forwardClientCertDetails: FORWARD_ONLY}":                       {Details: "FORWARD_ONLY"},
		"{forwardClientCertDetails: ALWAYS_FORWARD_ONLY}":                {Details: "ALWAYS_FORWARD_ONLY"},
	} {
		w := xdstest.NewWorld(t)
		w.SetMesh("defaultConfig: {gatewayTopology: " + topology + "}")
		m := &hcmv3.HttpConnectionManager{}
		if err := filter.Manager(w.View(xdstest.Node{}), filter.Gateway, filter.Options{StatPrefix: "p", RouteConfigName: "80"}).GetTypedConfig().UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
		set := m.GetSetCurrentClientCertDetails()
		got := told{m.GetForwardClientCertDetails().String(), set.GetSubject().GetValue() && set.GetCert() && set.GetDns() && set.GetUri(), m.GetXffNumTrustedHops()}
		if diff := cmp.Diff(want, got); diff != "" || !want.Whole && set != nil {
			t.Errorf("%s: %v (-want +got)\n%s", topology, m, diff)
		}
	}
}

// proxyHeaders decides how a sidecar handles X-Forwarded-Client-Cert of incoming requests, and
// which parts of the caller's certificate it writes. Gateways follow their topology alone.
func TestProxyHeaders(t *testing.T) {
	t.Parallel()
	for headers, want := range map[string]string{
		"{}":                                  "APPEND_FORWARD subject dns uri",
		"{forwardedClientCert: SANITIZE_SET}": "SANITIZE_SET subject dns uri",
		"{forwardedClientCert: SANITIZE, setCurrentClientCertDetails: {cert: true}}": "SANITIZE",
		"{forwardedClientCert: FORWARD_ONLY}":                                        "FORWARD_ONLY",
		"{forwardedClientCert: ALWAYS_FORWARD_ONLY}":                                 "ALWAYS_FORWARD_ONLY",
		"{setCurrentClientCertDetails: {subject: false, dns: false, cert: true}}":    "APPEND_FORWARD cert uri",
		"{setCurrentClientCertDetails: {uri: false, chain: true}}":                   "APPEND_FORWARD subject chain dns",
	} {
		w := xdstest.NewWorld(t)
		w.SetMesh("defaultConfig: {proxyHeaders: " + headers + "}")
		for kind, want := range map[filter.Kind]string{filter.SidecarInbound: want, filter.Gateway: "SANITIZE_SET subject cert dns uri"} {
			m := &hcmv3.HttpConnectionManager{}
			if err := filter.Manager(w.View(xdstest.Node{}), kind, filter.Options{StatPrefix: "p", RouteConfigName: "80"}).GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			got, set := []string{m.GetForwardClientCertDetails().String()}, m.GetSetCurrentClientCertDetails()
			for _, part := range []struct {
				name string
				set  bool
			}{{"subject", set.GetSubject().GetValue()}, {"cert", set.GetCert()}, {"chain", set.GetChain()}, {"dns", set.GetDns()}, {"uri", set.GetUri()}} {
				if part.set {
					got = append(got, part.name)
				}
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("%s, kind %d: got %q, want %q", headers, kind, got, want)
			}
		}
	}
}

// The mesh decides how all listeners write the paths of requests.
func TestPathNormalization(t *testing.T) {
	t.Parallel()
	type told struct {
		Normalize, Merge bool
		Escaped          string
	}
	for level, want := range map[string]told{
		"DEFAULT":                  {true, false, "KEEP_UNCHANGED"},
		"NONE":                     {false, false, "KEEP_UNCHANGED"},
		"BASE":                     {true, false, "KEEP_UNCHANGED"},
		"MERGE_SLASHES":            {true, true, "KEEP_UNCHANGED"},
		"DECODE_AND_MERGE_SLASHES": {true, true, "UNESCAPE_AND_FORWARD"},
	} {
		w := xdstest.NewWorld(t)
		w.SetMesh("pathNormalization: {normalization: " + level + "}")
		for _, kind := range []filter.Kind{filter.SidecarOutbound, filter.SidecarInbound, filter.Gateway} {
			m := &hcmv3.HttpConnectionManager{}
			if err := filter.Manager(w.View(xdstest.Node{}), kind, filter.Options{StatPrefix: "p", RouteConfigName: "80"}).GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			got := told{m.GetNormalizePath().GetValue(), m.GetMergeSlashes(), m.GetPathWithEscapedSlashesAction().String()}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, kind %d: (-want +got)\n%s", level, kind, diff)
			}
		}
	}
}
