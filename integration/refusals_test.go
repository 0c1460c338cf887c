package integration

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// mutual returns the TLS settings of a client with a certificate of the server's authority.
func (s *secureServer) mutual(pair secrettest.Pair) *tls.Config {
	return &tls.Config{
		RootCAs: s.authority.Pool(), ServerName: "portolan.test",
		// Sends it even if the server requests certificates of other authorities.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return securetest.TLS(pair), nil },
	}
}

// as returns the TLS settings of a workload.
func (s *secureServer) as(t testing.TB, identity string) *tls.Config {
	t.Helper()
	return s.mutual(s.authority.Issue(t, securetest.Leaf{Identity: identity}))
}

// refusals returns the audit records of refused attempts.
func (s *server) refusals() (list record.List) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.must("", "audit", "--refused", "--limit", "0", "-o", "json")), &list); err != nil {
		s.t.Fatal(err)
	}
	return list
}

// TestRefusedAttemptsAreAudited: for each port, the audit has who was refused, without the
// credential. A flood of guesses is a few records.
func TestRefusedAttemptsAreAudited(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{args: []string{"--log-level", "debug"}})
	s.must("", "user", "create", "root", "--role", "admin")
	token := strings.TrimSpace(s.must("", "user", "create", "anna", "--role", "viewer", "-n", "shop"))
	guess := "put_" + strings.Repeat("guess", 11)
	join := strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	s.must("", "token", "revoke", join)

	if o := s.try(plainEntry("hers"), "apply", "-f", "-", "--token", token); o.code != 77 {
		t.Errorf("beyond a role: %+v", o)
	}
	if o := s.try("", "get", "serviceentries", "-n", "shop", "--token", guess); o.code != 77 {
		t.Errorf("a guess: %+v", o)
	}
	files := s.files
	if o := command(t, "", "certificate", "request", "--out", t.TempDir(), "--server", "https://"+s.api, "--ca", files.CA, "--token", join); o.code == 0 {
		t.Errorf("a revoked join token: %+v", o)
	}
	thief := xdstest.Dial(t, s.secureXDS, xdstest.ClientOptions{Credentials: credentials.NewTLS(s.as(t, webIdentity)), Variant: protocol.Delta, Node: xdstest.NewNode("sidecar", "10.0.0.1", "thief", "bank", nil)})
	thief.Subscribe(xdstest.ClusterType)
	if err := thief.AwaitEnd(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another namespace: %v", err)
	}
	foreign := securetest.New(t, "another")
	if c, err := tls.Dial("tcp", s.secureXDS, s.mutual(foreign.Issue(t, securetest.Leaf{Identity: webIdentity}))); err == nil {
		_, _ = c.Read(make([]byte, 1)) // the alert
		_ = c.Close()
	}

	eventually(t, "all are in the audit", func() error {
		out := s.must("", "audit", "--refused")
		for _, want := range []string{"anna ", "config API: create /apis/portolan.io/v1/batches: ", "the token is not valid", "certificates: ", "no such join token",
			`xDS: node "sidecar~10.0.0.1~thief~bank.svc.cluster.local" says that it is of the namespace "bank"`, "xDS: connect as " + webIdentity, "is of no authority that this server trusts"} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("no %q in\n%s", want, out)
			}
		}
		return nil
	})

	const guesses = 500
	for i := range guesses {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url(fmt.Sprintf("/apis/%d", i)), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", fmt.Sprintf("Bearer put_%050d", i))
		answer, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("guess %d: %s", i, answer.Status)
		}
	}
	eventually(t, "the flood is in the audit", func() error {
		if out := s.must("", "audit", "--refused"); !strings.Contains(out, " times since ") {
			return fmt.Errorf("it is not:\n%s", out)
		}
		return nil
	})
	if n := len(s.refusals().Items); n > 25 {
		t.Errorf("%d records", n)
	}
	all := s.must("", "audit", "--limit", "0", "-o", "json") + s.must("", "audit") + s.process.output()
	for what, secret := range map[string]string{"the user": token[len(token)-30:], "a guess": guess[10:], "the join token": join[len(join)-30:], "the flood": fmt.Sprintf("%030d", 7)} {
		if strings.Contains(all, secret) {
			t.Errorf("the token of %s is in the audit or the log", what)
		}
	}
	if !strings.Contains(s.must("", "audit"), "2 objects created") {
		t.Error("changes are not in the audit any more")
	}
}
