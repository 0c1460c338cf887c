package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	istio "istio.io/api/security/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// caller calls the TLS ports of a server from an address of this machine.
type caller struct {
	t     *testing.T
	https *http.Client
	api   string
	conn  *grpc.ClientConn
}

// callerFrom returns a caller with an address of loopback.
func (s *server) callerFrom(t *testing.T, address string) *caller {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(s.must("", "ca", "root"))) {
		t.Fatal("the server has no roots")
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	config := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	transport := &http.Transport{TLSClientConfig: config, DialContext: dialer.DialContext, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	conn, err := grpc.NewClient(announcedSecure.FindStringSubmatch(s.process.output())[1], grpc.WithTransportCredentials(credentials.NewTLS(config.Clone())),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &caller{t, &http.Client{Transport: transport, Timeout: patience}, "https://" + s.api, conn}
}

// send sends a request with some headers, and returns the response.
func (c *caller) send(method, path, body string, headers map[string]string) (code int, said string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.api+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	r.Host = headers["Host"]
	response, err := c.https.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var message struct{ Message string }
	if json.Unmarshal(text, &message) == nil && message.Message != "" {
		return response.StatusCode, message.Message
	}
	return response.StatusCode, string(text)
}

// get reads objects from the API.
func (c *caller) get(token string) (code int, said string) {
	c.t.Helper()
	return c.send(http.MethodGet, "/apis/networking.istio.io/v1/namespaces/shop/serviceentries", "", map[string]string{"Authorization": "Bearer " + token})
}

// certificate requests a certificate from the API.
func (c *caller) certificate(token, csr string) (code int, said string) {
	c.t.Helper()
	body, err := json.Marshal(certificate.Request{CSR: csr})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.send(http.MethodPost, certificate.Path, string(body), map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json"})
}

// agent requests a certificate as Istio's agents do.
func (c *caller) agent(token, csr string) (codes.Code, string) {
	_, err := istio.NewIstioCertificateServiceClient(c.conn).CreateCertificate(bearing(c.t, token), &istio.IstioCertificateRequest{Csr: csr})
	return status.Code(err), status.Convert(err).Message()
}

// xds requests the clusters of the sidecar web.shop.
func (c *caller) xds(token string) (codes.Code, string) {
	ctx, cancel := context.WithCancel(bearing(c.t, token))
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discoveryv3.DiscoveryRequest{Node: xdstest.NewNode("sidecar", "10.0.0.1", "web", "shop", nil), TypeUrl: resource.ClusterType}) // Recv has the error
		_, err = stream.Recv()
	}
	return status.Code(err), status.Convert(err).Message()
}

func bearing(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// issuerOf is the TokenIssuer of an issuer. Its users may read, and its subject web is
// web.shop.
func issuerOf(name string, issuer *jwkstest.Issuer) string {
	return tokenIssuer(name, issuer, forPortolan, "users: {}", subjectIs("web", "shop")) + fill(`---
apiVersion: portolan.io/v1
kind: RoleBinding
metadata: {name: $name, namespace: istio-system}
spec:
  role: viewer
  subjects: [{kind: User, name: "$name:anna"}]
`, "$name", name)
}

// tokenOf returns a token signed by one issuer that claims to be of another; they may be the
// same.
func tokenOf(t *testing.T, by, of *jwkstest.Issuer, subject string) string {
	t.Helper()
	return by.Sign(t, map[string]any{"iss": of.URL, "aud": "portolan", "sub": subject, "exp": time.Now().Add(time.Hour).Unix()})
}

// startOpen starts a server with an authority of its own, an administrator with a token, and an
// issuer whose keys it has.
func startOpen(t *testing.T) (s *server, admin string, issuer *jwkstest.Issuer) {
	t.Helper()
	s, issuer = startServer(t, serverOptions{args: []string{"--secure-xds-address", "127.0.0.1:0", "--anonymous-loopback"}}), jwkstest.New(t)
	s.apply(issuerOf("ci", issuer))
	admin = strings.TrimSpace(s.must("", "user", "create", "alice", "--role", "admin"))
	anna := tokenOf(t, issuer, issuer, "anna")
	good := s.callerFrom(t, "127.0.0.1")
	eventually(t, "the server knows the issuer", func() error {
		if code, said := good.get(anna); code != http.StatusOK {
			return errors.New(said)
		}
		return nil
	})
	return s, admin, issuer
}

// TestGuesses: on each port, guesses of credentials are all refused in the same words. Only
// clients of the guesser's address have to wait for it, and with credentials of users nobody
// does.
func TestGuesses(t *testing.T) {
	t.Parallel()
	s, admin, issuer := startOpen(t)
	good := s.callerFrom(t, "127.0.0.1")
	forger, request := jwkstest.New(t), csr(t, secrettest.New(t, time.Hour, "web").Private, &x509.CertificateRequest{})

	// Users: nobody is locked out, not even at the guesser's address.
	guesser := s.callerFrom(t, "127.0.0.2")
	forged := tokenOf(t, forger, issuer, "anna")
	said := map[string]bool{}
	for i := range 500 {
		for _, guess := range []string{fmt.Sprintf("put_%052d", i), fmt.Sprintf("%s%03d", forged, i)} {
			code, text := guesser.get(guess)
			if code != http.StatusUnauthorized {
				t.Fatalf("%s: %d %s", guess, code, text)
			}
			said[text] = true
		}
	}
	if len(said) != 1 {
		t.Errorf("guessers are told apart: %v", said)
	}
	for text := range said {
		if !strings.HasPrefix(text, "the token is not valid: it is unknown, expired or revoked, or its user is disabled") {
			t.Error(text)
		}
	}
	for _, token := range []string{admin, tokenOf(t, issuer, issuer, "anna")} {
		if code, text := guesser.get(token); code != http.StatusOK {
			t.Errorf("a user at the address of a guesser: %d %s", code, text)
		}
	}
	eventually(t, "the audit has the guesses", func() error {
		if text := s.must("", "audit", "--refused", "-o", "json"); !strings.Contains(text, "127.0.0.2") {
			return errors.New(text)
		}
		return nil
	})
	if lines := strings.Count(s.must("", "audit", "--refused"), "\n"); lines > 40 {
		t.Errorf("a thousand guesses are %d lines of the audit", lines)
	}

	// Machines: a guesser waits, a client with a good credential does not.
	join := func() string {
		return strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	}
	const wait = "too many credentials from this address proved nothing: try again in "
	for name, c := range map[string]struct {
		from               string
		ask                func(c *caller, token string) (any, string)
		good               func() string
		ok, wrong, limited any
	}{
		"certificates": {"127.0.0.3", func(c *caller, token string) (any, string) { return asAny(c.certificate(token, request)) }, join,
			http.StatusCreated, http.StatusUnauthorized, http.StatusTooManyRequests},
		"IstioCertificateService": {"127.0.0.4", func(c *caller, token string) (any, string) { return asAny(c.agent(token, request)) }, join,
			codes.OK, codes.Unauthenticated, codes.ResourceExhausted},
		"xDS": {"127.0.0.5", func(c *caller, token string) (any, string) { return asAny(c.xds(token)) }, func() string { return tokenOf(t, issuer, issuer, "web") },
			codes.OK, codes.Unauthenticated, codes.ResourceExhausted},
	} {
		guesser := s.callerFrom(t, c.from)
		almost, _, _ := strings.Cut(join(), "_roots-")
		guesses := []string{almost[:len(almost)-8] + "aaaaaaaa", "pjt_" + strings.Repeat("A", 52), tokenOf(t, forger, issuer, "web"), "nonsense"}
		wrong := 0
		eventually(t, name+": a guesser waits", func() error {
			code, text := c.ask(guesser, guesses[wrong%len(guesses)])
			switch {
			case code == c.limited && strings.Contains(text, wait):
				return nil
			case code == c.wrong && !strings.Contains(text, wait):
				wrong++
			default:
				t.Errorf("%s: %v %s", name, code, text)
			}
			return fmt.Errorf("%v %s", code, text)
		})
		if wrong < 20 {
			t.Errorf("%s: a guesser waits after %d guesses", name, wrong)
		}
		for whence, from := range map[string]*caller{"elsewhere": good, "the address of a guesser": guesser} {
			if code, text := c.ask(from, c.good()); code != c.ok {
				t.Errorf("%s: who has a good credential and comes from %s: %v %s", name, whence, code, text)
			}
		}
	}
}

// asAny drops the type of an answer's code.
func asAny[C any](code C, said string) (any, string) { return code, said }

// TestBrowsersOverTLS: requests that a page of another site can make a browser send are
// refused, with and without a credential, and write nothing.
func TestBrowsersOverTLS(t *testing.T) {
	t.Parallel()
	s, admin, _ := startOpen(t)
	c := s.callerFrom(t, "127.0.0.1")
	s.apply(plainEntry("stays"))
	const all = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	document := `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"attack","namespace":"shop"},"spec":{"hosts":["attack.example"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"DNS"}}`
	before, err := s.get(all+"/stays", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, attack := range map[string]struct {
		headers map[string]string
		code    int
		said    string
	}{
		"rebound":           {map[string]string{"Host": "attack.example"}, 403, `host "attack.example" is not a name of this server: use its address, a name in its certificate, or one of serve --api-name`},
		"rebound port":      {map[string]string{"Host": "attack.example:15080"}, 403, `host "attack.example:15080" is not a name of this server`},
		"another address":   {map[string]string{"Host": "192.0.2.1"}, 403, `host "192.0.2.1" is not a name of this server`},
		"cross-site":        {map[string]string{"Origin": "https://attack.example", "Sec-Fetch-Site": "cross-site"}, 403, "cross-origin request detected from Sec-Fetch-Site header"},
		"same site":         {map[string]string{"Origin": "https://other.localhost", "Sec-Fetch-Site": "same-site"}, 403, "cross-origin request detected from Sec-Fetch-Site header"},
		"old browser":       {map[string]string{"Origin": "https://attack.example"}, 403, "cross-origin request detected, and/or browser is out of date"},
		"a sandboxed frame": {map[string]string{"Origin": "null"}, 403, "cross-origin request detected"},
		"text/plain":        {map[string]string{"Content-Type": "text/plain"}, 415, `Content-Type "text/plain" is not accepted: send application/json or application/yaml`},
		"form":              {map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415, `Content-Type "application/x-www-form-urlencoded" is not accepted: send application/json or application/yaml`},
		"multipart":         {map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, 415, `Content-Type "multipart/form-data; boundary=x" is not accepted: send application/json or application/yaml`},
	} {
		for _, authorization := range []string{"", "Bearer " + admin, "Bearer put_" + strings.Repeat("A", 52), "Basic YWxpY2U6eA=="} {
			for method, path := range map[string]string{http.MethodPost: all, http.MethodPut: all + "/attack", http.MethodDelete: all + "/stays"} {
				if method == http.MethodDelete && attack.code == 415 {
					continue // has no body
				}
				headers := map[string]string{"Content-Type": "application/json"}
				for name, value := range attack.headers {
					headers[name] = value
				}
				code, said := attack.code, attack.said
				body := document
				if method == http.MethodDelete {
					body = ""
				}
				if authorization != "" {
					headers["Authorization"] = authorization
					if attack.code == 415 && authorization != "Bearer "+admin {
						code, said = 401, ""
					}
				}
				if got, text := c.send(method, path, body, headers); got != code || !strings.Contains(text, said) {
					t.Errorf("%s, %s, %.12s: %d %s", name, method, authorization, got, text)
				}
			}
		}
	}
	if after, err := s.get(all+"/stays", nil); err != nil || specOf(t, after) != specOf(t, before) {
		t.Errorf("what was there is %s, %v", after, err)
	}
	if text, err := s.get(all+"/attack", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("it was written: %s, %v", text, err)
	}
	if code, said := c.send(http.MethodPost, all, document, map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + admin, "Origin": c.api, "Sec-Fetch-Site": "same-origin"}); code != http.StatusCreated {
		t.Errorf("a page of the server itself: %d %s", code, said)
	}
}

// TestHugeRequestsForCertificates: huge requests, and tokens of issuers whose keys are huge or
// slow, are refused. Clients that have nothing to do with them are served.
func TestHugeRequestsForCertificates(t *testing.T) {
	t.Parallel()
	s, admin, issuer := startOpen(t)
	c := s.callerFrom(t, "127.0.0.1")
	token := tokenOf(t, issuer, issuer, "web")
	request := csr(t, secrettest.New(t, time.Hour, "web").Private, &x509.CertificateRequest{})
	huge := request + strings.Repeat("A", 1<<20)
	if code, said := c.certificate(token, huge); code != http.StatusRequestEntityTooLarge || said != "the request body is larger than 64 KiB: send the objects in several requests" {
		t.Errorf("a huge request to the config API: %d %s", code, said)
	}
	if code, said := c.agent(token, huge); code != codes.InvalidArgument || said != fmt.Sprintf("the certificate request has %d bytes, and may have 65536", len(huge)) {
		t.Errorf("a huge request by gRPC: %v %s", code, said)
	}

	big, slow := jwkstest.New(t), jwkstest.New(t)
	big.Answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20)) })
	asked, release := make(chan struct{}, 100), make(chan struct{})
	defer close(release)
	slow.Answer(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	})
	s.apply(issuerOf("big", big), issuerOf("slow", slow))
	eventually(t, "keys that are huge are not taken", func() error {
		_, said := c.get(tokenOf(t, big, big, "anna"))
		if text, err := s.get("/readyz?verbose", nil); err != nil || !strings.Contains(string(text), "tokenissuer/big: its keys are as they were last fetched, or not known") {
			return fmt.Errorf("%w: %s: %s", err, said, text)
		}
		return nil
	})
	if code, said := c.certificate(tokenOf(t, big, big, "web"), request); code != http.StatusServiceUnavailable {
		t.Errorf("keys that are huge: %d %s", code, said)
	}
	if code, said := c.agent(tokenOf(t, big, big, "web"), request); code != codes.Unavailable {
		t.Errorf("keys that are huge, by gRPC: %v %s", code, said)
	}
	if code, said := c.xds(tokenOf(t, big, big, "web")); code != codes.Unavailable {
		t.Errorf("keys that are huge, by xDS: %v %s", code, said)
	}
	if code, said := c.get(tokenOf(t, big, big, "anna")); code != http.StatusUnauthorized {
		t.Errorf("keys that are huge, of a user: %d %s", code, said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := *c
	ended := make(chan error, 1)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.api+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+tokenOf(t, slow, slow, "anna"))
	go func() {
		response, err := waiting.https.Do(r)
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}()
	select {
	case <-asked:
	case err := <-ended:
		t.Fatalf("the keys were not asked for: %v", err)
	}
	for _, token := range []string{admin, tokenOf(t, issuer, issuer, "anna")} {
		if code, said := c.get(token); code != http.StatusOK {
			t.Errorf("beside keys that are slow: %d %s", code, said)
		}
	}
	if code, said := c.agent(token, request); code != codes.OK {
		t.Errorf("beside keys that are slow: %v %s", code, said)
	}
	cancel()
	<-ended
}

// specOf returns the uid and the spec of an object. Its status follows the servers.
func specOf(t testing.TB, object []byte) string {
	t.Helper()
	var of struct {
		Metadata struct{ UID, Generation json.RawMessage }
		Spec     json.RawMessage
	}
	if err := json.Unmarshal(object, &of); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s %s", of.Metadata.UID, of.Metadata.Generation, of.Spec)
}
