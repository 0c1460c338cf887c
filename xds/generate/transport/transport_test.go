package transport_test

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// secretOf is the JSON of a reference to a secret.
func secretOf(name string) string {
	return `{"name": "` + name + `", "sdsConfig": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"}}`
}

// verified is the JSON of a validation with a secret and further conditions.
func verified(roots, more string) string {
	return `"combinedValidationContext": {"defaultValidationContext": {` + more + `}, "validationContextSdsSecretConfig": ` + secretOf(roots) + `}`
}

const bounds = `"tlsParams": {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"}`

func parse[M proto.Message](t *testing.T, text string, into M) M {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return into
}

func unpack[M proto.Message](t *testing.T, s *corev3.TransportSocket, into M) M {
	t.Helper()
	if err := anypb.UnmarshalTo(s.GetTypedConfig(), into, proto.UnmarshalOptions{}); err != nil {
		t.Fatal(err)
	}
	return into
}

func needNames(t *testing.T, needs []resource.Need) (out []string) {
	t.Helper()
	for _, n := range needs {
		if n.TypeURL != resource.SecretType || n.Kind != resource.Once {
			t.Errorf("need %v is no secret", n)
		}
		out = append(out, n.Name)
	}
	return out
}

// secrets is a world with secrets in namespace shop: pair has a certificate, both also
// has CA certificates, and roots-cacert and split have the two in separate secrets.
func secrets(t *testing.T) *xdstest.World {
	w := xdstest.NewWorld(t)
	w.PutSecret("shop/pair", secret.TLSCert, secret.TLSKey)
	w.PutSecret("shop/both", secret.TLSCert, secret.TLSKey, secret.TLSAuthority)
	w.PutSecret("shop/split", secret.TLSCert, secret.TLSKey)
	w.PutSecret("shop/split-cacert", secret.TLSAuthority)
	w.PutSecret("other/strange", secret.TLSCert, secret.TLSKey, secret.TLSAuthority)
	return w
}

func gateway(w *xdstest.World) *mesh.View {
	return w.View(xdstest.Node{Type: discovery.Router, Namespace: "shop", Certified: true})
}

func TestClient(t *testing.T) {
	t.Parallel()
	w := secrets(t)
	router, sidecar := gateway(w), w.View(xdstest.Node{Namespace: "shop"})
	for name, test := range map[string]struct {
		view             *mesh.View
		settings         string
		o                transport.ClientOptions
		want             string // of UpstreamTlsContext, plaintext where empty
		needs            []string
		autoSNI, autoSAN bool
	}{
		"none":    {},
		"DISABLE": {settings: `{"mode": "DISABLE", "sni": "a"}`},
		"SIMPLE": {
			settings: `{"mode": "SIMPLE"}`, autoSNI: true, autoSAN: true, needs: []string{"file-root:system"},
			want: `{"commonTlsContext": {` + bounds + `, ` + verified("file-root:system", "") + `}}`,
		},
		"SIMPLE for HTTP/2": {
			settings: `{"mode": "SIMPLE", "sni": "a.example"}`, o: transport.ClientOptions{HTTP2: true}, needs: []string{"file-root:system"},
			want: `{"sni": "a.example", "commonTlsContext": {` + bounds + `, "alpnProtocols": ["h2"], ` + verified("file-root:system", "") + `}}`,
		},
		"SIMPLE with names": {
			settings: `{"mode": "SIMPLE", "caCertificates": "/ca.pem", "caCrl": "/crl.pem", "subjectAltNames": ["a.example", "spiffe://td/ns/a", "10.0.0.1", "me@a.example"]}`,
			o:        transport.ClientOptions{SubjectAltNames: []string{"other"}}, autoSNI: true, needs: []string{"file-root:/ca.pem~/crl.pem"},
			want: `{"commonTlsContext": {` + bounds + `, ` + verified("file-root:/ca.pem~/crl.pem", `"matchTypedSubjectAltNames": [
				{"sanType": "DNS", "matcher": {"exact": "a.example"}}, {"sanType": "URI", "matcher": {"exact": "spiffe://td/ns/a"}},
				{"sanType": "IP_ADDRESS", "matcher": {"exact": "10.0.0.1"}}, {"sanType": "EMAIL", "matcher": {"exact": "me@a.example"}}]`) + `}}`,
		},
		"SIMPLE with the names of the service": {
			settings: `{"mode": "SIMPLE", "caCertificates": "/ca.pem"}`,
			o:        transport.ClientOptions{SubjectAltNames: []string{"other"}}, autoSNI: true, autoSAN: true, needs: []string{"file-root:/ca.pem"},
			want: `{"commonTlsContext": {` + bounds + `, ` + verified("file-root:/ca.pem", `"matchTypedSubjectAltNames": [{"sanType": "DNS", "matcher": {"exact": "other"}}]`) + `}}`,
		},
		"SIMPLE, names of requests": {
			settings: `{"mode": "SIMPLE", "sni": "a.example", "subjectAltNames": ["a.example"]}`, o: transport.ClientOptions{Resolves: true},
			autoSAN: true, needs: []string{"file-root:system"},
			want: `{"sni": "a.example", "commonTlsContext": {` + bounds + `, ` + verified("file-root:system", `"matchTypedSubjectAltNames": [{"sanType": "DNS", "matcher": {"exact": "a.example"}}]`) + `}}`,
		},
		"SIMPLE unverified": {
			settings: `{"mode": "SIMPLE", "insecureSkipVerify": true}`, autoSNI: true,
			want: `{"commonTlsContext": {` + bounds + `}}`,
		},
		"SIMPLE by credential": {
			settings: `{"mode": "SIMPLE", "credentialName": "both"}`, autoSNI: true, autoSAN: true, needs: []string{"kubernetes://both-cacert"},
			want: `{"commonTlsContext": {` + bounds + `, ` + verified("kubernetes://both-cacert", "") + `}}`,
		},
		"MUTUAL by files": {
			settings: `{"mode": "MUTUAL", "clientCertificate": "/c.pem", "privateKey": "/k.pem", "sni": "a", "subjectAltNames": ["a"]}`,
			needs:    []string{"file-cert:/c.pem~/k.pem", "file-root:system"},
			want: `{"sni": "a", "commonTlsContext": {` + bounds + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("file-cert:/c.pem~/k.pem") + `],
				` + verified("file-root:system", `"matchTypedSubjectAltNames": [{"sanType": "DNS", "matcher": {"exact": "a"}}]`) + `}}`,
		},
		"MUTUAL by credential in two secrets": {
			settings: `{"mode": "MUTUAL", "credentialName": "kubernetes://shop/split", "sni": "a"}`, needs: []string{"kubernetes://split", "kubernetes://split-cacert"},
			want: `{"sni": "a", "commonTlsContext": {` + bounds + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://split") + `], ` + verified("kubernetes://split-cacert", "") + `}}`,
		},
		"MUTUAL unverified": {
			settings: `{"mode": "MUTUAL", "credentialName": "pair", "sni": "a", "insecureSkipVerify": true}`, needs: []string{"kubernetes://pair"},
			want: `{"sni": "a", "commonTlsContext": {` + bounds + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://pair") + `]}}`,
		},
		"MUTUAL of a sidecar": {
			view:     sidecar,
			settings: `{"mode": "MUTUAL", "credentialName": "both", "sni": "a"}`, o: transport.ClientOptions{Selected: true},
			needs: []string{"kubernetes://both", "kubernetes://both-cacert"},
			want:  `{"sni": "a", "commonTlsContext": {` + bounds + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://both") + `], ` + verified("kubernetes://both-cacert", "") + `}}`,
		},
		"ISTIO_MUTUAL": {
			settings: `{"mode": "ISTIO_MUTUAL"}`, o: transport.ClientOptions{ServerName: "outbound_.80_._.a.example", SubjectAltNames: []string{"spiffe://td/a"}, HTTP2: true, Speaks: transport.SpeaksHTTP2},
			needs: []string{"default", "ROOTCA"},
			want: `{"sni": "outbound_.80_._.a.example", "commonTlsContext": {` + bounds + `, "alpnProtocols": ["istio-h2", "istio", "h2"], "tlsCertificateSdsSecretConfigs": [` + secretOf("default") + `],
				` + verified("ROOTCA", `"matchTypedSubjectAltNames": [{"sanType": "URI", "matcher": {"exact": "spiffe://td/a"}}]`) + `}}`,
		},
		"ISTIO_MUTUAL with names": {
			settings: `{"mode": "ISTIO_MUTUAL", "sni": "a", "subjectAltNames": ["b"]}`, o: transport.ClientOptions{ServerName: "c", SubjectAltNames: []string{"d"}},
			needs: []string{"default", "ROOTCA"},
			want: `{"sni": "a", "commonTlsContext": {` + bounds + `, "alpnProtocols": ["istio"], "tlsCertificateSdsSecretConfigs": [` + secretOf("default") + `],
				` + verified("ROOTCA", `"matchTypedSubjectAltNames": [{"sanType": "DNS", "matcher": {"exact": "b"}}]`) + `}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := router
			if test.view != nil {
				view = test.view
			}
			var settings *networking.ClientTLSSettings
			if test.settings != "" {
				settings = parse(t, test.settings, &networking.ClientTLSSettings{})
			}
			s, ok := transport.Client(view, settings, test.o)
			if lacks := transport.ClientLacks(view, settings, test.o); !ok || len(lacks) > 0 {
				t.Fatalf("ok is %v, it lacks %v", ok, lacks)
			}
			if d := cmp.Diff(test.needs, needNames(t, s.Needs)); d != "" {
				t.Errorf("needs (-want +got):\n%s", d)
			}
			if s.AutoSNI != test.autoSNI || s.AutoSAN != test.autoSAN {
				t.Errorf("automatic SNI is %v, SAN %v", s.AutoSNI, s.AutoSAN)
			}
			if test.want == "" {
				if s.Transport != nil {
					t.Errorf("want plaintext, got %v", s.Transport)
				}
				return
			}
			want := parse(t, test.want, &tlsv3.UpstreamTlsContext{})
			if d := cmp.Diff(want, unpack(t, s.Transport, &tlsv3.UpstreamTlsContext{}), protocmp.Transform()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	w := secrets(t)
	const (
		http = `"alpnProtocols": ["h2", "http/1.1"]`
		off  = `"disableStatelessSessionResumption": true`
	)
	for name, test := range map[string]struct {
		settings string
		o        transport.ServerOptions
		want     string // of DownstreamTlsContext
		needs    []string
	}{
		"SIMPLE": {
			settings: `{"mode": "SIMPLE", "credentialName": "pair", "subjectAltNames": ["of nobody"]}`, needs: []string{"kubernetes://pair"},
			want: `{"requireClientCertificate": false, ` + off + `, "commonTlsContext": {` + http + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://pair") + `]}}`,
		},
		"SIMPLE by files, with parameters": {
			settings: `{"mode": "SIMPLE", "serverCertificate": "/c", "privateKey": "/k", "minProtocolVersion": "TLSV1_1", "maxProtocolVersion": "TLSV1_2", "cipherSuites": ["AES128-SHA", "NONSENSE", "AES128-SHA"]}`,
			needs:    []string{"file-cert:/c~/k"},
			want: `{"requireClientCertificate": false, ` + off + `, "commonTlsContext": {` + http + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("file-cert:/c~/k") + `],
				"tlsParams": {"tlsMinimumProtocolVersion": "TLSv1_1", "tlsMaximumProtocolVersion": "TLSv1_2", "cipherSuites": ["AES128-SHA"]}}}`,
		},
		"two certificates": {
			settings: `{"mode": "MUTUAL", "credentialNames": ["split", "pair"]}`, needs: []string{"kubernetes://split", "kubernetes://pair", "kubernetes://split-cacert"},
			want: `{"requireClientCertificate": true, "disableStatefulSessionResumption": true, ` + off + `, "commonTlsContext": {` + http + `,
				"tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://split") + `, ` + secretOf("kubernetes://pair") + `], ` + verified("kubernetes://split-cacert", "") + `}}`,
		},
		"MUTUAL with conditions": {
			settings: `{"mode": "MUTUAL", "credentialName": "pair", "caCertCredentialName": "both", "subjectAltNames": ["a"], "verifyCertificateSpki": ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="], "verifyCertificateHash": ["abababababababababababababababababababababababababababababababab"], "insecureSkipVerify": true}`,
			needs:    []string{"kubernetes://pair", "kubernetes://both-cacert"},
			want: `{"requireClientCertificate": true, "disableStatefulSessionResumption": true, ` + off + `, "commonTlsContext": {` + http + `, "tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://pair") + `],
				` + verified("kubernetes://both-cacert", `"matchTypedSubjectAltNames": [{"sanType": "DNS", "matcher": {"exact": "a"}}], "verifyCertificateSpki": ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="], "verifyCertificateHash": ["abababababababababababababababababababababababababababababababab"], "trustChainVerification": "ACCEPT_UNTRUSTED"`) + `}}`,
		},
		"OPTIONAL_MUTUAL by files": {
			settings: `{"mode": "OPTIONAL_MUTUAL", "tlsCertificates": [{"serverCertificate": "/c", "privateKey": "/k"}, {"serverCertificate": "/d", "privateKey": "/l"}], "caCertificates": "/ca", "caCrl": "/crl"}`,
			needs:    []string{"file-cert:/c~/k", "file-cert:/d~/l", "file-root:/ca~/crl"},
			want: `{"requireClientCertificate": false, "disableStatefulSessionResumption": true, ` + off + `, "commonTlsContext": {` + http + `,
				"tlsCertificateSdsSecretConfigs": [` + secretOf("file-cert:/c~/k") + `, ` + secretOf("file-cert:/d~/l") + `], ` + verified("file-root:/ca~/crl", "") + `}}`,
		},
		"ISTIO_MUTUAL": {
			settings: `{"mode": "ISTIO_MUTUAL", "minProtocolVersion": "TLSV1_3"}`, needs: []string{"default", "ROOTCA"},
			want: `{"requireClientCertificate": true, "disableStatefulSessionResumption": true, ` + off + `, "commonTlsContext": {` + http + `,
				"tlsParams": {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3", "cipherSuites": ["` + strings.ReplaceAll(meshSuites, ",", `", "`) + `"]},
				"tlsCertificateSdsSecretConfigs": [` + secretOf("default") + `], ` + verified("ROOTCA", `"matchTypedSubjectAltNames": [{"sanType": "URI", "matcher": {"prefix": "spiffe://cluster.local/"}}]`) + `}}`,
		},
		"HTTP/3": {
			settings: `{"mode": "SIMPLE", "credentialName": "pair"}`, o: transport.ServerOptions{QUIC: true}, needs: []string{"kubernetes://pair"},
			want: `{"requireClientCertificate": false, ` + off + `, "commonTlsContext": {"alpnProtocols": ["h3"], "tlsCertificateSdsSecretConfigs": [` + secretOf("kubernetes://pair") + `]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := parse(t, test.settings, &networking.ServerTLSSettings{})
			s, ok := transport.Server(gateway(w), settings, test.o)
			if lacks := transport.ServerLacks(gateway(w), settings, test.o); !ok || len(lacks) > 0 {
				t.Fatalf("ok is %v, it lacks %v", ok, lacks)
			}
			if d := cmp.Diff(test.needs, needNames(t, s.Needs)); d != "" {
				t.Errorf("needs (-want +got):\n%s", d)
			}
			got := &tlsv3.DownstreamTlsContext{}
			if test.o.QUIC {
				got = unpack(t, s.Transport, &quicv3.QuicDownstreamTransport{}).GetDownstreamTlsContext()
			} else {
				unpack(t, s.Transport, got)
			}
			if d := cmp.Diff(parse(t, test.want, &tlsv3.DownstreamTlsContext{}), got, protocmp.Transform()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestCertificateOfTheMachine: a proxy whose machine serves its certificate has that and the roots
// of the mesh from there, and all other secrets from the server.
func TestCertificateOfTheMachine(t *testing.T) {
	t.Parallel()
	v := xdstest.NewWorld(t).View(xdstest.Node{SecretCluster: "sds-grpc"})
	sources := func(c *tlsv3.CommonTlsContext) (out []string) {
		for _, s := range append(c.GetTlsCertificateSdsSecretConfigs(), c.GetCombinedValidationContext().GetValidationContextSdsSecretConfig()) {
			from := "ads"
			if api := s.GetSdsConfig().GetApiConfigSource(); api != nil {
				from = api.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName()
			}
			if patience := s.GetSdsConfig().GetInitialFetchTimeout().AsDuration(); patience > 0 != (from != "ads") {
				t.Errorf("%s of %s: Envoy waits for %s, where 0 is without end", s.GetName(), from, patience)
			}
			out = append(out, s.GetName()+" of "+from)
		}
		return out
	}
	own := []string{"default of sds-grpc", "ROOTCA of sds-grpc"}
	var client tlsv3.UpstreamTlsContext
	s, ok := transport.Client(v, parse(t, `{"mode": "ISTIO_MUTUAL"}`, &networking.ClientTLSSettings{}), transport.ClientOptions{})
	unpack(t, s.Transport, &client)
	if got := sources(client.GetCommonTlsContext()); !ok || len(s.Needs) > 0 || !slices.Equal(got, own) {
		t.Errorf("a client has %v, and needs %v", got, s.Needs)
	}
	var server tlsv3.DownstreamTlsContext
	s, ok = transport.Mesh(v)
	unpack(t, s.Transport, &server)
	if got := sources(server.GetCommonTlsContext()); !ok || len(s.Needs) > 0 || !slices.Equal(got, own) {
		t.Errorf("a server has %v, and needs %v", got, s.Needs)
	}
	var other tlsv3.UpstreamTlsContext
	s, _ = transport.Client(v, parse(t, `{"mode": "SIMPLE"}`, &networking.ClientTLSSettings{}), transport.ClientOptions{})
	unpack(t, s.Transport, &other)
	if got := sources(other.GetCommonTlsContext()); len(s.Needs) != 1 || !slices.Equal(got, []string{"file-root:system of ads"}) {
		t.Errorf("another client has %v, and needs %v", got, s.Needs)
	}
}

// TestLacks: if something is missing there is no socket, never a plaintext one, and the
// lack is reported.
func TestLacks(t *testing.T) {
	t.Parallel()
	w := secrets(t)
	router, bare := gateway(w), w.View(xdstest.Node{Namespace: "shop"})
	for settings, want := range map[string]string{
		`{"mode": "SIMPLE", "credentialName": "pair"}`:                       "credentialName: no certificate of an authority is stored as secret pair or pair-cacert in the namespace of the proxy",
		`{"mode": "MUTUAL", "credentialName": "split-cacert"}`:               "credentialName: no certificate with its key is stored as secret split-cacert in the namespace of the proxy",
		`{"mode": "MUTUAL", "credentialName": "strange"}`:                    "credentialName: no certificate with its key is stored as secret strange in the namespace of the proxy; credentialName: no certificate of an authority is stored as secret strange or strange-cacert in the namespace of the proxy",
		`{"mode": "MUTUAL", "credentialName": "kubernetes://other/strange"}`: `credentialName: "kubernetes://other/strange" is of another namespace: a proxy has the secrets of its own namespace alone`,
		`{"mode": "SIMPLE", "credentialName": "configmap://ca"}`:             `credentialName: "configmap://ca" is of no kind of secret that is stored here: name a Secret`,
		`{"mode": "MUTUAL"}`: "clientCertificate: no certificate is named: set credentialName, or clientCertificate and privateKey",
		`{"mode": 17}`:       "mode: 17 is unknown",
	} {
		parsed := parse(t, settings, &networking.ClientTLSSettings{})
		s, ok := transport.Client(router, parsed, transport.ClientOptions{})
		if got := lackTexts(transport.ClientLacks(router, parsed, transport.ClientOptions{})); ok || s.Transport != nil || len(s.Needs) > 0 || got != want {
			t.Errorf("%s: ok is %v, %v\n got %s\nwant %s", settings, ok, s, got, want)
		}
	}
	for settings, want := range map[string]string{
		`{"mode": "ISTIO_MUTUAL"}`:                     "mode: the proxy has no certificate of the mesh",
		`{"mode": "MUTUAL", "credentialName": "both"}`: "credentialName: a sidecar has the credential of no rule but one with a workloadSelector",
	} {
		parsed := parse(t, settings, &networking.ClientTLSSettings{})
		if _, ok := transport.Client(bare, parsed, transport.ClientOptions{}); ok {
			t.Errorf("%s has a socket", settings)
		}
		if got := lackTexts(transport.ClientLacks(bare, parsed, transport.ClientOptions{})); got != want {
			t.Errorf("%s\n got %s\nwant %s", settings, got, want)
		}
	}
	for settings, want := range map[string]string{
		`{"mode": "SIMPLE", "credentialName": "nothing"}`:                        "credentialName: no certificate with its key is stored as secret nothing in the namespace of the proxy",
		`{"mode": "MUTUAL", "credentialName": "pair"}`:                           "credentialName: no certificate of an authority is stored as secret pair or pair-cacert in the namespace of the proxy",
		`{"mode": "SIMPLE"}`:                                                     "credentialName: no certificate is named: set credentialName, or serverCertificate and privateKey",
		`{"mode": "MUTUAL", "serverCertificate": "/c", "privateKey": "/k"}`:      "caCertificates: no authority is named, whose certificates clients must have: set caCertificates",
		`{"mode": "ISTIO_MUTUAL"}`:                                               "mode: the proxy has no certificate of the mesh",
		`{"mode": "PASSTHROUGH", "serverCertificate": "/c", "privateKey": "/k"}`: "mode: PASSTHROUGH does not end TLS",
	} {
		parsed := parse(t, settings, &networking.ServerTLSSettings{})
		if s, ok := transport.Server(bare, parsed, transport.ServerOptions{}); ok || s.Transport != nil {
			t.Errorf("%s has a socket", settings)
		}
		if got := lackTexts(transport.ServerLacks(bare, parsed, transport.ServerOptions{})); got != want {
			t.Errorf("%s\n got %s\nwant %s", settings, got, want)
		}
	}
	if _, ok := transport.Server(router, nil, transport.ServerOptions{}); ok {
		t.Error("a server without settings has a socket")
	}
}

func lackTexts(lacks []transport.Lack) string {
	var out []string
	for _, l := range lacks {
		out = append(out, l.Field+": "+l.String())
	}
	return strings.Join(out, "; ")
}

// meshSuites are the cipher suites between workloads unless the mesh names others.
const meshSuites = "ECDHE-ECDSA-AES256-GCM-SHA384,ECDHE-RSA-AES256-GCM-SHA384,ECDHE-ECDSA-AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256,AES256-GCM-SHA384,AES128-GCM-SHA256"

// parametersOf returns the TLS versions, cipher suites and curves of a socket.
func parametersOf(t *testing.T, s transport.Socket, ok bool) string {
	t.Helper()
	if !ok {
		t.Fatal("there is no socket")
	}
	var common *tlsv3.CommonTlsContext
	if up := (&tlsv3.UpstreamTlsContext{}); s.Transport.GetTypedConfig().MessageIs(up) {
		common = unpack(t, s.Transport, up).GetCommonTlsContext()
	} else {
		common = unpack(t, s.Transport, &tlsv3.DownstreamTlsContext{}).GetCommonTlsContext()
	}
	p := common.GetTlsParams()
	return strings.Join([]string{p.GetTlsMinimumProtocolVersion().String(), p.GetTlsMaximumProtocolVersion().String(),
		strings.Join(p.GetCipherSuites(), ","), strings.Join(p.GetEcdhCurves(), ",")}, " ")
}

// TestMeshMTLS: meshMTLS sets what servers of the mesh take, and nothing of others or of clients.
func TestMeshMTLS(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"{}":                            "TLSv1_2 TLSv1_3 " + meshSuites + " ",
		"{minProtocolVersion: TLSV1_2}": "TLSv1_2 TLSv1_3 " + meshSuites + " ",
		"{minProtocolVersion: TLSV1_3}": "TLSv1_3 TLSv1_3 " + meshSuites + " ",
		"{cipherSuites: [NONSENSE, ECDHE-ECDSA-CHACHA20-POLY1305]}": "TLSv1_2 TLSv1_3 ECDHE-ECDSA-CHACHA20-POLY1305 ",
	} {
		w := secrets(t)
		w.SetMesh("meshMTLS: " + settings)
		s, ok := transport.Mesh(gateway(w))
		if got := parametersOf(t, s, ok); got != want {
			t.Errorf("%s: got %s, want %s", settings, got, want)
		}
		s, ok = transport.Server(gateway(w), parse(t, `{"mode": "SIMPLE", "credentialName": "pair"}`, &networking.ServerTLSSettings{}), transport.ServerOptions{})
		if got := parametersOf(t, s, ok); got != "TLS_AUTO TLS_AUTO  " {
			t.Errorf("%s: a server of others has %s", settings, got)
		}
		s, ok = transport.Client(gateway(w), parse(t, `{"mode": "ISTIO_MUTUAL"}`, &networking.ClientTLSSettings{}), transport.ClientOptions{})
		if got := parametersOf(t, s, ok); got != "TLSv1_2 TLSv1_3  " {
			t.Errorf("%s: a client has %s", settings, got)
		}
	}
}

// TestMeshDefaults: the mesh's cipher suites and curves apply where settings have none,
// except within the mesh. Those that no Envoy knows are omitted.
func TestMeshDefaults(t *testing.T) {
	t.Parallel()
	w := secrets(t)
	w.SetMesh(`{tlsDefaults: {minProtocolVersion: TLSV1_3, cipherSuites: [NONSENSE, AES256-SHA], ecdhCurves: [P-384, P-0]}}`)
	parameters := func(s transport.Socket, ok bool) string {
		t.Helper()
		return parametersOf(t, s, ok)
	}
	for settings, want := range map[string]string{
		`{"mode": "SIMPLE", "credentialName": "pair"}`:                                  "TLSv1_3 TLS_AUTO AES256-SHA P-384",
		`{"mode": "SIMPLE", "credentialName": "pair", "cipherSuites": ["AES128-SHA"]}`:  "TLSv1_3 TLS_AUTO AES128-SHA P-384",
		`{"mode": "SIMPLE", "credentialName": "pair", "minProtocolVersion": "TLSV1_0"}`: "TLSv1_0 TLS_AUTO AES256-SHA P-384",
		`{"mode": "SIMPLE", "credentialName": "pair", "maxProtocolVersion": "TLSV1_2"}`: "TLSv1_2 TLSv1_2 AES256-SHA P-384",
		`{"mode": "ISTIO_MUTUAL"}`: "TLSv1_2 TLSv1_3 " + meshSuites + " ",
	} {
		if got := parameters(transport.Server(gateway(w), parse(t, settings, &networking.ServerTLSSettings{}), transport.ServerOptions{})); got != want {
			t.Errorf("server %s: got %s, want %s", settings, got, want)
		}
	}
	for settings, want := range map[string]string{
		`{"mode": "SIMPLE"}`:       "TLSv1_2 TLSv1_3 AES256-SHA P-384",
		`{"mode": "ISTIO_MUTUAL"}`: "TLSv1_2 TLSv1_3  ",
	} {
		if got := parameters(transport.Client(gateway(w), parse(t, settings, &networking.ClientTLSSettings{}), transport.ClientOptions{})); got != want {
			t.Errorf("client %s: got %s, want %s", settings, got, want)
		}
	}
}

// TestContentIsNotRead: a replaced secret does not change a socket.
func TestContentIsNotRead(t *testing.T) {
	t.Parallel()
	w := secrets(t)
	settings := parse(t, `{"mode": "MUTUAL", "credentialName": "both"}`, &networking.ClientTLSSettings{})
	view := gateway(w).Recording()
	if _, ok := transport.Client(view, settings, transport.ClientOptions{}); !ok {
		t.Fatal("there is no socket")
	}
	changed := func() (out []mesh.Query) {
		after := gateway(w)
		for _, d := range view.Dependencies() {
			if after.Answer(d.Query) != d.Answer {
				out = append(out, d.Query)
			}
		}
		return out
	}
	w.PutSecret("shop/both", secret.TLSCert, secret.TLSKey, secret.TLSAuthority)
	if got := changed(); len(got) > 0 {
		t.Errorf("the secret was replaced, and the answers changed of %v", got)
	}
	w.PutSecret("shop/both")
	if len(changed()) == 0 {
		t.Error("the secret is gone, and no answer changed")
	}
}
