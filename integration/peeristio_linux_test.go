package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// istioProxy is an Envoy with the configuration that Istio 1.2x makes for a sidecar, but for
// Istio's own filters, which stock Envoy lacks: istio.alpn, istio.metadata_exchange and
// istio.stats. Where istio.alpn would replace the ALPN protocols of a cluster, the cluster has
// the replacement. The certificate comes of files in place of SDS.
//
// Sources: pilot/pkg/networking/core/{cluster_tls.go,filterchain_options.go,listener_inbound.go},
// pilot/pkg/security/authn/utils/utils.go and pilot/pkg/xds/filters/filters.go of istio/istio.
type istioProxy struct {
	listeners, clusters []string
}

// istioTLS are the parts of the TLS settings that both sides have.
const istioTLS = `tls_params: {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3$ciphers}
      tls_certificate_sds_secret_configs: [{name: default}]
      alpn_protocols: [$alpn]
      combined_validation_context:
        default_validation_context: {$sans}
        validation_context_sds_secret_config: {name: ROOTCA}`

// istioCiphers are those of Istio's servers.
const istioCiphers = ", cipher_suites: [ECDHE-ECDSA-AES256-GCM-SHA384, ECDHE-RSA-AES256-GCM-SHA384, ECDHE-ECDSA-AES128-GCM-SHA256, ECDHE-RSA-AES128-GCM-SHA256, AES256-GCM-SHA384, AES128-GCM-SHA256]"

// The ALPN protocols of Istio's chains.
const (
	istioHTTPProtocols  = "istio-http/1.0, istio-http/1.1, istio-h2"
	istioTCPProtocols   = "istio-peer-exchange, istio"
	istioProtocols      = "istio, istio-peer-exchange, istio-http/1.0, istio-http/1.1, istio-h2"
	plainHTTPProtocols  = "http/1.0, http/1.1, h2c"
	istioOffersOfBytes  = "istio-peer-exchange, istio"
	istioOffersOfHTTP   = "istio-http/1.1, istio, http/1.1"
	istioOffersOfHTTP2  = "istio-h2, istio, h2"
	istioAgreesForHTTP  = "h2, http/1.1"
	istioAgreesForBytes = "istio-peer-exchange, h2, http/1.1"
)

// outbound adds a cluster for a port of the service, whose endpoint takes mutual TLS.
func (p *istioProxy) outbound(port, target int, offers, options string, accounts ...string) {
	var sans []string
	for _, a := range accounts {
		sans = append(sans, "{exact: "+`"`+a+`"}`)
	}
	p.clusters = append(p.clusters, fill(`
- name: outbound|$port||app.shop.test
  type: STATIC
  connect_timeout: 10s$options
  load_assignment:
    cluster_name: outbound|$port||app.shop.test
    endpoints:
    - lb_endpoints:
      - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: $target}}}
        metadata: {filter_metadata: {envoy.transport_socket_match: {tlsMode: istio}}}
  transport_socket_matches:
  - name: tlsMode-istio
    match: {tlsMode: istio}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: outbound_.$port_._.app.shop.test
        common_tls_context:
          `+strings.ReplaceAll(istioTLS, "\n", "\n    ")+`
  - name: tlsMode-disabled
    match: {}
    transport_socket:
      name: envoy.transport_sockets.raw_buffer
      typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}
`, "$port", port, "$target", target, "$alpn", offers, "$options", options, "$ciphers", "", "$sans", "match_subject_alt_names: ["+strings.Join(sans, ", ")+"]"))
}

// istioOptions are the HTTP options of an Istio cluster.
func istioOptions(of string) string {
	return `
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      ` + of
}

// istioClient returns the proxy of a client of the service, as Istio makes it.
func istioClient(accounts ...string) istioProxy {
	p := istioProxy{}
	p.outbound(80, 8080, istioOffersOfHTTP, istioOptions("explicit_http_config: {http_protocol_options: {}}"), accounts...)
	p.outbound(81, 8081, istioOffersOfHTTP2, istioOptions("explicit_http_config: {http2_protocol_options: {}}"), accounts...)
	p.outbound(5432, 5432, istioOffersOfBytes, "", accounts...)
	p.listeners = []string{`
- name: virtualOutbound
  address: {socket_address: {address: 0.0.0.0, port_value: 15001}}
  use_original_dst: true
  traffic_direction: OUTBOUND
  filter_chains:
  - filters: [` + istioPipe("BlackHoleCluster") + `]
`}
	for _, port := range []int{80, 81} {
		p.listeners = append(p.listeners, fill(`
- name: 0.0.0.0_$port
  address: {socket_address: {address: 0.0.0.0, port_value: $port}}
  bind_to_port: false
  traffic_direction: OUTBOUND
  filter_chains:
  - filters: [$http]
`, "$port", port, "$http", istioHTTP(fmt.Sprintf("outbound|%d||app.shop.test", port), "")))
	}
	p.listeners = append(p.listeners, `
- name: 10.9.0.1_5432
  address: {socket_address: {address: 10.9.0.1, port_value: 5432}}
  bind_to_port: false
  traffic_direction: OUTBOUND
  filter_chains:
  - filters: [`+istioPipe("outbound|5432||app.shop.test")+`]
`)
	p.clusters = append(p.clusters, "\n- {name: BlackHoleCluster, type: STATIC, connect_timeout: 10s}\n")
	return p
}

// istioPipe is the filter of a chain of bytes.
func istioPipe(cluster string) string {
	return `{name: envoy.filters.network.tcp_proxy, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: "` + cluster + `", cluster: "` + cluster + `"}}`
}

// istioHTTP is the filter of a chain of HTTP.
func istioHTTP(cluster, more string) string {
	return fill(`{name: envoy.filters.network.http_connection_manager, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
      stat_prefix: "$cluster", use_remote_address: false, normalize_path: true, upgrade_configs: [{upgrade_type: websocket}]$more,
      route_config: {virtual_hosts: [{name: "$cluster", domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: "$cluster", timeout: 0s}}]}]},
      http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}`,
		"$cluster", cluster, "$more", more)
}

// istioChain is a filter chain of Istio's virtualInbound. No protocols match all.
type istioChain struct {
	protocols string
	encrypted bool // matches TLS, else plaintext
	ends      bool // TLS ends here
	http      bool
}

// istioChains are getFilterChainMatchOptions of Istio, by mode and protocol of the port.
var istioChains = map[string]map[string][]istioChain{
	"STRICT": {
		"HTTP": {{encrypted: true, ends: true, http: true}},
		"TCP":  {{encrypted: true, ends: true}},
		"auto": {{protocols: istioHTTPProtocols, encrypted: true, ends: true, http: true}, {encrypted: true, ends: true}},
	},
	"PERMISSIVE": {
		"HTTP": {{protocols: istioProtocols, encrypted: true, ends: true, http: true}, {http: true}},
		"TCP":  {{protocols: istioProtocols, encrypted: true, ends: true}, {}, {encrypted: true}},
		"auto": {
			{protocols: istioHTTPProtocols, encrypted: true, ends: true, http: true},
			{protocols: plainHTTPProtocols, http: true},
			{protocols: istioTCPProtocols, encrypted: true, ends: true},
			{}, {encrypted: true},
		},
	},
}

// message is the chain for a port of the workload.
func (c istioChain) message(port int) string {
	cluster, transport, socket := fmt.Sprintf("inbound|%d||", port), "raw_buffer", ""
	if c.encrypted {
		transport = "tls"
	}
	filter, agrees := istioPipe(cluster), istioAgreesForBytes
	if c.http {
		filter = istioHTTP(cluster, ", forward_client_cert_details: APPEND_FORWARD, set_current_client_cert_details: {subject: true, dns: true, uri: true}")
		agrees = istioAgreesForHTTP
	}
	if c.ends {
		socket = fill(`
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
        require_client_certificate: true
        common_tls_context:
          `+strings.ReplaceAll(istioTLS, "\n", "\n    "), "$alpn", agrees, "$ciphers", istioCiphers,
			// Istio does so where the mesh has aliases.
			"$sans", `match_subject_alt_names: [{prefix: "spiffe://cluster.local/"}, {prefix: "spiffe://old.example/"}]`)
	}
	return fill(`
  - name: 0.0.0.0_$port
    filter_chain_match: {destination_port: $port, transport_protocol: $transport, application_protocols: [$protocols]}
    filters: [$filter]$socket`, "$port", port, "$transport", transport, "$protocols", c.protocols, "$filter", filter, "$socket", socket)
}

// istioServer returns the proxy of the workload in a mode, as Istio makes it.
func istioServer(mode string) istioProxy {
	p := istioProxy{}
	listener := `
- name: virtualInbound
  address: {socket_address: {address: 0.0.0.0, port_value: 15006}}
  traffic_direction: INBOUND
  continue_on_listener_filters_timeout: true
  listener_filters_timeout: 0s
  listener_filters:
  - {name: envoy.filters.listener.original_dst, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}}
  - {name: envoy.filters.listener.tls_inspector, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}
  - name: envoy.filters.listener.http_inspector
    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector}
    filter_disabled: {not_match: {destination_port_range: {start: 7000, end: 7001}}}
  filter_chains:`
	for _, port := range []struct {
		number         int
		kind, protocol string
	}{{8080, "HTTP", "http_protocol_options"}, {8081, "HTTP", "http2_protocol_options"}, {5432, "TCP", ""}, {7000, "auto", "http_protocol_options"}} {
		for _, c := range istioChains[mode][port.kind] {
			listener += c.message(port.number)
		}
		options := ""
		if port.protocol != "" {
			options = istioOptions("explicit_http_config: {" + port.protocol + ": {}}")
		}
		p.clusters = append(p.clusters, fill(`
- name: inbound|$port||
  type: ORIGINAL_DST
  lb_policy: CLUSTER_PROVIDED
  connect_timeout: 10s
  upstream_bind_config: {source_address: {address: 127.0.0.6, port_value: 0}}$options
`, "$port", port.number, "$options", options))
	}
	p.listeners = []string{listener + "\n"}
	return p
}

// runIstio runs a proxy as Istio makes it until the test ends.
func (n *namespace) runIstio(name string, p istioProxy, c *certificateFiles) *envoy {
	n.t.Helper()
	e := &envoy{t: n.t, name: name, admin: local(freePort(n.t)), client: n.http(n.t)}
	host, port, _ := strings.Cut(e.admin, ":")
	config := write(n.t, name+".yaml", fill(`
admin: {address: {socket_address: {address: $host, port_value: $port}}}
static_resources:
  secrets:
  - {name: default, tls_certificate: {certificate_chain: {filename: $chain}, private_key: {filename: $key}}}
  - {name: ROOTCA, validation_context: {trusted_ca: {filename: $roots}}}
`, "$host", host, "$port", port, "$chain", c.chain, "$key", c.key, "$roots", c.roots)+
		"  listeners:"+indent(p.listeners)+"  clusters:"+indent(p.clusters))
	command := append(n.command(), needEnvoy(n.t), "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	e.process = start(n.t, "envoy-"+name, command[0], command[1:]...)
	e.awaitReady()
	return e
}

func indent(parts []string) string {
	return strings.ReplaceAll(strings.Join(parts, ""), "\n", "\n  ") + "\n"
}

// TestEnvoyPeerOfIstio: a sidecar of Istio and one of ours talk over mutual TLS in both
// directions, with the same root and trust domain or an alias: HTTP/1.1, HTTP/2 and TCP, where
// the server demands mutual TLS and where it takes both. Each shows the other who it is.
func TestEnvoyPeerOfIstio(t *testing.T) {
	t.Parallel()
	m := newPeerMesh(t, serverOptions{meshConfig: "trustDomainAliases: [old.example]"})
	wire := m.client.sniff("p", secretWord)
	accounts := func(name string) map[string]string {
		return map[string]string{"the trust domain": shopAccounts + name, "an alias": "spiffe://old.example/ns/shop/sa/" + name}
	}
	// talks calls every kind of port, and checks that nobody reads it.
	talks := func(what, client string) {
		t.Helper()
		before := wire.Load()
		for port, name := range map[int]string{80: "http", 81: "http2"} {
			eventually(t, fmt.Sprintf("%s: port %d", what, port), func() error {
				got, err := m.through(port, "/"+secretWord)
				if shown := got.echo.Header.Get("X-Forwarded-Client-Cert"); err == nil && (got.String() != name || !strings.Contains(shown, "URI="+client)) {
					err = fmt.Errorf("it answers %s, and the server saw %q", got, shown)
				}
				return err
			})
		}
		eventually(t, what+": TCP", func() error {
			return greets(m.client, captureMark, "10.9.0.1:5432", "", peerGreeting)
		})
		if seen := wire.Load() - before; seen > 0 {
			t.Errorf("%s: %d packets have what was sent", what, seen)
		}
	}

	app := m.sidecarOfApp(protocol.Delta, identified(t, m.of, shopAccounts+"app"))
	for domain, account := range accounts("client") {
		istio := m.client.runIstio("istio-client", istioClient(shopAccounts+"app"), identified(t, m.of, account))
		for _, mode := range []string{"STRICT", "PERMISSIVE"} {
			m.must(peerMode(mode), "apply", "-f", "-", "--wait")
			talks(fmt.Sprintf("a client of Istio, of %s, calls a server in mode %s", domain, mode), account)
		}
		istio.process.kill()
	}
	app.expectNothingRejected()
	app.process.kill()

	client := m.sidecarOfClient(protocol.Delta, identified(t, m.of, shopAccounts+"client"))
	client.awaitWarm()
	for domain, account := range accounts("app") {
		for _, mode := range []string{"STRICT", "PERMISSIVE"} {
			istio := m.workload.runIstio("istio-app", istioServer(mode), identified(t, m.of, account))
			what := fmt.Sprintf("a server of Istio, of %s, in mode %s", domain, mode)
			talks(what, shopAccounts+"client")
			// A port that declares nothing is bytes to both.
			eventually(t, what+": a port that declares nothing", func() error {
				got, err := m.through(90, "/"+secretWord)
				if err == nil && (got.status != http.StatusOK || got.String() != "plain") {
					err = fmt.Errorf("it answers %s", got)
				}
				return err
			})
			for _, port := range []int{8080, 5432} {
				if err := m.bare(port); (err == nil) != (mode == "PERMISSIVE") {
					t.Errorf("%s: port %d without a sidecar: %v", what, port, err)
				}
			}
			istio.process.kill()
		}
	}
	client.expectNothingRejected()
}
