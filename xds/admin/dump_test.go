package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func someDump(t *testing.T) *admin.Dump {
	t.Helper()
	in, err := os.Open("testdata/config_dump.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	d, err := admin.ReadDump(in)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReadDump(t *testing.T) {
	t.Parallel()
	d := someDump(t)
	if d.Node != "sidecar~10.0.0.1~vm-1.shop~shop.svc.cluster.local" || d.Static != 4 || d.Draining != 1 {
		t.Errorf("node %s, %d static, %d draining", d.Node, d.Static, d.Draining)
	}
	got := map[string][]string{}
	for typeURL, of := range d.Resources {
		short := typeURL[strings.LastIndexByte(typeURL, '.')+1:]
		for name := range of {
			got[short] = append(got[short], name)
		}
		slices.Sort(got[short])
	}
	want := map[string][]string{
		"Cluster":  {"outbound|80||a.test", "outbound|80||b.test", "outbound|80||dns.test"},
		"Listener": {"127.0.0.1_80"}, "RouteConfiguration": {"80", "81"}, "VirtualHost": {"80/a.test:80"},
		"ClusterLoadAssignment": {"outbound|80||a.test"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"80": false, "81": true} {
		if d.Drains(resource.RouteType, name) != want || d.Drains(resource.VirtualHostType, name+"/a.test:"+name) != want || d.Drains(resource.ClusterType, name) {
			t.Errorf("%s drains: not %v", name, want)
		}
	}
	if b := d.Resources[resource.ClusterType]["outbound|80||b.test"].(*clusterv3.Cluster); b.GetAltStatName() != "new" {
		t.Errorf("a warming cluster is not the newer one: %v", b)
	}
}

// TestReadDumpOfLocalCluster: the endpoints of a local cluster come from a server, though Envoy
// lists them as static.
func TestReadDumpOfLocalCluster(t *testing.T) {
	t.Parallel()
	const assignment = `{"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "%s"}}`
	d, err := admin.ReadDump(strings.NewReader(fmt.Sprintf(`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump",
		"static_endpoint_configs": [`+assignment+`,`+assignment+`]}]}`, "xds-grpc", "local_cluster")))
	if err != nil {
		t.Fatal(err)
	}
	if of := d.Resources[resource.EndpointType]; len(of) != 1 || of["local_cluster"] == nil || d.Static != 1 {
		t.Errorf("%d static, endpoints %v", d.Static, of)
	}
}

// intended returns the ProxyConfig of an Envoy that has all that it should: the content of a
// dump, with endpoints as a server sends them.
func intended(t *testing.T, d *admin.Dump) *admin.ProxyConfig {
	t.Helper()
	c := &admin.ProxyConfig{}
	for name, typeURL := range map[string]string{
		"CDS": resource.ClusterType, "EDS": resource.EndpointType, "LDS": resource.ListenerType, "RDS": resource.RouteType, "VHDS": resource.VirtualHostType,
	} {
		typ := admin.ProxyType{Name: name, TypeURL: typeURL}
		for of, m := range d.Resources[typeURL] {
			if typeURL == resource.EndpointType {
				m = assignment(of, lbEndpoint("10.0.0.1", corev3.HealthStatus_UNKNOWN), lbEndpoint("10.0.0.2", corev3.HealthStatus_HEALTHY))
			}
			if of != "81" {
				typ.Resources = append(typ.Resources, admin.ProxyResource{Name: of, State: protocol.Synced, Config: jsonOf(t, m)})
			}
		}
		typ.Total = len(typ.Resources)
		c.Types = append(c.Types, typ)
	}
	slices.SortFunc(c.Types, func(a, b admin.ProxyType) int { return strings.Compare(a.Name, b.Name) })
	return c
}

func jsonOf(t *testing.T, m proto.Message) json.RawMessage {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func lbEndpoint(ip string, health corev3.HealthStatus) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HealthStatus: health, HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
		}}},
	}}}
}

func assignment(cluster string, endpoints ...*endpointv3.LbEndpoint) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{
		{LbEndpoints: endpoints, LoadBalancingWeight: wrapperspb.UInt32(2)},
	}}
}

func TestDumpDifferences(t *testing.T) {
	t.Parallel()
	cluster := jsonOf(t, &clusterv3.Cluster{Name: "x"})
	typeNamed := func(c *admin.ProxyConfig, name string) *admin.ProxyType {
		return &c.Types[slices.IndexFunc(c.Types, func(t admin.ProxyType) bool { return t.Name == name })]
	}
	for name, c := range map[string]struct {
		change func(*admin.ProxyConfig, *admin.Dump)
		want   string // the differences, and the absent types
	}{
		"none": {func(*admin.ProxyConfig, *admin.Dump) {}, ""},
		"a cluster that the Envoy lacks": {func(c *admin.ProxyConfig, _ *admin.Dump) {
			typeNamed(c, "CDS").Resources = append(typeNamed(c, "CDS").Resources, admin.ProxyResource{Name: "x", State: protocol.Stale, Intended: cluster})
		}, "CDS x"},
		"a cluster that it should have no more": {func(c *admin.ProxyConfig, d *admin.Dump) {
			d.Resources[resource.ClusterType]["x"] = &clusterv3.Cluster{Name: "x"}
			typeNamed(c, "CDS").Resources = append(typeNamed(c, "CDS").Resources, admin.ProxyResource{Name: "x", State: protocol.Stale, Config: cluster})
		}, "CDS x"},
		"a cluster that nobody sent": {func(_ *admin.ProxyConfig, d *admin.Dump) {
			d.Resources[resource.ClusterType]["x"] = &clusterv3.Cluster{Name: "x"}
		}, "CDS x"},
		"another virtual host": {func(c *admin.ProxyConfig, _ *admin.Dump) {
			r := &typeNamed(c, "VHDS").Resources[0]
			r.Config = json.RawMessage(strings.Replace(string(r.Config), `"a.test"`, `"b.test"`, 1))
		}, "VHDS 80/a.test:80"},
		"an endpoint that it lacks": {func(c *admin.ProxyConfig, _ *admin.Dump) {
			r := &typeNamed(c, "EDS").Resources[0]
			r.Config = jsonOf(t, assignment(r.Name, lbEndpoint("10.0.0.1", 0), lbEndpoint("10.0.0.2", 0), lbEndpoint("10.0.0.3", 0)))
		}, "EDS outbound|80||a.test"},
		"an endpoint that should be unhealthy": {func(c *admin.ProxyConfig, _ *admin.Dump) {
			r := &typeNamed(c, "EDS").Resources[0]
			r.Config = jsonOf(t, assignment(r.Name, lbEndpoint("10.0.0.1", corev3.HealthStatus_UNHEALTHY), lbEndpoint("10.0.0.2", 0)))
		}, "EDS outbound|80||a.test"},
		"an endpoint that drains": {func(c *admin.ProxyConfig, _ *admin.Dump) {
			r := &typeNamed(c, "EDS").Resources[0]
			r.Config = jsonOf(t, assignment(r.Name, lbEndpoint("10.0.0.2", corev3.HealthStatus_DRAINING), lbEndpoint("10.0.0.1", 0)))
		}, ""},
		"no endpoints are dumped": {func(_ *admin.ProxyConfig, d *admin.Dump) { delete(d.Resources, resource.EndpointType) }, "no EDS"},
	} {
		d := someDump(t)
		config := intended(t, d)
		c.change(config, d)
		found, err := d.Differences(config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, f := range found.Differences {
			got = append(got, f.Type+" "+f.Name)
		}
		for _, typ := range found.Absent {
			got = append(got, "no "+typ)
		}
		if strings.Join(got, ", ") != c.want || found.Compared < 6 || found.Draining != 2 {
			t.Errorf("%s: got %v of %d, %d draining, want %s", name, got, found.Compared, found.Draining, c.want)
		}
	}
}

func TestReadDumpRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "no config dump in JSON",
		"not there":                 "no config dump in JSON",
		`{"configs": []}`:           "/config_dump?include_eds",
		`{"dynamic_listeners": []}`: "/config_dump?include_eds",
		`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {"@type": "type.googleapis.com/of.an.Extension"}}]}]}`: "cluster: ",
	} {
		if _, err := admin.ReadDump(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestFiltersDrain: the configuration of a filter that no listener names, but one that drains, is
// none that the server knows.
func TestFiltersDrain(t *testing.T) {
	t.Parallel()
	d, err := admin.ReadDump(strings.NewReader(`{"configs": [
		{"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [
			{"active_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l", "filter_chains": [{"filters": [
				{"name": "used", "config_discovery": {"config_source": {"ads": {}}}}]}]}}},
			{"draining_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "d", "filter_chains": [{"filters": [
				{"name": "left", "config_discovery": {"config_source": {"ads": {}}}}]}]}}}]},
		{"@type": "type.googleapis.com/envoy.admin.v3.EcdsConfigDump", "ecds_filters": [
			{"ecds_filter": {"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "used"}},
			{"ecds_filter": {"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "left"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"used": false, "left": true} {
		if d.Resources[resource.ExtensionType][name] == nil || d.Drains(resource.ExtensionType, name) != want {
			t.Errorf("%s drains: not %v", name, want)
		}
	}
}

// TestReadDumpOfSecrets: a dump's secrets are described by their certificates, and have the
// clusters and listeners that name them. One that has not arrived is left out.
func TestReadDumpOfSecrets(t *testing.T) {
	t.Parallel()
	pair := secrettest.New(t, time.Hour, "www.shop")
	text := func(m proto.Message) string {
		packed, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(packed)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	socketOf := func(certificate, roots string) *corev3.TransportSocket {
		return socket.UpstreamTLS(socket.UpstreamTLSOptions{TLSOptions: socket.TLSOptions{Certificates: []socket.SecretRef{{Name: certificate}}, Peer: &socket.PeerValidation{Roots: socket.SecretRef{Name: roots}}}})
	}
	dump := fmt.Sprintf(`{"configs": [
		{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": %s}, {"cluster": %s}]},
		{"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "static_secrets": [{"name": "boot"}],
			"dynamic_active_secrets": [{"secret": %s}, {"secret": %s}, {"secret": %s}],
			"dynamic_warming_secrets": [{"secret": %s}]}]}`,
		text(&clusterv3.Cluster{Name: "b", TransportSocket: socketOf("default", "ROOTCA")}), text(&clusterv3.Cluster{Name: "a", TransportSocket: socketOf("stored", "ROOTCA")}),
		text(socket.CertificateSecret("stored", pair.Cert, []byte("[redacted]"))), text(socket.CertificateFileSecret("default", "/cert", "/key")), text(socket.RootsFileSecret("ROOTCA", "/ca", "")),
		text(&tlsv3.Secret{Name: "late"}))
	serial := pair.Parsed.SerialNumber.Text(16)
	want := map[string]string{
		"stored": "certificate  [" + serial + " CN=www.shop www.shop] by [cluster a]", "default": "certificate /cert [] by [cluster b]", "ROOTCA": "authorities /ca [] by [cluster a cluster b]",
	}
	d, err := admin.ReadDump(strings.NewReader(dump))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, s := range d.Secrets {
		var shown []string
		for _, c := range s.Certificates {
			shown = append(shown, c.Serial+" "+c.Issuer+" "+strings.Join(c.Names, ","))
		}
		got[name] = fmt.Sprint(s.Kind, " ", s.File, " ", shown, " by ", s.NeededBy)
	}
	if diff := cmp.Diff(want, got); diff != "" || d.Static != 1 {
		t.Errorf("%d static, secrets (-want +got):\n%s", d.Static, diff)
	}
}
