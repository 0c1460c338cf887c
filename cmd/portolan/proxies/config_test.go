package proxies

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"gotest.tools/v3/golden"
	mcp "istio.io/api/mcp/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func anyOf(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// took returns a resource that a proxy should have and has.
func took(t *testing.T, name string, m proto.Message, objects ...string) admin.ProxyResource {
	t.Helper()
	text, err := protojson.Marshal(anyOf(t, m))
	if err != nil {
		t.Fatal(err)
	}
	return admin.ProxyResource{Name: name, State: protocol.Synced, Version: "v", Config: text, Objects: objects}
}

const someNode = "sidecar~10.0.0.1~vm-12.shop~shop.svc.cluster.local"

// someProxyConfig returns a resource of every sort. One cluster was refused, one endpoint is
// not acknowledged yet, and one listener is yet to be removed.
func someProxyConfig(t *testing.T) admin.ProxyConfig {
	const service, rule, route = "serviceentry/shop/reviews", "destinationrule/shop/reviews", "virtualservice/shop/reviews"
	origin := func(kind string) *corev3.Metadata {
		return message.ConfigMetadata(names.ConfigPath("networking.istio.io", "v1", kind, "shop", "reviews"))
	}
	address := func(ip string, port uint32) *corev3.Address { return message.Address(ip, port) }
	http := anyOf(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "9080"}}})
	tcp := anyOf(t, &tcpproxyv3.TcpProxy{ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: "outbound|5432||db.shop"}})
	chain := func(match *listenerv3.FilterChainMatch, filter *anypb.Any) *listenerv3.FilterChain {
		return &listenerv3.FilterChain{FilterChainMatch: match, Filters: []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: filter}}}}
	}
	cluster := func(name string, kind clusterv3.Cluster_DiscoveryType) *clusterv3.Cluster {
		return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind}}
	}
	dns := cluster("outbound|443||api.example.com", clusterv3.Cluster_STRICT_DNS)
	dns.LoadAssignment = upstream.LoadAssignment(dns.Name, []upstream.Endpoints{{Endpoints: []upstream.Endpoint{{Host: "api.example.com", Port: 443}}}})
	subset := cluster("outbound|9080|v1|reviews.shop", clusterv3.Cluster_EDS)
	subset.Metadata = origin("DestinationRule")
	refused := took(t, subset.Name, subset, rule, service)
	refused.State, refused.RejectedRevision, refused.Message = protocol.Rejected, 814, "no\ngood"
	refused.Intended = took(t, "", &clusterv3.Cluster{Name: "outbound|9080|v1|reviews.shop", AltStatName: "reviews"}).Config
	late := admin.ProxyResource{Name: "outbound|9080||reviews.shop", State: protocol.Stale, InFlight: true, Objects: []string{service}}
	late.Intended = took(t, "", &endpointv3.ClusterLoadAssignment{ClusterName: late.Name}).Config
	going := took(t, "127.0.0.1_5432", &listenerv3.Listener{
		Name: "127.0.0.1_5432", Address: address("127.0.0.1", 5432), FilterChains: []*listenerv3.FilterChain{chain(nil, tcp)},
	})
	going.State = protocol.Stale
	return admin.ProxyConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyConfig"}, Server: "cp-1:7/a", Revision: 815,
		Proxy: admin.ConnectedProxy{Node: someNode, Type: "sidecar", Name: "vm-12.shop", Namespace: "shop", Variant: "delta"},
		Types: []admin.ProxyType{
			{Name: "CDS", TypeURL: resource.ClusterType, Requested: true, Total: 4, Resources: []admin.ProxyResource{
				took(t, "PassthroughCluster", cluster("PassthroughCluster", clusterv3.Cluster_ORIGINAL_DST)),
				took(t, "inbound|8080||", cluster("inbound|8080||", clusterv3.Cluster_STATIC)),
				took(t, dns.Name, dns, "serviceentry/shop/api"), refused,
			}},
			{Name: "EDS", TypeURL: resource.EndpointType, Requested: true, Total: 2, Resources: []admin.ProxyResource{
				took(t, "outbound|9080|v1|reviews.shop", upstream.LoadAssignment("outbound|9080|v1|reviews.shop", []upstream.Endpoints{
					{Locality: "eu/a", Endpoints: []upstream.Endpoint{{Host: "10.0.0.2", Port: 8080, Weight: 3}}},
					{Locality: "eu/b", Endpoints: []upstream.Endpoint{{Host: "10.0.0.3", Port: 8080, Health: upstream.Draining}}},
				}), service), late,
			}},
			{Name: "LDS", TypeURL: resource.ListenerType, Requested: true, Total: 1, Resources: []admin.ProxyResource{
				took(t, "127.0.0.1_9080", &listenerv3.Listener{Name: "127.0.0.1_9080", Address: address("127.0.0.1", 9080), FilterChains: []*listenerv3.FilterChain{
					chain(&listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer", ApplicationProtocols: []string{"http/1.1", "h2c"}}, http),
					chain(&listenerv3.FilterChainMatch{ServerNames: []string{"db.shop"}}, tcp),
				}}, service), going,
			}},
			{Name: "RDS", TypeURL: resource.RouteType, Requested: true, Total: 1, Resources: []admin.ProxyResource{
				took(t, "9080", &routev3.RouteConfiguration{Name: "9080", VirtualHosts: []*routev3.VirtualHost{envoy.VirtualHost(envoy.VirtualHostOptions{
					Name: "allow_any", Domains: []string{"*"}, Routes: []envoy.RouteOptions{{}},
				})}}),
			}},
			{Name: "VHDS", TypeURL: resource.VirtualHostType, Requested: true, Total: 1, Resources: []admin.ProxyResource{
				took(t, "9080/reviews.shop:9080", &routev3.VirtualHost{
					Name: "9080/reviews.shop:9080", Domains: []string{"reviews.shop", "reviews", "10.0.0.9", "240.240.0.1"},
					Routes: []*routev3.Route{
						{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/api"}, Headers: []*routev3.HeaderMatcher{{Name: "x-user"}}}, Metadata: origin("VirtualService")},
						{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}},
					},
				}, route, service),
			}},
		},
	}
}

// asTyped returns a server's answer to a query for some types.
func asTyped(c admin.ProxyConfig, r *http.Request) admin.ProxyConfig {
	query := r.URL.Query()
	c.Types = slices.DeleteFunc(slices.Clone(c.Types), func(typ admin.ProxyType) bool {
		return len(query["type"]) > 0 && !slices.Contains(query["type"], typ.Name)
	})
	for i := range c.Types {
		c.Types[i].Resources = slices.DeleteFunc(slices.Clone(c.Types[i].Resources), func(r admin.ProxyResource) bool {
			return query.Get("differing") == "true" && r.State == protocol.Synced
		})
	}
	return c
}

// proxyCommand runs portolan proxy against a server that has someProxyConfig.
func proxyCommand(t *testing.T, args ...string) (clitest.Outcome, error) {
	t.Helper()
	c := someProxyConfig(t)
	return serving(t, func(r *http.Request) any {
		if r.URL.Path != admin.ProxyConfigPath || r.URL.Query().Get("node") != "vm-12" {
			return "not found"
		}
		return asTyped(c, r)
	}, append([]string{"proxy"}, args...)...)
}

func TestProxyConfigTables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cluster", "listener", "route", "endpoint", "all"} {
		o, err := proxyCommand(t, "config", name, "vm-12")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden.Assert(t, o.Out, "proxy-config-"+name+".txt")
	}
	o, err := proxyCommand(t, "pc", "c", "vm-12")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Same(t, "what is not in sync", o.Err, "vm-12.shop should have 1 resource otherwise: see portolan proxy diff "+someNode+"\n")
}

// TestProxyConfigOfAControlPlane: the command lists the objects that a control plane has,
// whatever types were requested.
func TestProxyConfigOfAControlPlane(t *testing.T) {
	t.Parallel()
	object := took(t, "shop/reviews", &mcp.Resource{Metadata: &mcp.Metadata{Name: "shop/reviews", Version: "815"}}, "serviceentry/shop/reviews")
	c := admin.ProxyConfig{
		Proxy: admin.ConnectedProxy{Node: "sidecar~~istiod-1.hub~hub", Name: "istiod-1.hub", Type: "api"},
		Types: []admin.ProxyType{{Name: "ServiceEntry", Resources: []admin.ProxyResource{object, {Name: "shop/new", State: protocol.Stale}}}},
	}
	o, err := serving(t, func(*http.Request) any { return c }, "proxy", "config", "all", "istiod-1")
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for line := range strings.Lines(o.Out) {
		got = append(got, strings.Fields(line))
	}
	want := [][]string{
		{"KIND", "NAMESPACE", "NAME", "VERSION", "STATE"},
		{"ServiceEntry", "shop", "reviews", "815", "SYNCED"}, {"ServiceEntry", "shop", "new", "-", "STALE"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestProxyConfigFilters(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{ // the first cells of the rows
		"cluster":                     "PassthroughCluster,-,api.example.com,reviews.shop",
		"clusters --fqdn REVIEWS":     "reviews.shop",
		"c --port 443":                "api.example.com",
		"cluster --direction inbound": "-",
		"cluster --subset v1":         "reviews.shop",
		"cluster --subset v2":         "",
		"listener":                    "127.0.0.1,127.0.0.1,127.0.0.1",
		"listeners --port 5432":       "127.0.0.1",
		"l --address 127.0.0.2":       "",
		"l --type http+tcp":           "127.0.0.1,127.0.0.1",
		"l --type TCP":                "127.0.0.1",
		"route":                       "9080,9080,9080",
		"routes --name 9081":          "",
		"r --name 9080":               "9080,9080,9080",
		"endpoint":                    "10.0.0.2:8080,10.0.0.3:8080,api.example.com:443",
		"endpoints --status healthy":  "10.0.0.2:8080,api.example.com:443",
		"ep --status Draining":        "10.0.0.3:8080",
		"ep --port 443":               "api.example.com:443",
		"ep --address 10.0.0.2":       "10.0.0.2:8080",
		"ep --cluster outbound|443||api.example.com": "api.example.com:443",
	} {
		o, err := proxyCommand(t, append(append([]string{"config"}, strings.Fields(args)...), "vm-12")...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		var cells []string
		for line := range strings.Lines(o.Out) {
			cells = append(cells, strings.Fields(line)[0])
		}
		if got := strings.Join(cells[1:], ","); got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}

func TestProxyConfigDocuments(t *testing.T) {
	t.Parallel()
	o, err := proxyCommand(t, "config", "endpoint", "vm-12", "--status", "draining", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var c admin.ProxyConfig
	if err := json.Unmarshal([]byte(o.Out), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Types) != 2 || len(c.Types[0].Resources) != 0 || len(c.Types[1].Resources) != 1 || c.Kind != "ProxyConfig" {
		t.Errorf("%s", o.Out)
	}
	if o, err := proxyCommand(t, "config", "all", "vm-12", "-o", "yaml"); err != nil || !strings.Contains(o.Out, "kind: ProxyConfig\n") || !strings.Contains(o.Out, "api.example.com") {
		t.Errorf("%v\n%s", err, o.Out)
	}
}

func TestProxyConfigRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"config cluster":                  "accepts 1 arg",
		"config cluster a --direction in": "use inbound or outbound",
		"config cluster a --port 70000":   "give a port",
		"config listener a --type UDP":    "use HTTP, TCP, HTTP+TCP or UNKNOWN",
		"config endpoint a --status ill":  "use healthy",
		"config route a -o wide":          "use short, json or yaml",
		"config secrets a -o wide":        "use short, json or yaml",
	} {
		if o := do(t, "", append([]string{"proxy"}, strings.Fields(args)...)...); o.Code != exit.Usage || !strings.Contains(o.Err, want) {
			t.Errorf("%s: exit code %d: %s", args, o.Code, o.Err)
		}
	}
}

// TestProxyConfigSecrets: a row for each certificate, and for each secret without one.
func TestProxyConfigSecrets(t *testing.T) {
	t.Parallel()
	certificate := func(name, serial string, year int) secret.Certificate {
		return secret.Certificate{Subject: "CN=" + name, Issuer: "CN=ca.shop", Serial: serial, Names: []string{name}, NotBefore: time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC), NotAfter: time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC)}
	}
	c := admin.ProxyConfig{
		Proxy: admin.ConnectedProxy{Node: someNode, Type: "router", Name: "edge", Namespace: "shop"},
		Types: []admin.ProxyType{{Name: "SDS", TypeURL: resource.SecretType, Requested: true, Resources: []admin.ProxyResource{
			{Name: "file-cert:/a~/b", State: protocol.Synced, Secret: &admin.ProxySecret{Kind: admin.KindCertificate, File: "/a", NeededBy: []string{"cluster a", "cluster b", "listener c", "listener d", "listener e"}}},
			{Name: "kubernetes://late", State: protocol.Rejected},
			{Name: "kubernetes://www", State: protocol.Synced, Secret: &admin.ProxySecret{Kind: admin.KindCertificate, NeededBy: []string{"listener 0.0.0.0_443"}, Certificates: []secret.Certificate{certificate("www.shop", "a1", 2001), certificate("ca.shop", "b2", 3001)}}},
			{Name: "kubernetes://www-cacert", State: protocol.Synced, Secret: &admin.ProxySecret{Kind: admin.KindAuthorities, Certificates: []secret.Certificate{certificate("new.shop", "c3", 3001)}}},
		}}},
	}
	o, err := serving(t, func(r *http.Request) any { return asTyped(c, r) }, "proxy", "config", "secret", "edge")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, o.Out, "proxy-config-secret.txt")
}

// TestProxyConfigSecretsOfADump: the content is of the dump, and the state of the server. Secrets
// that the server does not list are shown, too, and are no difference. The dump of another proxy is
// refused.
func TestProxyConfigSecretsOfADump(t *testing.T) {
	t.Parallel()
	pair := secrettest.New(t, time.Hour, "www.shop")
	const secrets = `{"configs": [
  {"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "NODE"}}},
  {"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump"},
  {"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [
    {"name": "kubernetes://www", "secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "kubernetes://www",
      "tls_certificate": {"certificate_chain": {"inline_bytes": "CHAIN"}, "private_key": {"inline_bytes": "W3JlZGFjdGVkXQ=="}}}},
    {"name": "other", "secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "other",
      "validation_context": {"trusted_ca": {"filename": "/ca"}}}}]}]}`
	for name, c := range map[string]struct {
		node string
		code int
		want []string
	}{
		"of the proxy": {someNode, exit.OK, []string{"kubernetes://gone SYNCED", "kubernetes://www REJECTED certificate CN=www.shop " + pair.Parsed.SerialNumber.Text(16), "other  authorities /ca"}},
		"of another":   {"router~10.0.0.9~edge.shop~shop", exit.Data, nil},
	} {
		dump := strings.NewReplacer("NODE", c.node, "CHAIN", base64.StdEncoding.EncodeToString(pair.Cert)).Replace(secrets)
		file := filepath.Join(clitest.Write(t, map[string]string{"dump.json": dump}), "dump.json")
		o, err := serving(t, func(*http.Request) any {
			old := &admin.ProxySecret{Kind: admin.KindCertificate, Certificates: []secret.Certificate{{Serial: "1"}}}
			return admin.ProxyConfig{Proxy: admin.ConnectedProxy{Node: someNode}, Types: []admin.ProxyType{{Name: "SDS", TypeURL: resource.SecretType, Resources: []admin.ProxyResource{
				{Name: "kubernetes://gone", State: protocol.Synced, Secret: old}, {Name: "kubernetes://www", State: protocol.Rejected, Secret: old},
			}}}}
		}, "proxy", "config", "secret", "vm-12", "--dump", file, "-o", "json")
		if (c.code == exit.OK) != (err == nil) || err != nil && !exit.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var shown admin.ProxyConfig
		var got []string
		if err == nil {
			if err := json.Unmarshal([]byte(o.Out), &shown); err != nil {
				t.Fatal(err)
			}
			if want := "should have 1 resource otherwise"; !strings.Contains(o.Err, want) {
				t.Errorf("%s: there is no %q in %s", name, want, o.Err)
			}
			for _, r := range shown.Types[0].Resources {
				line := r.Name + " " + string(r.State)
				if r.Secret != nil {
					line += " " + r.Secret.Kind
					for _, one := range r.Secret.Certificates {
						line += " " + one.Issuer + " " + one.Serial
					}
					if r.Secret.File != "" {
						line += " " + r.Secret.File
					}
				}
				got = append(got, line)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// misdirecting returns a server which answers that another server has the proxy, at this
// address.
func misdirecting(api string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusMisdirectedRequest)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusMisdirectedRequest,
			Reason: metav1.StatusReasonBadRequest, Message: "on machine cp-2, run the command with --server http://" + api,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ConnectedToServer", Message: "cp-2:8/b"}, {Type: "ServerAPI", Message: api}}},
		})
	}
}

// TestProxyConfigOfAnotherServer: the command calls the server that has the proxy. If it
// cannot, because something else or nothing listens at its address here, it names that server.
func TestProxyConfigOfAnotherServer(t *testing.T) {
	t.Parallel()
	c := someProxyConfig(t)
	asked := ""
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("server")
		_ = json.NewEncoder(w).Encode(asTyped(c, r))
	}))
	defer there.Close()
	wrong := httptest.NewServer(misdirecting("127.0.0.1:1"))
	defer wrong.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, target := range map[string]struct {
		server *httptest.Server
		code   int
	}{"the other server": {there, exit.OK}, "another one": {wrong, exit.Failure}, "nobody": {gone, exit.Failure}} {
		api := strings.TrimPrefix(target.server.URL, "http://")
		here := httptest.NewServer(misdirecting(api))
		o := do(t, "", "proxy", "config", "cluster", "vm-12", "--fqdn", "reviews", "--server", here.URL)
		here.Close()
		if (o.Code == exit.OK) != (target.code == exit.OK) {
			t.Errorf("%s: exit code %d: %s", name, o.Code, o.Err)
		}
		if target.code == exit.OK && !strings.Contains(o.Out, "reviews.shop") {
			t.Errorf("%s: %s", name, o.Out)
		}
		if target.code != exit.OK && !strings.Contains(o.Err, "on machine cp-2, run the command with --server http://"+api) {
			t.Errorf("%s: %s", name, o.Err)
		}
	}
	if asked != "cp-2:8/b" {
		t.Errorf("the other server was asked as %q", asked)
	}
}

func TestProxyDiff(t *testing.T) {
	t.Parallel()
	o, err := proxyCommand(t, "diff", "vm-12")
	if !errors.Is(err, cli.ErrDifferences) {
		t.Fatal(err)
	}
	golden.Assert(t, o.Out, "proxy-diff.txt")
	clitest.Same(t, "the sum", o.Err, "vm-12.shop should have 3 resources otherwise, of 9, as of revision 815.\n")
}

func TestProxyDiffOfNone(t *testing.T) {
	t.Parallel()
	o, err := serving(t, func(*http.Request) any {
		return admin.ProxyConfig{Revision: 815, Proxy: admin.ConnectedProxy{Name: "vm-12.shop"}, Types: []admin.ProxyType{{Name: "CDS", Total: 1}}}
	}, "proxy", "diff", "vm-12")
	if err != nil {
		t.Fatal(err)
	}
	clitest.Same(t, "output", o.Out, "")
	clitest.Same(t, "the sum", o.Err, "vm-12.shop has all that it should: 1 resource, as of revision 815.\n")
}

func TestProxyDiffOfADump(t *testing.T) {
	t.Parallel()
	const dump = `{"configs": [
  {"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "NODE"}}},
  {"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "static_clusters": [{}], "dynamic_active_clusters": [
    {"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "alt_stat_name": "STAT"}}]}]}`
	a := took(t, "a", &clusterv3.Cluster{Name: "a", AltStatName: "good"})
	for name, c := range map[string]struct {
		node, stat string
		err        error
		out, words string
	}{
		"the same":       {someNode, "good", nil, "", "0 of 1 resource differ, as of revision 815. Left out: 1 static and 0 draining.\n"},
		"different":      {someNode, "bad", cli.ErrDifferences, "-alt_stat_name: bad\n+alt_stat_name: good\n", "1 of 1 resource differ"},
		"of another one": {"router~10.0.0.9~edge.shop~shop", "good", exit.With(exit.Data, nil), "", ""},
	} {
		file := filepath.Join(clitest.Write(t, map[string]string{"dump.json": strings.NewReplacer("NODE", c.node, "STAT", c.stat).Replace(dump)}), "dump.json")
		o, err := serving(t, func(*http.Request) any {
			return admin.ProxyConfig{Revision: 815, Proxy: admin.ConnectedProxy{Node: someNode}, Types: []admin.ProxyType{
				{Name: "CDS", TypeURL: resource.ClusterType, Total: 1, Resources: []admin.ProxyResource{a}},
			}}
		}, "proxy", "diff", "vm-12", "--dump", file)
		if wanted := exit.Is(c.err, exit.Data); wanted != exit.Is(err, exit.Data) || !wanted && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(o.Out, c.out) || (c.out == "") != (o.Out == "") || !strings.Contains(o.Err, c.words) {
			t.Errorf("%s:\n%s\n%s", name, o.Out, o.Err)
		}
	}
	if o := do(t, "", "proxy", "diff", "vm-12", "--dump", "nowhere.json"); o.Code != exit.Data || !strings.Contains(o.Err, "--dump nowhere.json: ") {
		t.Errorf("exit code %d: %s", o.Code, o.Err)
	}
	if o := do(t, "no JSON", "proxy", "diff", "vm-12", "--dump", "-"); o.Code != exit.Data || !strings.Contains(o.Err, "no config dump") {
		t.Errorf("exit code %d: %s", o.Code, o.Err)
	}
}

// TestShowPatches: --show-patches lists which EnvoyFilter patched which resource, and which failed.
func TestShowPatches(t *testing.T) {
	config := someProxyConfig(t)
	config.Types[0].Resources[0].Patches = []admin.ProxyPatch{
		{EnvoyFilter: "shop/slow", Field: "spec.configPatches[0]"}, {EnvoyFilter: "shop/bad", Field: "spec.configPatches[1]", Error: "no good"},
	}
	rows, err := patchRows(&config)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"TYPE", "NAME", "ENVOYFILTER", "PATCH", "RESULT"},
		{"CDS", "PassthroughCluster", "shop/slow", "configPatches[0]", "applied"},
		{"CDS", "PassthroughCluster", "shop/bad", "configPatches[1]", "! failed: no good"},
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
