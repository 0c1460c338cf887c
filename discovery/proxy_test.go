package discovery_test

import (
	"cmp"
	"iter"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
)

func node(t *testing.T, id string, metadata map[string]any) *corev3.Node {
	t.Helper()
	fields, err := structpb.NewStruct(metadata)
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Node{Id: id, Metadata: fields}
}

func TestParseProxy(t *testing.T) {
	t.Parallel()
	base := func(change func(*discovery.Proxy)) *discovery.Proxy {
		p := &discovery.Proxy{
			ID: "sidecar~10.0.0.1~web-1~shop.svc.mesh.local", Type: discovery.Sidecar, IPAddresses: []string{"10.0.0.1"},
			Name: "web-1", DNSDomain: "shop.svc.mesh.local", Namespace: "shop", InterceptionMode: discovery.InterceptionRedirect,
		}
		change(p)
		return p
	}
	for _, tc := range []struct {
		name     string
		id       string
		metadata map[string]any
		want     *discovery.Proxy
	}{
		{name: "the namespace is the first label of the domain", want: base(func(*discovery.Proxy) {})},
		{
			name: "metadata NAMESPACE outranks the domain", metadata: map[string]any{"NAMESPACE": "prod"},
			want: base(func(p *discovery.Proxy) { p.Namespace = "prod" }),
		},
		{
			name: "INSTANCE_IPS outranks the id, as a string", metadata: map[string]any{"INSTANCE_IPS": "10.9.9.9, fd00::1,x"},
			want: base(func(p *discovery.Proxy) { p.IPAddresses = []string{"10.9.9.9", "fd00::1"} }),
		},
		{
			name: "INSTANCE_IPS outranks the id, as a list", metadata: map[string]any{"INSTANCE_IPS": []any{"10.9.9.9"}},
			want: base(func(p *discovery.Proxy) { p.IPAddresses = []string{"10.9.9.9"} }),
		},
		{
			name: "INSTANCE_IPS without a valid address leaves that of the id", metadata: map[string]any{"INSTANCE_IPS": "x"},
			want: base(func(*discovery.Proxy) {}),
		},
		{
			name: "the port of an HTTP proxy", metadata: map[string]any{"HTTP_PROXY_PORT": 3128},
			want: base(func(p *discovery.Proxy) { p.HTTPProxyPort = "3128" }),
		},
		{
			name: "none, whatever the mesh says", metadata: map[string]any{"HTTP_PROXY_PORT": "0"},
			want: base(func(p *discovery.Proxy) { p.HTTPProxyPort = "0" }),
		},
		{name: "one that is no port", metadata: map[string]any{"HTTP_PROXY_PORT": "70000"}, want: base(func(*discovery.Proxy) {})},
		{
			name: "labels may be any scalar", metadata: map[string]any{
				"LABELS": map[string]any{"app": "web", "canary": true, "shard": 7}, "STATIC_LABELS": map[string]any{"rack": "r1"},
			},
			want: base(func(p *discovery.Proxy) {
				p.MetadataLabels = labels.Instance{"app": "web", "canary": "true", "shard": "7"}
				p.StaticLabels = labels.Instance{"rack": "r1"}
			}),
		},
		{
			name: "the rest of the metadata", metadata: map[string]any{
				"SERVICE_ACCOUNT": "web", "CLUSTER_ID": "east", "NETWORK": "n1", "ISTIO_VERSION": "1.31.0", "INTERCEPTION_MODE": "none",
			},
			want: base(func(p *discovery.Proxy) {
				p.ServiceAccount, p.ClusterID, p.Network, p.Version = "web", "east", "n1", "1.31.0"
				p.InterceptionMode = discovery.InterceptionNone
			}),
		},
		{
			name: "a router without a domain", id: "router~fd00::2~edge~",
			want: &discovery.Proxy{
				ID: "router~fd00::2~edge~", Type: discovery.Router, IPAddresses: []string{"fd00::2"}, Name: "edge",
				InterceptionMode: discovery.InterceptionRedirect,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			id := tc.id
			if id == "" {
				id = "sidecar~10.0.0.1~web-1~shop.svc.mesh.local"
			}
			got, err := discovery.ParseProxy(node(t, id, tc.metadata))
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range tc.metadata {
				if text, ok := value.(string); got.Metadata[key] != text {
					t.Errorf("metadata %s: %q, want %q: it is a string: %v", key, got.Metadata[key], text, ok)
				}
			}
			got.Metadata = nil // compared above
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseProxyLocalityAndBuild(t *testing.T) {
	t.Parallel()
	n := node(t, "sidecar~10.0.0.1~web-1~shop", nil)
	n.Locality = &corev3.Locality{Region: "eu", Zone: "eu-1"}
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40, Patch: 2},
	}}
	p, err := discovery.ParseProxy(n)
	if err != nil {
		t.Fatal(err)
	}
	if p.Locality != "eu/eu-1" || p.EnvoyVersion != "1.40.2" {
		t.Errorf("locality %q, version %q", p.Locality, p.EnvoyVersion)
	}
}

// A node whose metadata or library says gRPC is proxyless, and has no interception.
func TestParseProxyless(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, agent, generator, id string
		want                       discovery.ProxyType
	}{
		{name: "grpc-go", agent: "gRPC Go", want: discovery.Proxyless},
		{name: "C-core", agent: "gRPC C-core linux", want: discovery.Proxyless},
		{name: "grpc-js", agent: "gRPC Node Pure JS", want: discovery.Proxyless},
		{name: "by metadata", generator: "grpc", want: discovery.Proxyless},
		{name: "by metadata, whatever the id", generator: "grpc", id: "router~10.0.0.1~web-1~shop.svc.mesh.local", want: discovery.Proxyless},
		{name: "metadata outrank the library", agent: "gRPC Go", generator: "envoy", want: discovery.Sidecar},
		{name: "a control plane", generator: "api", want: discovery.ConfigClient},
		{name: "a control plane without an address", generator: "api", id: "sidecar~~istiod-1.istio-system~istio-system.svc.mesh.local", want: discovery.ConfigClient},
		{name: "a control plane in Go", agent: "gRPC Go", generator: "api", want: discovery.ConfigClient},
		{name: "Envoy", agent: "envoy", want: discovery.Sidecar},
		{name: "who says nothing", want: discovery.Sidecar},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			metadata := map[string]any{}
			if tc.generator != "" {
				metadata["GENERATOR"] = tc.generator
			}
			n := node(t, cmp.Or(tc.id, "sidecar~10.0.0.1~web-1~shop.svc.mesh.local"), metadata)
			n.UserAgentName = tc.agent
			n.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: "1.85.0"}
			p, err := discovery.ParseProxy(n)
			if err != nil {
				t.Fatal(err)
			}
			if p.Type != tc.want || (p.InterceptionMode == discovery.InterceptionNone) != (tc.want != discovery.Sidecar) {
				t.Errorf("%s, interception %s, want %s", p.Type, p.InterceptionMode, tc.want)
			}
			if tc.agent == "gRPC Go" && p.EnvoyVersion != "gRPC Go 1.85.0" {
				t.Errorf("version %q", p.EnvoyVersion)
			}
		})
	}
}

func TestParseProxyRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, id, want string }{
		{"too few parts", "sidecar~10.0.0.1~web", "want type~ip~id~domain"},
		{"an unknown type", "waypoint~10.0.0.1~web~shop", `type "waypoint" is not served`},
		{"no name", "sidecar~10.0.0.1~~shop", "name, is empty"},
		{"no address", "sidecar~web.example~web~shop", `"web.example" is not an IP address`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := discovery.ParseProxy(&corev3.Node{Id: tc.id})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if _, err := discovery.ParseProxy(nil); err == nil {
		t.Error("no node: want an error")
	}
}

func TestProxyLabels(t *testing.T) {
	t.Parallel()
	p := &discovery.Proxy{MetadataLabels: labels.Instance{"app": "node", "x": "node"}, StaticLabels: labels.Instance{"rack": "r1", "app": "static"}}
	for _, tc := range []struct {
		name                  string
		registry, group, want labels.Instance
	}{
		{"the node's own where the registry knows none", nil, nil, labels.Instance{"app": "node", "x": "node", "rack": "r1"}},
		{"those of its group before the registry has any", nil, labels.Instance{"app": "group"}, labels.Instance{"app": "group", "rack": "r1"}},
		{"the registry's replace all others", labels.Instance{"app": "web"}, labels.Instance{"app": "group"}, labels.Instance{"app": "web", "rack": "r1"}},
	} {
		p.GroupLabels = tc.group
		if got := p.Labels(tc.registry); !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestProxyFamilies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ips    []string
		v4, v6 bool
	}{
		{[]string{"10.0.0.1"}, true, false},
		{[]string{"fd00::1"}, false, true},
		{[]string{"::ffff:10.0.0.1"}, true, false},
		{[]string{"10.0.0.1", "fd00::1"}, true, true},
	} {
		p := &discovery.Proxy{IPAddresses: tc.ips}
		if p.SupportsIPv4() != tc.v4 || p.SupportsIPv6() != tc.v6 {
			t.Errorf("%v: v4 %t v6 %t", tc.ips, p.SupportsIPv4(), p.SupportsIPv6())
		}
	}
}

func TestServesAsksForTheIdentityThatWasProved(t *testing.T) {
	t.Parallel()
	const web, db = "spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/db"
	for _, tc := range []struct {
		proxy, endpoint string
		want            bool
	}{
		{"", "", true}, {"", db, true}, {web, web, true}, {web, "", true}, {web, db, false},
	} {
		p := &discovery.Proxy{Identity: tc.proxy}
		if got := p.Serves(&discovery.Endpoint{ServiceAccount: tc.endpoint}); got != tc.want {
			t.Errorf("proxy of %q, endpoint of %q: %t", tc.proxy, tc.endpoint, got)
		}
	}
}

// TestDoubt: a doubted gateway has no labels, whatever address it states, and no doubted proxy
// gets secrets.
func TestDoubt(t *testing.T) {
	t.Parallel()
	at := func(string) iter.Seq2[string, []*discovery.Endpoint] {
		return func(yield func(string, []*discovery.Endpoint) bool) {
			yield("shop", []*discovery.Endpoint{{Address: "10.0.0.1", Labels: labels.Instance{"app": "edge"}}})
		}
	}
	for kind, want := range map[discovery.ProxyType]int{discovery.Router: 0, discovery.Sidecar: 2} {
		p := &discovery.Proxy{
			Type: kind, Namespace: "shop", Local: true, IPAddresses: []string{"10.0.0.1"},
			MetadataLabels: labels.Instance{"app": "edge"}, StaticLabels: labels.Instance{"rack": "a"},
		}
		if got := p.Labels(p.WorkloadLabels(at)); len(got) != 2 || !p.MayHaveSecrets() {
			t.Errorf("%s: before: %v", kind, got)
		}
		p.Doubt()
		if got := p.Labels(p.WorkloadLabels(at)); len(got) != want || p.MayHaveSecrets() {
			t.Errorf("%s: doubted: %v", kind, got)
		}
	}
}
