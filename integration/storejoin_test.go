package integration

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// startFounder runs a server whose store others can join.
func startFounder(t testing.TB, m memberAt, args ...string) *server {
	t.Helper()
	return startServer(t, serverOptions{args: append([]string{
		"--store-name", m.name, "--store-peer-url", m.peer, "--store-client-url", m.client, "--secure-xds-address", "127.0.0.1:0",
	}, args...)})
}

// invite creates the join token of a member.
func (s *server) invite(m memberAt, args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(s.must("", append([]string{"store", "member", "invite", m.name, "--peer-url", m.peer, "--client-url", m.client}, args...)...))
}

// TestStoreJoinsByToken: a server joins the store with one command and a token. It gets a
// certificate, the keys and a vote, and can admit the next. Without the token of a member
// nothing gets in.
func TestStoreJoinsByToken(t *testing.T) {
	t.Parallel()
	one := startFounder(t, newMemberAt(t, "cp-1"))
	one.apply(entry("before", 80), tlsSecret("edge", secrettest.New(t, time.Hour, "edge.example")))
	m := newMemberAt(t, "cp-2")
	token := one.invite(m)
	two := joiner(t, one, token)
	two.o.args = append(two.o.args, "--secure-xds-address", "127.0.0.1:0")
	file := two.o.args[3]
	two.start()
	want := map[string]cluster.Status{"cp-1": cluster.Voter, "cp-2": cluster.Voter}
	two.awaitMembers(want)
	two.expectObjects("before")
	if out := two.must("", "secret", "status"); strings.Contains(out, "cannot be opened") {
		t.Errorf("it lacks the sealing keys: %s", out)
	}
	if got, has := two.must("", "ca", "root"), one.must("", "ca", "root"); got != has {
		t.Error("it has another authority")
	}

	// It comes back after a power loss, without the token, and admits the third.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	two.kill()
	two.start()
	two.awaitMembers(want)
	third := newMemberAt(t, "cp-3")
	three := joiner(t, two, two.invite(third))
	three.start()
	want["cp-3"] = cluster.Voter
	three.awaitMembers(want)
	one.kill()
	three.nextWrite("without-the-first")

	// The store refuses certificates of the mesh.
	dir := filepath.Join(t.TempDir(), "web")
	two.must("", "certificate", "request", "--out", dir, "--token", strings.TrimSpace(two.must("", "token", "create", "-n", "shop", "--service-account", "web")))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert-chain.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{m.peer, m.client} {
		c, err := tls.Dial("tcp", strings.TrimPrefix(at, "https://"), &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }})
		if err == nil {
			_, err = io.ReadAll(c) // the server's alert comes after the handshake
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("%s: the certificate of a workload: %v", at, err)
		}
	}
	for where, content := range filesBelow(t, one.o.dataDir, "sealing.key") {
		if secret := strings.Split(token, "_")[3]; len(secret) != 52 || bytes.Contains(content, []byte(secret)) {
			t.Errorf("%s has the token", where)
		}
	}
}

// TestAStrangerInTheStore: a machine that replaces a member by founding a store of its own at
// the same address does not become that member. The others list it as a stranger, with its
// certificate, and their logs stay short.
func TestAStrangerInTheStore(t *testing.T) {
	t.Parallel()
	one := startFounder(t, newMemberAt(t, "cp-1"))
	second := newMemberAt(t, "cp-2")
	two := joiner(t, one, one.invite(second))
	two.start()
	third := joiner(t, one, one.invite(newMemberAt(t, "cp-3")))
	third.start()
	one.awaitMembers(map[string]cluster.Status{"cp-1": cluster.Voter, "cp-2": cluster.Voter, "cp-3": cluster.Voter})
	two.kill()
	startFounder(t, second)
	one.awaitMembers(map[string]cluster.Status{"cp-1": cluster.Voter, "cp-2": cluster.Stranger, "cp-3": cluster.Voter})
	list := one.must("", "store", "member", "list")
	for _, words := range []string{"stranger", "a certificate of 127.0.0.1, signed by another authority", "portolan store member invite"} {
		if !strings.Contains(list, words) {
			t.Errorf("%q is not in %s", words, list)
		}
	}
	one.nextWrite("beside-a-stranger")
	before := strings.Count(one.process.output(), "\n")
	for range 30 { // in this time the members meet the stranger again and again
		one.nextWrite("beside-a-stranger")
	}
	if lines := strings.Count(one.process.output(), "\n") - before; lines > 10 {
		t.Errorf("%d lines during 30 writes:\n%s", lines, one.process.tail())
	}
}

// joiner prepares a server that will join a store through another, with a token.
func joiner(t testing.TB, through *server, token string) *server {
	t.Helper()
	return &server{t: t, api: local(freePort(t)), xds: local(freePort(t)), client: clientOf(t), o: serverOptions{
		dataDir: filepath.Join(t.TempDir(), "data"),
		args:    []string{"--join", "https://" + through.api, "--token-file", write(t, "token", token)},
	}}
}

// TestStoreRefusesStrangers tries ways to join that must fail.
func TestStoreRefusesStrangers(t *testing.T) {
	t.Parallel()
	one := startFounder(t, newMemberAt(t, "cp-1"))
	m := newMemberAt(t, "cp-2")
	refusedWith := func(what, token string, words ...string) {
		t.Helper()
		out := command(t, "", append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data")}, joiner(t, one, token).o.args...)...)
		for _, w := range words {
			if out.code != 65 || !strings.Contains(out.stderr, w) {
				t.Errorf("%s: exit code %d, and not %q: %s", what, out.code, w, out.stderr)
			}
		}
	}
	if out := one.try("", "store", "status"); !strings.Contains(out.stdout, "of the member until ") || !strings.Contains(out.stdout, "of the authority until ") {
		t.Errorf("when the certificates of the store end: %s", out.stdout)
	}
	text, err := one.get("/metrics", nil)
	for _, of := range []string{"member", "authority"} {
		if err != nil || !strings.Contains(string(text), `portolan_store_certificate_expiry_seconds{certificate="`+of+`"}`) {
			t.Errorf("no metric says when that of the %s ends: %v", of, err)
		}
	}
	good, revoked := one.invite(m), one.invite(m)
	one.must("", "token", "revoke", revoked)
	const none = "no such token: it is mistyped, was revoked, or expired long ago: make one with portolan store member invite"
	refusedWith("a revoked token", revoked, none)
	bare, pin, _ := strings.Cut(good, "_roots-")
	refusedWith("a token with the roots of another mesh", bare+"_roots-"+strings.Repeat("a", len(pin)), "the roots of the server are not those that the token names", "nothing was sent to it")
	refusedWith("a token without roots", bare, "certificate is of no authority that is trusted here")
	refusedWith("the token of a workload", strings.TrimSpace(one.must("", "token", "create", "-n", "shop", "--service-account", "web")),
		"a server joins the store by a token of portolan store member invite, and by no other: this is the join token of a machine")
	refusedWith("the token of a user", "put_abc_roots-"+pin, "a server joins the store by a token of portolan store member invite, and by no other: this is the token of a user")
	eventually(t, "the audit has who was refused", func() error {
		out := one.must("", "audit", "--refused", "-o", "json")
		for _, words := range []string{"store: join the store: the credential proves no identity: no such token", "this is the join token of a machine"} {
			if !strings.Contains(out, words) {
				return fmt.Errorf("not %q: %s", words, out)
			}
		}
		if strings.Contains(out, bare) {
			t.Error("the audit has a token")
		}
		return nil
	})

	// A request for more than the token allows does not use the token up.
	key := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := key()
	code, said := one.postJoin(bare, csr(t, first, &x509.CertificateRequest{DNSNames: []string{"cp-1.example"}}))
	expectEqual(t, "a request with names", code, 422)
	if !strings.Contains(said, "a member of the store has those of its token") {
		t.Error(said)
	}
	if code, said = one.postJoin("", csr(t, first, &x509.CertificateRequest{})); code != 401 || !strings.Contains(said, "send a token of portolan store member invite") {
		t.Errorf("no token: %d %s", code, said)
	}
	// Two machines race: one wins, and may repeat its request.
	answers := make(chan int, 2)
	var keys []*ecdsa.PrivateKey
	for range 2 {
		k := key()
		keys = append(keys, k)
		request := csr(t, k, &x509.CertificateRequest{})
		go func() { code, _ := one.postJoin(bare, request); answers <- code }()
	}
	expectEqual(t, "the answers to two machines", <-answers+<-answers, 200+401)
	won := 0
	for _, k := range keys {
		switch code, said := one.postJoin(bare, csr(t, k, &x509.CertificateRequest{})); code {
		case 200:
			won++
			var got maintenance.Admission
			if err := json.Unmarshal([]byte(said), &got); err != nil || got.Name != m.name || got.PeerURL != m.peer || got.SealingKeys == "" {
				t.Errorf("the winner gets %s: %v", got.Name, err)
			}
		default:
			if code != 401 || !strings.Contains(said, "was used by another machine") {
				t.Errorf("the other: %d %s", code, said)
			}
		}
	}
	expectEqual(t, "winners who ask again", won, 1)
	refusedWith("a token that is used", good, "was used by another machine")

	// Only administrators may invite.
	one.must("", "user", "create", "alice", "--role", "admin")
	bob := strings.TrimSpace(one.must("", "user", "create", "bob", "--role", "token-issuer"))
	if out := one.try("", "store", "member", "invite", "cp-3", "--peer-url", "https://127.0.0.1:1", "--token", bob); out.code != 77 || !strings.Contains(out.stderr, "may not") {
		t.Errorf("a token issuer invites: exit code %d: %s", out.code, out.stderr)
	}
	if out := one.try("", "store", "member", "invite", "cp-3", "--peer-url", "http://127.0.0.1:1"); out.code != 65 || !strings.Contains(out.stderr, "use https") {
		t.Errorf("plaintext: exit code %d: %s", out.code, out.stderr)
	}
	// A guesser is throttled, but nobody else.
	eventually(t, "who guesses is throttled", func() error {
		if code, said := one.postJoin("pst_guess", csr(t, first, &x509.CertificateRequest{})); code != 429 {
			return fmt.Errorf("%d %s", code, said)
		}
		return nil
	})
}

// csr returns a certificate request in PEM.
func csr(t testing.TB, key crypto.Signer, of *x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, of, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// postJoin sends a request to join without the command line.
func (s *server) postJoin(token, csr string) (code int, said string) {
	body, err := json.Marshal(maintenance.JoinRequest{CSR: csr})
	if err != nil {
		return 0, err.Error()
	}
	r, err := http.NewRequest(http.MethodPost, s.url(maintenance.JoinPath), bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
