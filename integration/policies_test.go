package integration

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
	packing "github.com/portolan-mesh/portolan/xds/envoy/message"
	upstreams "github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate/policy/policytest"
)

// TestEnvoyPolicies: an Envoy with the translated policies answers each request of the table
// as it says.
func TestEnvoyPolicies(t *testing.T) {
	t.Parallel()
	judge(t, policytest.Cases(t))
}

// TestEnvoyBigPolicies: an Envoy takes big sets of policies and judges by them.
func TestEnvoyBigPolicies(t *testing.T) {
	t.Parallel()
	judge(t, policytest.Big(t))
}

// TestSoakEnvoyRandomPolicies: an Envoy answers random requests under random policies as the
// evaluator does.
func TestSoakEnvoyRandomPolicies(t *testing.T) {
	const groups, requests = 100, 20
	long := longtest.Soak(t)
	if long == 0 {
		t.Parallel()
		judge(t, drawn(t, 2, groups, requests))
		return
	}
	for end, stream := time.Now().Add(long), uint64(time.Now().UnixNano()); time.Now().Before(end) && !t.Failed(); stream++ {
		t.Logf("stream %d", stream)
		t.Run("", func(t *testing.T) { judge(t, drawn(t, stream, groups, requests)) })
	}
}

func drawn(t *testing.T, stream uint64, groups, requests int) []policytest.Group {
	t.Helper()
	var out []policytest.Group
	for seed := range groups {
		out = append(out, policytest.Draw(t, rand.New(rand.NewPCG(uint64(seed), stream)), requests))
	}
	return out
}

// judge runs one Envoy with a listener for each group, and sends it the requests.
func judge(t *testing.T, groups []policytest.Group) {
	t.Helper()
	g := newGuard(t, groups)
	var work errgroup.Group
	work.SetLimit(8)
	for i, group := range groups {
		for _, r := range group.Requests {
			work.Go(func() error {
				if t.Failed() {
					return nil
				}
				got, err := g.send(i, group.TCP, r.WithDefaults())
				if err != nil || got.passes != r.Want || got.fault != "" && r.By != got.fault {
					t.Errorf("%s: %+v: %+v, %v\n%s", group.Name, r, got, err, group)
				}
				return nil
			})
		}
	}
	_ = work.Wait()
}

// guard is an Envoy to which policies apply.
type guard struct {
	authority *securetest.Authority
	// clients are certificates by identity.
	clients map[string]*tls.Certificate
	port    int
}

// address is that of the listener of a group.
func (g *guard) address(i int) string { return fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250) }

func newGuard(t *testing.T, groups []policytest.Group) *guard {
	t.Helper()
	g := &guard{
		authority: securetest.New(t, "mesh"), clients: map[string]*tls.Certificate{}, port: freePort(t),
	}
	for _, group := range groups {
		for _, r := range group.Requests {
			if u := r.URI(); u != nil && g.clients[r.Identity] == nil {
				g.clients[r.Identity] = securetest.TLS(g.authority.Issue(t, securetest.Leaf{Identity: u.String()}))
			}
		}
	}
	b := &bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{g.echo(t)}}}
	for i, group := range groups {
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, group.Listener(policytest.ListenerOptions{
			Name: fmt.Sprint(i), Host: g.address(i), Port: uint32(g.port), ProxyProtocol: true, TLS: g.socket(t),
		}))
	}
	envoy := startAlone(t, "policies", b)
	if strings.Contains(envoy.output(), "eprecated") {
		t.Errorf("the Envoy warns of deprecated fields: %s", envoy.tail())
	}
	return g
}

// startAlone runs an Envoy until the test ends that has no server, and waits until it is ready.
func startAlone(t *testing.T, name string, b *bootstrapv3.Bootstrap) *process {
	t.Helper()
	path, admin := needEnvoy(t), freePort(t)
	b.Admin = &bootstrapv3.Admin{Address: packing.Address("127.0.0.1", uint32(admin))}
	document, err := bootstrap.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	envoy := start(t, "envoy-"+name, path, "-c", write(t, name+".json", string(document)), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	eventually(t, "the Envoy is ready", func() error {
		response, err := http.Get("http://" + local(admin) + "/ready")
		if err != nil {
			return fmt.Errorf("%w: %s", err, envoy.tail())
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	return envoy
}

// socket asks for a certificate of the mesh and does not insist.
func (g *guard) socket(t *testing.T) *corev3.TransportSocket {
	t.Helper()
	inline := func(data []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: data}}
	}
	own := g.authority.Issue(t, securetest.Leaf{Identity: "spiffe://td/ns/ns/sa/me"})
	return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packing.Pack(&tlsv3.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(false),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: inline(own.Cert), PrivateKey: inline(own.Key)}},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa: inline(g.authority.Cert),
			}},
		},
	})}}
}

// echo is the cluster of a server that returns what it gets.
func (g *guard) echo(t *testing.T) *clusterv3.Cluster {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work errgroup.Group
	work.Go(func() error {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return nil
			}
			work.Go(func() error {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
				return nil
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		_ = work.Wait()
	})
	return upstreams.Cluster(upstreams.ClusterOptions{Name: policytest.Echo, Type: upstreams.Static, Endpoints: []upstreams.Endpoints{
		{Endpoints: []upstreams.Endpoint{{Host: "127.0.0.1", Port: uint32(listener.Addr().(*net.TCPAddr).Port)}}},
	}})
}

// judged is what becomes of a request. fault is what is wrong with its token.
type judged struct {
	passes bool
	fault  string
}

// send sends a request to a group's listener.
func (g *guard) send(i int, tcp bool, r policytest.Request) (judged, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(r.Source)}, Timeout: patience}
	connection, err := dialer.Dial("tcp", net.JoinHostPort(g.address(i), fmt.Sprint(g.port)))
	if err != nil {
		return judged{}, err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return judged{}, err
	}
	family := "TCP4"
	if strings.Contains(r.Origin, ":") {
		family = "TCP6"
	}
	if _, err := fmt.Fprintf(connection, "PROXY %s %s %s 40000 %d\r\n", family, r.Origin, r.Address, r.Port); err != nil {
		return judged{}, err
	}
	if r.TLS {
		config := &tls.Config{ServerName: r.SNI, InsecureSkipVerify: true}
		if own := g.clients[r.Identity]; own != nil {
			config.Certificates = []tls.Certificate{*own}
		}
		connection = tls.Client(connection, config)
	}
	if tcp {
		passes, err := echoes(connection)
		return judged{passes: passes}, err
	}
	return g.answered(connection, r)
}

// echoes says whether a connection reaches the server, rather than being closed.
func echoes(connection net.Conn) (bool, error) {
	const words = "hello, server" // fewer bytes might begin a TLS handshake
	if _, err := io.WriteString(connection, words); err != nil {
		return false, nil
	}
	answer := make([]byte, len(words))
	_, err := io.ReadFull(connection, answer)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return false, err
	}
	return err == nil, nil
}

// answered sends a request, which must be answered as the table says.
func (g *guard) answered(connection net.Conn, r policytest.Request) (judged, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n", r.Method, r.Path, r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		fmt.Fprintf(&request, "%s: %s\r\n", name, r.Headers[name])
	}
	if _, err := io.WriteString(connection, request.String()+"\r\n"); err != nil {
		return judged{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: r.Method})
	if err != nil {
		return judged{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != r.Status {
		return judged{}, fmt.Errorf("%s: %s, %w", response.Status, body, err)
	}
	out := judged{passes: response.StatusCode == http.StatusOK}
	if text := string(body); strings.Contains(text, "Jw") {
		out.fault = text
	}
	return out, nil
}
