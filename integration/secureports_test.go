package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// secureServer is a server whose ports use TLS, with certificates in files.
type secureServer struct {
	*server
	authority *securetest.Authority
	files     securetest.Files // of the server
	secureXDS string           // host:port
}

var announcedSecure = regexp.MustCompile(`msg=ready .*secure-xds=(\S+)`)

// startSecureServer runs a server that serves xDS over TLS.
func startSecureServer(t testing.TB, o serverOptions) *secureServer {
	t.Helper()
	s := &secureServer{authority: securetest.New(t, "root of the mesh")}
	s.files = s.authority.Write(t, t.TempDir(), s.issueServer(t))
	o.args = append(o.args, "--tls-cert", s.files.Cert, "--tls-key", s.files.Key, "--client-ca", s.files.CA, "--secure-xds-address", "127.0.0.1:0")
	s.server = startServer(t, o)
	s.secureXDS = announcedSecure.FindStringSubmatch(s.process.output())[1]
	return s
}

// issueServer issues a certificate for the server.
func (s *secureServer) issueServer(t testing.TB) secrettest.Pair {
	return s.authority.Issue(t, securetest.Leaf{Names: []string{"portolan.test", "localhost"}, IPs: []string{"127.0.0.1"}})
}

// TestAPIWithTLS: the command line and other clients use HTTPS, by names in the certificate.
// Clients that use the wrong protocol get a clear error.
func TestAPIWithTLS(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{})
	_, port, err := net.SplitHostPort(s.api)
	if err != nil {
		t.Fatal(err)
	}
	over := func(address string, args ...string) outcome {
		return command(t, "", append(args, "--server", address)...)
	}
	https := "https://localhost:" + port
	if o := over(https, "get", "serviceentries", "-A", "--ca", s.files.CA); o.code != 0 {
		t.Errorf("over https: %+v", o)
	}
	if o := over("http://"+s.api, "get", "serviceentries", "-A"); o.code != 0 {
		t.Errorf("over http on this machine: %+v", o)
	}
	if o := over(https, "get", "serviceentries", "-A"); o.code == 0 || !strings.Contains(o.stderr, "of no authority that is trusted here: name that of the mesh with --ca") {
		t.Errorf("without the authority: %+v", o)
	}
	foreign := securetest.New(t, "another")
	stranger := foreign.Write(t, t.TempDir(), foreign.Issue(t, securetest.Leaf{Identity: webIdentity}))
	if o := over(https, "ca", "root", "--ca", stranger.CA); o.code == 0 || !strings.Contains(o.stderr, stranger.CA+" has those with sha256 ") || !strings.Contains(o.stderr, "the certificate is that of ") {
		t.Errorf("with another authority: %+v", o)
	}
	if o := over(https, "get", "serviceentries", "-A", "--ca", s.files.CA, "--cert", stranger.Cert, "--key", stranger.Key); o.code == 0 || !strings.Contains(o.stderr, "its log says which") {
		t.Errorf("with a foreign certificate: %+v", o)
	}
	if o := over("http://localhost:"+port, "get", "serviceentries", "--cert", stranger.Cert, "--key", stranger.Key); o.code == 0 || !strings.Contains(o.stderr, "https") {
		t.Errorf("with a certificate over http: %+v", o)
	}
	eventually(t, "the log says why", func() error {
		if !strings.Contains(s.process.output(), "is of no authority that this server trusts") {
			return errors.New("it does not")
		}
		return nil
	})
	// Names.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.authority.Pool()}, ForceAttemptHTTP2: true}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.api)
	}
	defer transport.CloseIdleConnections()
	get := func(host, name string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+name+"/apis", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, response.Proto + " " + string(body)
	}
	if code, body := get("portolan.test", "portolan.test"); code != http.StatusOK || !strings.HasPrefix(body, "HTTP/2.0") {
		t.Errorf("by the name in the certificate: %d %s", code, body)
	}
	if code, body := get("rebound.example", "portolan.test"); code != http.StatusForbidden || !strings.Contains(body, "--api-name") {
		t.Errorf("by another name: %d %s", code, body)
	}
	// New connections get a renewed certificate, and open ones continue.
	renewed := s.issueServer(t)
	s.authority.Write(t, s.files.Dir, renewed)
	eventually(t, "the renewed certificate is shown", func() error {
		c, err := tls.Dial("tcp", s.api, &tls.Config{RootCAs: s.authority.Pool(), ServerName: "portolan.test"})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if !c.ConnectionState().PeerCertificates[0].Equal(renewed.Parsed) {
			return errors.New("it is the one before it")
		}
		return nil
	})
}

// TestAPIBeyondLoopback: other addresses of this machine are served only over TLS, and give
// nothing to unknown clients.
func TestAPIBeyondLoopback(t *testing.T) {
	t.Parallel()
	address := otherAddress(t)
	authority := securetest.New(t, "root")
	files := authority.Write(t, t.TempDir(), authority.Issue(t, securetest.Leaf{Names: []string{"portolan.test"}}))
	s := &server{t: t, o: serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--tls-cert", files.Cert, "--tls-key", files.Key}}, api: "0.0.0.0:0", xds: "127.0.0.1:0", client: clientOf(t)}
	s.launch()
	line := regexp.MustCompile(`msg=ready .*api=https://\S+:(\d+) `)
	var port string
	eventually(t, "the server is ready", func() error {
		found := line.FindStringSubmatch(s.process.output())
		if found == nil {
			return errors.New("it has not said so")
		}
		port = found[1]
		return nil
	})
	o := command(t, "", "get", "serviceentries", "-A", "--server", "http://"+net.JoinHostPort(address, port))
	if o.code == 0 || !strings.Contains(o.stderr, "over TLS alone: use https://") {
		t.Errorf("over http: %+v", o)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "portolan.test"}}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]string{
		"/apis":           "401 ",
		"/metrics":        "401 ",
		"/readyz?verbose": "200 ok\n",
		"/healthz":        "200 ok\n",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+net.JoinHostPort(address, port)+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if got := fmt.Sprint(response.StatusCode, " ", string(body)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// otherAddress returns an address of this machine that is not loopback.
func otherAddress(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Skip("SKIPPED, AND NOTHING WAS TESTED: this machine has no address but loopback")
	return ""
}

const webIdentity = "spiffe://cluster.local/ns/shop/sa/web"

// TestPlaintextXDSBeyondLoopback needs its flag, and is logged.
func TestPlaintextXDSBeyondLoopback(t *testing.T) {
	t.Parallel()
	s := &server{t: t, o: serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--insecure-xds-anywhere"}}, api: "127.0.0.1:0", xds: "0.0.0.0:0", client: clientOf(t)}
	s.start()
	if log := s.process.output(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "xDS is served without TLS to other machines") {
		t.Errorf("it is not logged:\n%s", log)
	}
	body, err := s.get("/readyz?verbose", nil)
	if err != nil || !strings.Contains(string(body), "[~] plaintext xds: xDS is served without TLS") {
		t.Errorf("/readyz?verbose: %s %v", body, err)
	}
	if body, err := s.get("/readyz", nil); err != nil || string(body) != "ok\n" {
		t.Errorf("/readyz: %q %v", body, err)
	}
	// A TLS client gets an error, and its connection is logged.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	_, port, _ := net.SplitHostPort(s.xds)
	if _, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port); err == nil {
		t.Error("a client of TLS comes in")
	}
	eventually(t, "it is logged", func() error {
		if !strings.Contains(s.process.output(), "the client speaks TLS, and this port serves without it") {
			return errors.New("it is not")
		}
		return nil
	})
}
