package bootstrap_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// read is the part of a gRPC bootstrap that tests check.
type read struct {
	Servers []struct {
		URI string `json:"server_uri"`
	} `json:"xds_servers"`
	Node json.RawMessage `json:"node"`
}

func grpc(t *testing.T, o bootstrap.Options) read {
	t.Helper()
	text, err := bootstrap.GRPC(o)
	if err != nil {
		t.Fatal(err)
	}
	var out read
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func proxyless() bootstrap.Options {
	o := minimal()
	o.Type = discovery.Proxyless
	return o
}

func TestTheServerReadsTheNodeOfGRPC(t *testing.T) {
	t.Parallel()
	node := &corev3.Node{}
	if err := protojson.Unmarshal(grpc(t, proxyless()).Node, node); err != nil {
		t.Fatal(err)
	}
	if node.GetLocality() == nil {
		t.Error("the node has no locality, not even an empty one")
	}
	p, err := discovery.ParseProxy(node)
	if err != nil {
		t.Fatal(err)
	}
	if p.Type != discovery.Proxyless || p.ID != "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local" || p.Namespace != "shop" {
		t.Errorf("%+v", p)
	}
}

func TestServersOfGRPC(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"cp.example:15010": "cp.example:15010", "unix:///run/xds": "unix:/run/xds", "/run/xds": "unix:/run/xds",
		"@xds": "unix-abstract:xds",
	} {
		o := proxyless()
		o.XDSAddresses = []string{address}
		if got := grpc(t, o).Servers[0].URI; got != want {
			t.Errorf("%q: %s, want %s", address, got, want)
		}
	}
}

func TestTypesOfBootstraps(t *testing.T) {
	t.Parallel()
	if _, err := bootstrap.Build(proxyless()); err == nil || !strings.Contains(err.Error(), `type "grpc": use sidecar or router`) {
		t.Errorf("an Envoy of type grpc: %v", err)
	}
	if _, err := bootstrap.GRPC(minimal()); err == nil || !strings.Contains(err.Error(), `type "sidecar": use grpc`) {
		t.Errorf("gRPC as a sidecar: %v", err)
	}
}

// TestCertificateOfGRPC: a program with a certificate has a provider for it, and the server learns
// that it has one, whether or not it speaks TLS with the server.
func TestCertificateOfGRPC(t *testing.T) {
	t.Parallel()
	o := proxyless()
	o.Certificate = discovery.CertificateFiles{Chain: "/c.pem", Key: "/k.pem", Roots: "/r.pem"}
	text, err := bootstrap.GRPC(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"type": "insecure"`, `"default": {`, `"certificate_file": "/c.pem"`, `"private_key_file": "/k.pem"`, `"ca_certificate_file": "/r.pem"`, `"TLS_CLIENT_CERT_CHAIN"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
