package secure_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/portolan-mesh/portolan/discovery/identity/secure"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port is a Listener that greets each client by the name in its certificate.
type port struct {
	address   string
	listener  *secure.Listener
	log       *logtest.Log
	authority *securetest.Authority
}

func newPort(t *testing.T, change func(*secure.Options)) *port {
	t.Helper()
	p := &port{log: &logtest.Log{}, authority: securetest.New(t, "root")}
	own := securetest.TLS(p.authority.Issue(t, securetest.Leaf{Names: []string{"server"}, IPs: []string{"127.0.0.1"}}))
	o := secure.Options{
		Name:        "--some-address",
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil },
		Roots:       p.authority.Pool,
		Logger:      slog.New(slog.NewTextHandler(p.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.listener, p.address = secure.Listen(inner, o), inner.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { greet(c) })
		}
	})
	t.Cleanup(func() {
		_ = p.listener.Close()
		all.Wait()
	})
	return p
}

// greet writes who the client is, and closes when the client closes.
func greet(c net.Conn) {
	defer c.Close()
	name := "nobody"
	if secured, ok := c.(*tls.Conn); !ok {
		name = "plain"
	} else if state := secured.ConnectionState(); secure.Peer(&state) != nil {
		name = secure.Peer(&state).URIs[0].String()
	}
	_, _ = fmt.Fprintln(c, name)
	_, _ = io.Copy(io.Discard, c)
}

// greeting connects with a certificate, nil for none, and returns the server's greeting.
func (p *port) greeting(client *secrettest.Pair, change func(*tls.Config)) (string, error) {
	config := &tls.Config{RootCAs: p.authority.Pool(), ServerName: "server"}
	if client != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return securetest.TLS(*client), nil }
	}
	if change != nil {
		change(config)
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", p.address, config)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

func (p *port) awaitLog(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the log says "+want, func() bool { return strings.Contains(p.log.String(), want) }, p.log.String)
}

func eventually(t *testing.T, what string, condition func() bool, is func() string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s\n%s", what, is())
		}
	}
}

const web = "spiffe://cluster.local/ns/shop/sa/web"

// TestWhoComesIn: clients get in with a certificate that verifies, and without any.
func TestWhoComesIn(t *testing.T) {
	t.Parallel()
	p := newPort(t, nil)
	own := p.authority.Issue(t, securetest.Leaf{Identity: web})
	if got, err := p.greeting(&own, nil); err != nil || got != web {
		t.Errorf("with a certificate: %q, %v", got, err)
	}
	if got, err := p.greeting(nil, nil); err != nil || got != "nobody" {
		t.Errorf("without one: %q, %v", got, err)
	}
	if log := p.log.String(); log != "" {
		t.Errorf("it was logged:\n%s", log)
	}
}

// TestClientCertificatesThatDoNotVerify: such a certificate ends the handshake, and the log
// has the reason.
func TestClientCertificatesThatDoNotVerify(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		leaf    securetest.Leaf
		foreign bool
		logged  string
	}{
		"expired":       {leaf: securetest.Leaf{From: now.Add(-2 * time.Hour), Until: now.Add(-10 * time.Minute)}, logged: "expired at "},
		"not yet valid": {leaf: securetest.Leaf{From: now.Add(10 * time.Minute)}, logged: "a clock is off by "},
		"foreign root":  {foreign: true, logged: "is of no authority that this server trusts"},
		"wrong usage":   {leaf: securetest.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, logged: "lacks clientAuth"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPort(t, nil)
			by := p.authority
			if c.foreign {
				by = securetest.New(t, "root") // another root with the same name
			}
			c.leaf.Identity = web
			own := by.Issue(t, c.leaf)
			if got, err := p.greeting(&own, nil); err == nil {
				t.Errorf("it is greeted: %q", got)
			}
			p.awaitLog(t, c.logged)
			if log := p.log.String(); !strings.Contains(log, web) || !strings.Contains(log, "--some-address") || strings.Count(log, "\n") != 1 {
				t.Errorf("it is logged as\n%s", log)
			}
		})
	}
}

// TestUnverifiedProtocol: only a client that offers this protocol gets in with an expired
// certificate. It has no identity then, and must have the key.
func TestUnverifiedProtocol(t *testing.T) {
	t.Parallel()
	const renewal = "renewal/1"
	p := newPort(t, func(o *secure.Options) { o.Protocols, o.Unverified = []string{"h2"}, renewal })
	now := time.Now()
	expired := p.authority.Issue(t, securetest.Leaf{Identity: web, From: now.Add(-2 * time.Hour), Until: now.Add(-10 * time.Minute)})
	valid := p.authority.Issue(t, securetest.Leaf{Identity: web})
	otherKey := expired
	otherKey.Key, otherKey.Private = valid.Key, valid.Private
	for name, c := range map[string]struct {
		own      *secrettest.Pair
		protocol []string
		version  uint16
		want     string // empty for a refusal
	}{
		"expired":                       {&expired, []string{renewal, "http/1.1"}, tls.VersionTLS13, "nobody"},
		"expired, TLS 1.2":              {&expired, []string{renewal, "http/1.1"}, tls.VersionTLS12, "nobody"},
		"valid":                         {&valid, []string{renewal, "http/1.1"}, tls.VersionTLS13, "nobody"},
		"without a certificate":         {nil, []string{renewal, "http/1.1"}, tls.VersionTLS13, ""},
		"without the key":               {&otherKey, []string{renewal, "http/1.1"}, tls.VersionTLS13, ""},
		"without the key, TLS 1.2":      {&otherKey, []string{renewal, "http/1.1"}, tls.VersionTLS12, ""},
		"expired, with other protocols": {&expired, []string{"h2", "http/1.1"}, tls.VersionTLS13, ""},
		"expired, for more than HTTP/1": {&expired, []string{renewal, "h2"}, tls.VersionTLS13, ""},
		"expired, with none":            {&expired, nil, tls.VersionTLS13, ""},
		"valid, with another protocol":  {&valid, []string{"h2"}, tls.VersionTLS13, web},
	} {
		got, err := p.greeting(c.own, func(config *tls.Config) {
			config.NextProtos, config.MinVersion, config.MaxVersion = c.protocol, c.version, c.version
			if c.own == &otherKey {
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return &tls.Certificate{Certificate: [][]byte{otherKey.Parsed.Raw}, PrivateKey: otherKey.Private}, nil
				}
			}
		})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	off := newPort(t, func(o *secure.Options) { o.Protocols = []string{"h2"} })
	own := off.authority.Issue(t, securetest.Leaf{Identity: web})
	if got, err := off.greeting(&own, func(config *tls.Config) { config.NextProtos = []string{renewal, "h2"} }); err != nil || got != web {
		t.Errorf("a port without it: %q, %v", got, err)
	}
}

// TestRootsAreThoseOfNow: a removed root verifies no later connection, not even one that tries
// to resume a session.
func TestRootsAreThoseOfNow(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var roots *x509.CertPool
	p := newPort(t, func(o *secure.Options) {
		o.Roots = func() *x509.CertPool {
			mu.Lock()
			defer mu.Unlock()
			return roots
		}
	})
	trust := func(pool *x509.CertPool) {
		mu.Lock()
		defer mu.Unlock()
		roots = pool
	}
	certificate := p.authority.Issue(t, securetest.Leaf{Identity: web})
	sessions := tls.NewLRUClientSessionCache(1)
	resumable := func(c *tls.Config) { c.ClientSessionCache = sessions }
	if got, err := p.greeting(&certificate, resumable); err != nil || got != "nobody" {
		t.Errorf("without roots: %q, %v", got, err)
	}
	trust(p.authority.Pool())
	if got, err := p.greeting(&certificate, resumable); err != nil || got != web {
		t.Errorf("with the root: %q, %v", got, err)
	}
	trust(securetest.New(t, "other").Pool())
	if got, err := p.greeting(&certificate, resumable); err == nil {
		t.Errorf("with another root: %q", got)
	}
}

// TestOldVersions: old versions of TLS are refused.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	p := newPort(t, nil)
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		_, err := p.greeting(nil, func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version })
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

// TestRenegotiation: renegotiation, which a TLS 1.2 client may request at any time, is
// refused.
func TestRenegotiation(t *testing.T) {
	t.Parallel()
	p := newPort(t, nil)
	c, err := tls.Dial("tcp", p.address, &tls.Config{RootCAs: p.authority.Pool(), ServerName: "server", MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	// This is a handshake record within the connection, unencrypted. It does not decrypt, and
	// the server accepts no second handshake anyway.
	if _, err := c.NetConn().Write([]byte{0x16, 3, 3, 0, 4, 1, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err == nil {
		t.Error("the connection ended without an alert")
	}
}

// TestPlainClients: clients without TLS learn what the port serves, in their own protocol.
func TestPlainClients(t *testing.T) {
	t.Parallel()
	p := newPort(t, func(o *secure.Options) { o.Farewell = secure.GRPCFarewell("use https") })
	response, err := http.Get("http://" + p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusBadRequest || string(body) != "use https\n" {
		t.Errorf("HTTP/1: %s %q %v", response.Status, body, err)
	}
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "use https") {
		t.Errorf("HTTP/2 without a call: %q %v", answer, err)
	}
	p.awaitLog(t, "speaks without TLS")

	conn, err := grpc.NewClient(p.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Invoke(t.Context(), "/any.Service/Method", &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "use https" {
		t.Errorf("gRPC: %v", err)
	}
}

// TestPlainWhereAllowed: where Plain allows it, one port serves clients with and without TLS.
func TestPlainWhereAllowed(t *testing.T) {
	t.Parallel()
	p := newPort(t, func(o *secure.Options) { o.Plain = func(net.Conn) bool { return true } })
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "plain\n" {
		t.Errorf("without TLS: %q, %v", line, err)
	}
	if got, err := p.greeting(nil, nil); err != nil || got != "nobody" {
		t.Errorf("with TLS: %q, %v", got, err)
	}
}

// TestHalfOpenHandshakes: stalling clients are bounded, the oldest of them go, and honest
// clients get in.
func TestHalfOpenHandshakes(t *testing.T) {
	t.Parallel()
	const limit, stalling = 8, 100
	p := newPort(t, func(o *secure.Options) { o.HalfOpen = limit })
	var conns []net.Conn
	for i := range stalling {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			_, _ = c.Write([]byte{recordOfHandshake, 3, 1}) // the rest never comes
		}
		conns = append(conns, c)
	}
	if got, err := p.greeting(nil, nil); err != nil || got != "nobody" {
		t.Fatalf("who goes on is told %q, %v", got, err)
	}
	open := func() (n int) {
		for _, c := range conns {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			var timeout net.Error
			if _, err := c.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
				n++
			}
		}
		return n
	}
	eventually(t, "the others are closed", func() bool { return open() <= limit }, p.log.String)
	p.awaitLog(t, "takes too long, as too many do")
}

const recordOfHandshake = 0x16

// TestCloseEndsHandshakes: Close ends the handshakes under way without waiting for their
// timeout.
func TestCloseEndsHandshakes(t *testing.T) {
	t.Parallel()
	p := newPort(t, nil)
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{recordOfHandshake, 3, 1}); err != nil {
		t.Fatal(err)
	}
	if err := p.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	if log := p.log.String(); log != "" {
		t.Errorf("it was logged:\n%s", log)
	}
}

// TestClientsOfTLSAtAPlainPort: TLS clients at a port without TLS are logged.
func TestClientsOfTLSAtAPlainPort(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Log{}
	l := secure.Plain(inner, "--plain-address", slog.New(slog.NewTextHandler(log, nil)))
	defer l.Close()
	for _, begin := range []string{"PRI * HTTP/2.0", string([]byte{recordOfHandshake, 3, 1})} {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := io.WriteString(client, begin); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := make([]byte, len(begin))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != begin {
			t.Errorf("the server reads %q, %v", got, err)
		}
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "port=--plain-address") || !strings.Contains(log.String(), "speaks TLS") {
		t.Errorf("it is logged as %q", log)
	}
}
