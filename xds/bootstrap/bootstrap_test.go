package bootstrap_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

func minimal() bootstrap.Options {
	return bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "web-1", Namespace: "shop"}
}

func build(t *testing.T, o bootstrap.Options) *bootstrapv3.Bootstrap {
	t.Helper()
	out, err := bootstrap.Build(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.ValidateAll(); err != nil {
		t.Errorf("Envoy refuses it: %v", err)
	}
	return out
}

func TestTheServerReadsTheNode(t *testing.T) {
	t.Parallel()
	full := bootstrap.Options{
		Type: discovery.Sidecar, IPs: []string{"10.0.0.1", "fd00::1"}, Name: "web-1", Namespace: "shop", Domain: "mesh.example",
		ClusterID: "east", Network: "dmz", Labels: labels.Instance{"app": "web", "version": "v1"}, ServiceAccount: "web",
		InterceptionMode: discovery.InterceptionRedirect, IstioVersion: "1.30.2", Locality: "eu/a/rack-7",
		Certificate: discovery.CertificateFiles{Chain: "/etc/mesh/cert.pem", Key: "/etc/mesh/key.pem", Roots: "/etc/mesh/ca.pem"}, SystemRoots: "/etc/pki/tls/certs/ca-bundle.crt",
	}
	router := minimal()
	router.Type = discovery.Router
	for name, c := range map[string]struct {
		options bootstrap.Options
		want    discovery.Proxy
	}{
		"minimal": {minimal(), discovery.Proxy{
			ID: "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local", Type: discovery.Sidecar, IPAddresses: []string{"10.0.0.1"},
			Name: "web-1.shop", DNSDomain: "shop.svc.cluster.local", Namespace: "shop",
			InterceptionMode: discovery.InterceptionNone, Version: bootstrap.DefaultIstioVersion,
		}},
		"full": {full, discovery.Proxy{
			ID: "sidecar~10.0.0.1~web-1.shop~shop.svc.mesh.example", Type: discovery.Sidecar, IPAddresses: []string{"10.0.0.1", "fd00::1"},
			Name: "web-1.shop", DNSDomain: "shop.svc.mesh.example", Namespace: "shop",
			MetadataLabels: labels.Instance{"app": "web", "version": "v1"}, ServiceAccount: "web", ClusterID: "east", Network: "dmz",
			InterceptionMode: discovery.InterceptionRedirect, Version: "1.30.2", Locality: "eu/a/rack-7", Certificate: full.Certificate, SystemRoots: full.SystemRoots,
		}},
		"router": {router, discovery.Proxy{
			ID: "router~10.0.0.1~web-1.shop~shop.svc.cluster.local", Type: discovery.Router, IPAddresses: []string{"10.0.0.1"},
			Name: "web-1.shop", DNSDomain: "shop.svc.cluster.local", Namespace: "shop",
			InterceptionMode: discovery.InterceptionRedirect, Version: bootstrap.DefaultIstioVersion,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := discovery.ParseProxy(build(t, c.options).GetNode())
			if err != nil {
				t.Fatal(err)
			}
			if got.Metadata["NAMESPACE"] != c.want.Namespace || got.ServiceName != c.want.Name {
				t.Errorf("metadata %v, service %q", got.Metadata, got.ServiceName)
			}
			got.Metadata, got.ServiceName = nil, ""
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestResourcesComeOverOneStream(t *testing.T) {
	t.Parallel()
	for sotw, want := range map[bool]corev3.ApiConfigSource_ApiType{
		false: corev3.ApiConfigSource_DELTA_GRPC, true: corev3.ApiConfigSource_GRPC,
	} {
		o := minimal()
		o.StateOfTheWorld = sotw
		got := build(t, o).GetDynamicResources()
		if got.GetAdsConfig().GetApiType() != want {
			t.Errorf("state of the world %t: got %s", sotw, got.GetAdsConfig().GetApiType())
		}
		if name := got.GetAdsConfig().GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName(); name != "xds-grpc" {
			t.Errorf("the stream goes to %q", name)
		}
		if got.GetCdsConfig().GetAds() == nil || got.GetLdsConfig().GetAds() == nil {
			t.Errorf("clusters and listeners do not come over the stream: %v", got)
		}
	}
}

// TestSelfDiscovery: the bootstrap has the cluster of the proxy's own service, and the
// node tells the server so.
func TestSelfDiscovery(t *testing.T) {
	t.Parallel()
	o := minimal()
	if got := build(t, o); got.GetClusterManager() != nil || len(got.GetStaticResources().GetClusters()) != 1 {
		t.Errorf("without: %v", got)
	}
	o.SelfDiscovery, o.Locality = true, "eu/a"
	got := build(t, o)
	cluster := got.GetStaticResources().GetClusters()[1]
	if name := got.GetClusterManager().GetLocalClusterName(); name != "local_cluster" || cluster.GetName() != name || envoytest.ClusterTypeOf(cluster) != upstream.EDS {
		t.Errorf("the local cluster is %q: %v", name, cluster)
	}
	if p, err := discovery.ParseProxy(got.GetNode()); err != nil || !p.SelfDiscovery {
		t.Errorf("the server reads %+v, %v", p, err)
	}
}

// TestSeveralServers: the servers are endpoints of one cluster. If one of them is a host
// name, the cluster resolves it.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	for last, kind := range map[string]upstream.ClusterType{"10.0.0.9:15010": upstream.Static, "mesh.example.com:15010": upstream.StrictDNS} {
		o := minimal()
		o.XDSAddresses = []string{"10.0.0.8:15010", last}
		cluster := build(t, o).GetStaticResources().GetClusters()[0]
		if got := envoytest.ClusterTypeOf(cluster); got != kind {
			t.Errorf("with %s: cluster type %d, want %d", last, got, kind)
		}
		if n := len(cluster.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()); n != 2 {
			t.Errorf("with %s: %d endpoints, want 2", last, n)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		kind upstream.ClusterType
		host string
		port uint32
	}{
		bootstrap.DefaultXDSAddress: {upstream.Static, "127.0.0.1", 15010},
		"10.0.0.9:15012":            {upstream.Static, "10.0.0.9", 15012},
		"[fd00::9]:15012":           {upstream.Static, "fd00::9", 15012},
		"mesh.example.com:15010":    {upstream.StrictDNS, "mesh.example.com", 15010},
		"unix:///run/xds.sock":      {upstream.Static, "unix:///run/xds.sock", 0},
	} {
		o := minimal()
		if o.ConnectTimeout = 3 * time.Second; address != bootstrap.DefaultXDSAddress {
			o.XDSAddresses = []string{address}
		}
		cluster := build(t, o).GetStaticResources().GetClusters()[0]
		if got := envoytest.ClusterTypeOf(cluster); got != want.kind {
			t.Errorf("%q: cluster type %d, want %d", address, got, want.kind)
		}
		if got := cluster.GetConnectTimeout().AsDuration(); got != 3*time.Second {
			t.Errorf("%q: connect timeout %s", address, got)
		}
		got := cluster.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress()
		if diff := cmp.Diff(message.Address(want.host, want.port), got, protocmp.Transform()); diff != "" {
			t.Errorf("%q: -want +got:\n%s", address, diff)
		}
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	o := minimal()
	if got := build(t, o).GetAdmin().GetAddress().GetSocketAddress(); got.GetAddress() != "127.0.0.1" || got.GetPortValue() != 15000 {
		t.Errorf("by default it listens on %v", got)
	}
	o.AdminAddress = bootstrap.AdminOff
	if got := build(t, o).GetAdmin(); got != nil {
		t.Errorf("it is not off: %v", got)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := bootstrap.Build(bootstrap.Options{
		Type: "waypoint", IPs: []string{"10.0.0.1", "ten"}, Name: "a~b", Domain: "a b", InterceptionMode: "MAGIC",
		Locality: "a/b/c/d", XDSAddresses: []string{"15010"}, AdminAddress: "localhost:15000", ConnectTimeout: -time.Second,
	})
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{
		`type "waypoint"`, `ip "ten"`, `name "a~b"`, `namespace "": must not be empty`, `domain "a b"`, `interception mode "MAGIC"`,
		`locality "a/b/c/d"`, `xds address "15010": want host:port`, `admin address "localhost:15000"`, `connect timeout -1s`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not named: %s\nin: %v", want, err)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*bootstrap.Options){
		"self discovery: needs a locality": func(o *bootstrap.Options) { o.SelfDiscovery = true },
		"ip: the proxy needs":              func(o *bootstrap.Options) { o.IPs = nil },
		"a router intercepts nothing":      func(o *bootstrap.Options) { o.Type, o.InterceptionMode = discovery.Router, discovery.InterceptionNone },
		`xds address "h:0"`:                func(o *bootstrap.Options) { o.XDSAddresses = []string{"h:0"} },
		`xds address ":15010"`:             func(o *bootstrap.Options) { o.XDSAddresses = []string{":15010"} },
		`admin address "127.0.0.1:http"`:   func(o *bootstrap.Options) { o.AdminAddress = "127.0.0.1:http" },
		`name "a/b": must not contain`:     func(o *bootstrap.Options) { o.Name = "a/b" },
		`use NONE, REDIRECT or TPROXY`:     func(o *bootstrap.Options) { o.InterceptionMode = "none" },
		`type "": use sidecar or router`:   func(o *bootstrap.Options) { o.Type = "" },
		"sds socket: excludes cert, key and ca": func(o *bootstrap.Options) {
			o.SDSSocket, o.Certificate = "/run/sds", discovery.CertificateFiles{Chain: "/c", Key: "/k", Roots: "/r"}
		},
		`sds socket "run/sds": must be an absolute path`: func(o *bootstrap.Options) { o.SDSSocket = "run/sds" },
		`xds ca: goes with cert, key and ca`: func(o *bootstrap.Options) {
			o.SDSSocket, o.TLS, o.ServerRoots = "/run/sds", true, "/r"
		},
		`admin address "mesh:1": the host`: func(o *bootstrap.Options) { o.AdminAddress = "mesh:1" },
	} {
		o := minimal()
		change(&o)
		if _, err := bootstrap.Build(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestRenderings(t *testing.T) {
	t.Parallel()
	o := minimal()
	o.Labels = labels.Instance{"a": "1", "b": "2", "c": "3"}
	want := build(t, o)
	asJSON, err := bootstrap.JSON(want)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := bootstrap.PatchedYAML(want, nil)
	if err != nil {
		t.Fatal(err)
	}
	fromYAML, err := yaml.YAMLToJSON(asYAML)
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"JSON": asJSON, "YAML": fromYAML} {
		var got bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
			t.Errorf("%s does not survive: -want +got:\n%s", name, diff)
		}
	}
	for range 10 {
		again, err := bootstrap.JSON(build(t, o))
		if err != nil || !slices.Equal(asJSON, again) {
			t.Fatalf("the bytes differ (%v)", err)
		}
	}
}

// TestSDSSocket: the proxy's certificate comes from a socket of its machine, also for its connection
// to the control plane, and the server learns so.
func TestSDSSocket(t *testing.T) {
	t.Parallel()
	o := minimal()
	o.SDSSocket, o.TLS, o.XDSAddresses = "/run/sds", true, []string{"cp.example:15012"}
	b := build(t, o)
	text, err := bootstrap.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"path":"/run/sds"`, `"SDS_CLUSTER":"sds-grpc"`, `"name":"ROOTCA"`, `"name":"default"`} {
		if !strings.Contains(strings.ReplaceAll(string(text), ": ", ":"), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	p, err := discovery.ParseProxy(b.GetNode())
	if err != nil || p.SecretCluster != "sds-grpc" || !p.HasCertificate() {
		t.Errorf("the server reads %+v, %v", p, err)
	}
	files, err := bootstrap.TLSFiles(o)
	if err != nil || len(files) > 0 {
		t.Errorf("it needs files: %v, %v", files, err)
	}
	b.GetNode().GetMetadata().GetFields()["TLS_CLIENT_CERT_CHAIN"] = structpb.NewStringValue("/c")
	b.GetNode().GetMetadata().GetFields()["TLS_CLIENT_KEY"] = structpb.NewStringValue("/k")
	b.GetNode().GetMetadata().GetFields()["TLS_CLIENT_ROOT_CERT"] = structpb.NewStringValue("/r")
	if _, err := discovery.ParseProxy(b.GetNode()); err == nil || !strings.Contains(err.Error(), "name one source") {
		t.Errorf("two sources: %v", err)
	}
}
