package integration

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// bypassGateway is a gateway at the client's address that forwards all hosts to the workload.
const bypassGateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: shop}
spec: {hosts: ["*"], gateways: [edge], http: [{route: [{destination: {host: app.shop.test, port: {number: 80}}}]}]}
`

// entrance is where a client comes in.
type entrance string

// The entrances: the port of the workload in plaintext, over mutual TLS as "client", over mutual TLS
// as "other", and the gateway, in plaintext.
const (
	plain   entrance = "plaintext"
	mutual  entrance = "mutual TLS"
	other   entrance = "mutual TLS of another"
	gateway entrance = "gateway"
)

// bypassScene is a workload with a sidecar and a gateway before it, in a mesh that takes plaintext,
// too.
type bypassScene struct {
	*peerMesh
	certificates map[entrance]*tls.Certificate
	port         int // of the workload
}

func newBypassScene(t *testing.T, mesh string) *bypassScene {
	s := &bypassScene{peerMesh: newPeerMesh(t, serverOptions{meshConfig: mesh}), port: 8080}
	s.apply(bypassGateway)
	s.certify(t)
	in := s.sidecarOfApp(protocol.Delta, identified(t, s.of, shopAccounts+"app"))
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", ip: "10.0.0.2", in: s.client, xds: s.xds, certificate: identified(t, s.of, shopAccounts+"edge")})
	in.awaitWarm()
	edge.awaitWarm()
	t.Cleanup(func() {
		s.expectNothingRejected()
		in.expectNothingRejected()
		edge.expectNothingRejected()
	})
	return s
}

// certify issues the certificates of the clients.
func (s *bypassScene) certify(t *testing.T) {
	s.certificates = map[entrance]*tls.Certificate{}
	for at, account := range map[entrance]string{mutual: "client", other: "other"} {
		s.certificates[at] = securetest.TLS(s.of.Issue(t, securetest.Leaf{Identity: shopAccounts + account}))
	}
}

// dial connects to a entrance.
func (s *bypassScene) dial(at entrance, protocols ...string) (net.Conn, error) {
	address := fmt.Sprintf("10.0.0.1:%d", s.port)
	if at == gateway {
		address = "10.0.0.2:8000"
	}
	return s.dialTo(at, address, protocols...)
}

// dialTo connects to an address, as whom an entrance says.
func (s *bypassScene) dialTo(at entrance, address string, protocols ...string) (net.Conn, error) {
	c, err := s.client.dial(s.t.Context(), address, 0)
	if err != nil {
		return nil, err
	}
	if own := s.certificates[at]; own != nil {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: meshName, NextProtos: protocols, Certificates: []tls.Certificate{*own}})
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

// knock is what a client sends: bytes, or the header fields of a request of HTTP/2.
type knock struct {
	raw    string
	fields []string // name, value, ...
}

// get is a request of HTTP/1.1 with headers, which ends the connection.
func get(path string, headers ...string) knock {
	return knock{raw: "GET " + path + " HTTP/1.1\r\nhost: app.shop.test\r\nconnection: close\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")}.tidy()
}

// rawLines are the lines of a request.
func rawLines(of ...string) knock { return knock{raw: strings.Join(of, "\r\n") + "\r\n\r\n"} }

// tidy removes the empty line too many of a request without headers.
func (k knock) tidy() knock {
	k.raw = strings.TrimRight(k.raw, "\r\n") + "\r\n\r\n"
	return k
}

// h2 is a GET of HTTP/2 with more header fields.
func h2(path string, more ...string) knock {
	return fields(append([]string{":method", "GET", ":scheme", "http", ":path", path, ":authority", "app.shop.test"}, more...)...)
}

func fields(of ...string) knock { return knock{fields: of} }

// send returns what becomes of what a client sends, in words with commas between them, one for each
// answer: "http" from the program, "denied" by RBAC, else a status; or "reset" for a stream of
// HTTP/2, and "closed" for a connection without an answer.
func (s *bypassScene) send(at entrance, k knock) (string, error) {
	protocols := meshHTTP
	if k.fields != nil {
		protocols = []string{"istio-h2", "istio", "h2"}
	}
	c, err := s.dial(at, protocols...)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if k.fields != nil {
		return sendHTTP2(c, k.fields)
	}
	if _, err := io.WriteString(c, k.raw); err != nil {
		return "closed", nil
	}
	method, _, _ := strings.Cut(k.raw, " ")
	return readAnswers(c, method)
}

// readAnswers reads answers of HTTP/1 until one of them ends the connection.
func readAnswers(c net.Conn, method string) (string, error) {
	var out []string
	reader := bufio.NewReader(c)
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return strings.Join(out, ","), err
		case err != nil && len(out) == 0:
			return "closed", nil
		case err != nil:
			return strings.Join(out, ","), nil
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return "", err
		}
		out = append(out, outcomeOf(response.StatusCode, string(body)))
		if response.Close || response.StatusCode == http.StatusSwitchingProtocols {
			return strings.Join(out, ","), nil
		}
	}
}

func outcomeOf(status int, body string) string {
	switch {
	case status == http.StatusOK && strings.Contains(body, `"Upstream":"http"`):
		return "http"
	case status == http.StatusForbidden && body == "RBAC: access denied":
		return "denied"
	}
	return fmt.Sprint(status)
}

// sendHTTP2 sends a request of HTTP/2 as it is told.
func sendHTTP2(c net.Conn, of []string) (string, error) {
	var block, out bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(of); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: of[i], Value: of[i+1]}); err != nil {
			return "", err
		}
	}
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, nil)
	err := errors.Join(framer.WriteSettings(), framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
	if err != nil {
		return "", err
	}
	if _, err := out.WriteTo(c); err != nil {
		return "closed", nil
	}
	return answerHTTP2(c)
}

// answerHTTP2 reads the answer to the first stream.
func answerHTTP2(c net.Conn) (string, error) {
	framer, status, body := http2.NewFramer(c, c), 0, ""
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for ended := false; !ended; {
		frame, err := framer.ReadFrame()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return "", err
		case err != nil:
			return "closed", nil
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			_, err = fmt.Sscan(f.PseudoValue("status"), &status)
			ended = f.StreamEnded()
		case *http2.DataFrame:
			body += string(f.Data())
			ended = f.StreamEnded()
		case *http2.RSTStreamFrame:
			if status == 0 {
				return "reset", nil
			}
			ended = true
		case *http2.GoAwayFrame:
			if status == 0 {
				return "closed", nil
			}
		}
		if err != nil {
			return "", err
		}
	}
	return outcomeOf(status, body), nil
}

// attempt is a try to get past a policy.
type attempt struct {
	name string
	knock
	// want is what becomes of it, "denied" if empty.
	want string
	// at are the entrances that it is tried at, all of its group if nil.
	at []entrance
	// why says for one that is let through or differs why that is right, or what mends it.
	why string
}

// bypass is a policy, and attempts to get past it.
type bypass struct {
	name, documents string
	// allowed and refused are ordinary requests: the policy lets one pass, and refuses the other
	// with refusal, "denied" if empty.
	allowed, refused knock
	refusal          string
	entrances        []entrance
	attempts         []attempt
}

// await waits until an ordinary request gets an outcome.
func (s *bypassScene) await(t *testing.T, what string, at entrance, k knock, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: an ordinary request gets %s by %s", what, want, at), func() error {
		got, err := s.send(at, k)
		if err == nil && got != want {
			err = errors.New("it gets " + got)
		}
		return err
	})
}

// try applies a policy, makes the attempts, and takes the policy away.
func (s *bypassScene) try(t *testing.T, b bypass) {
	t.Helper()
	s.awaitSynced(s.apply(b.documents), "app", "edge")
	refusal := b.refusal
	if refusal == "" {
		refusal = "denied"
	}
	for _, at := range b.entrances {
		s.await(t, b.name, at, b.allowed, "http")
		s.await(t, b.name, at, b.refused, refusal)
	}
	var work errgroup.Group
	work.SetLimit(16)
	for _, a := range b.attempts {
		want, entrances := a.want, a.at
		if want == "" {
			want = refusal
		}
		if entrances == nil {
			entrances = b.entrances
		}
		if strings.Contains(want, "http") && a.why == "" {
			t.Errorf("%s: %s: nobody says why it is let through", b.name, a.name)
		}
		for _, at := range entrances {
			work.Go(func() error {
				if got, err := s.send(at, a.knock); err != nil || got != want {
					t.Errorf("%s: %s by %s: %s, %v, want %s", b.name, a.name, at, got, err, want)
				}
				return nil
			})
		}
	}
	_ = work.Wait()
	for _, at := range b.entrances {
		s.await(t, b.name, at, b.allowed, "http")
	}
	s.remove(b.documents)
}

// TestEnvoyBypass: policies hold against requests that are written to get past them. The table says
// of each attempt that is let through why.
func TestEnvoyBypass(t *testing.T) {
	t.Parallel()
	s := newBypassScene(t, "")
	for _, b := range bypasses(t) {
		s.try(t, b)
	}
}
