package issue_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	istio "istio.io/api/security/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/authority/authoritytest"
	"github.com/portolan-mesh/portolan/discovery/identity/issue"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = authoritytest.Workload("shop", "web")

// tokens is a Proof of known credentials, which counts its calls.
type tokens struct {
	mu         sync.Mutex
	identities map[string]identity.Identity
	asked      int
}

func (p *tokens) Prove(_ context.Context, credential string, _ netip.Addr) (identity.Identity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	switch credential {
	case "throttled":
		return identity.Identity{}, identity.ErrThrottled
	case "away":
		return identity.Identity{}, identity.ErrUnavailable
	case "foreign":
		return identity.Identity{}, identity.ErrForeign
	}
	if who, ok := p.identities[credential]; ok {
		return who, nil
	}
	return identity.Identity{}, &identity.RefusedError{Err: identity.ErrUnproven, Detail: "the token is of yesterday"}
}

// notes keeps records in memory; while down is set it refuses them.
type notes struct {
	mu   sync.Mutex
	down bool
	got  []string
}

func (n *notes) Note(_ context.Context, _ time.Time, origin storage.Origin, made []config.Key) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return errors.New("the store is away")
	}
	n.got = append(n.got, fmt.Sprintf("%s %v: %s", origin.User, made, origin.Message))
	return nil
}

func (n *notes) set(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// text returns the records, one a line.
func (n *notes) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.got, "\n")
}

type world struct {
	*authoritytest.Mesh
	authority *authority.Authority
	issuer    *issue.Issuer
	tokens    *tokens
	notes     *notes
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{Mesh: authoritytest.Start(t), tokens: &tokens{identities: map[string]identity.Identity{"web-token": web}}, notes: &notes{}}
	w.authority = w.Server(t, func(o *authority.Options) { o.RenewExpired = 150 * time.Minute })
	var err error
	if w.issuer, err = issue.New(issue.Options{Authority: w.authority, Proofs: identity.Proofs{w.tokens}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- journal.New(w.notes, nil, w.issuer.Issued()).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestWhoGetsACertificate: each attack is refused for the expected reason.
func TestWhoGetsACertificate(t *testing.T) {
	t.Parallel()
	w := start(t)
	key := authoritytest.Key(t)
	past := w.Server(t, func(o *authority.Options) { o.Now = func() time.Time { return time.Now().Add(-3 * time.Hour) } })
	_, ended := authoritytest.Issue(t, past, web, time.Hour)
	_, endedMail := authoritytest.Issue(t, past, authoritytest.Workload("shop", "mail"), time.Hour)
	_, longEnded := authoritytest.Issue(t, past, web, 10*time.Minute)
	w.Await(t)
	_, valid := authoritytest.Issue(t, w.authority, web, time.Hour)
	_, mail := authoritytest.Issue(t, w.authority, authoritytest.Workload("shop", "mail"), time.Hour)
	_, foreign := authoritytest.Issue(t, authoritytest.Start(t).Server(t), web, time.Hour)
	w.Put(t, &config.Config{Meta: config.Meta{GroupVersionKind: schema.RevokedIdentity, Namespace: "shop", Name: "mail"}, Spec: &access.RevokedIdentity{ServiceAccount: "mail", Reason: "stolen"}})
	certs := func(c *authority.Certificate) []*x509.Certificate { return []*x509.Certificate{c.Leaf} }
	named, mails := authoritytest.CSR(t, key, web.String()), authoritytest.CSR(t, key, "spiffe://cluster.local/ns/shop/sa/mail")
	good, other := authoritytest.CSR(t, key), authoritytest.CSR(t, key, "spiffe://cluster.local/ns/shop/sa/admin")
	for name, c := range map[string]struct {
		request issue.Request
		reason  issue.Reason
		want    string
	}{
		"a token":            {issue.Request{CSR: good, Credential: "web-token"}, "", ""},
		"a certificate":      {issue.Request{CSR: good, Certificates: certs(valid)}, "", ""},
		"with its name":      {issue.Request{CSR: authoritytest.CSR(t, key, web.String()), Certificates: certs(valid)}, "", ""},
		"nothing":            {issue.Request{CSR: good}, issue.Unproven, "prove who you are"},
		"a wrong token":      {issue.Request{CSR: good, Credential: "guess"}, issue.Unproven, identity.ErrUnproven.Error()},
		"a token of no sort": {issue.Request{CSR: good, Credential: "foreign"}, issue.Unproven, identity.ErrUnproven.Error()},
		"a wrong token beside a good certificate":                        {issue.Request{CSR: good, Credential: "guess", Certificates: certs(valid)}, issue.Unproven, identity.ErrUnproven.Error()},
		"a wrong token beside the certificate of what is asked for":      {issue.Request{CSR: named, Credential: "guess", Certificates: certs(valid)}, "", ""},
		"a good token beside a certificate that has ended":               {issue.Request{CSR: named, Credential: "web-token", Certificates: certs(ended)}, "", ""},
		"a good token beside the certificate of another":                 {issue.Request{CSR: named, Credential: "web-token", Certificates: certs(mail)}, "", ""},
		"a wrong token beside the certificate of a revoked identity":     {issue.Request{CSR: mails, Credential: "guess", Certificates: certs(mail)}, issue.Unproven, identity.ErrUnproven.Error()},
		"a wrong token beside a certificate of another mesh":             {issue.Request{CSR: named, Credential: "guess", Certificates: certs(foreign)}, issue.Unproven, identity.ErrUnproven.Error()},
		"a wrong token beside a certificate of another than it asks for": {issue.Request{CSR: other, Credential: "guess", Certificates: certs(valid)}, issue.Unproven, identity.ErrUnproven.Error()},
		"too many guesses":                   {issue.Request{CSR: good, Credential: "throttled"}, issue.Throttled, "try again"},
		"tokens that cannot be checked":      {issue.Request{CSR: good, Credential: "away"}, issue.Unavailable, "cannot be checked"},
		"another identity, by a token":       {issue.Request{CSR: other, Credential: "web-token"}, issue.Forbidden, "is for"},
		"another identity, by a certificate": {issue.Request{CSR: other, Certificates: certs(valid)}, issue.Forbidden, "is for"},
		"a certificate that has ended":       {issue.Request{CSR: good, Certificates: certs(ended)}, issue.Unproven, "ended on"},
		"its renewal":                        {issue.Request{CSR: named, Certificates: certs(ended), Renewal: true}, "", ""},
		"the renewal of a valid one":         {issue.Request{CSR: good, Certificates: certs(valid), Renewal: true}, "", ""},
		"its renewal as another":             {issue.Request{CSR: other, Certificates: certs(ended), Renewal: true}, issue.Forbidden, "is for"},
		"its renewal, too late":              {issue.Request{CSR: good, Certificates: certs(longEnded), Renewal: true}, issue.Unproven, "with a token (portolan token create)"},
		"its renewal, revoked":               {issue.Request{CSR: good, Certificates: certs(endedMail), Renewal: true}, issue.Forbidden, "is revoked (revokedidentity/shop/mail): stolen"},
		"a renewal by one of another mesh":   {issue.Request{CSR: good, Certificates: certs(foreign), Renewal: true}, issue.Unproven, "not one for workloads"},
		"a certificate of another mesh":      {issue.Request{CSR: good, Certificates: certs(foreign)}, issue.Unproven, "not one for workloads"},
		"a revoked identity":                 {issue.Request{CSR: good, Certificates: certs(mail)}, issue.Forbidden, "is revoked (revokedidentity/shop/mail): stolen"},
		"for too long":                       {issue.Request{CSR: good, Credential: "web-token", Life: 91 * 24 * time.Hour}, issue.Invalid, "--max-certificate-ttl"},
		"no request":                         {issue.Request{CSR: []byte("x"), Credential: "web-token"}, issue.Invalid, "no certificate request"},
		"a megabyte":                         {issue.Request{CSR: make([]byte, 1<<20), Credential: "web-token"}, issue.Invalid, "may have 65536"},
	} {
		before := w.tokens.asked
		signed, who, err := w.issuer.Issue(t.Context(), c.request)
		var refusal *issue.Refusal
		switch {
		case c.reason == "":
			if err != nil || who != web || signed.Leaf.URIs[0].String() != web.String() {
				t.Errorf("%s: %v, %v", name, who, err)
			}
		case !errors.As(err, &refusal) || refusal.Reason != c.reason || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "yesterday"):
			t.Errorf("%s: %v, want %s %q", name, err, c.reason, c.want)
		}
		if c.reason == issue.Invalid && w.tokens.asked != before {
			t.Errorf("%s: a token was used up for a request that is at fault", name)
		}
	}
}

// issueOne issues a certificate by a token, and returns its serial number.
func (w *world) issueOne(t *testing.T, csr []byte) string {
	signed, _, err := w.issuer.Issue(t.Context(), issue.Request{CSR: csr, Credential: "web-token", From: netip.MustParseAddr("10.0.0.7")})
	if err != nil {
		t.Error(err)
		return ""
	}
	return signed.Leaf.SerialNumber.Text(16)
}

// TestTheAudit: each certificate is in the history before its holder has it, and many share a
// record.
func TestTheAudit(t *testing.T) {
	t.Parallel()
	w := start(t)
	csr := authoritytest.CSR(t, authoritytest.Key(t))
	const many = 200
	serials := make([]string, many)
	var all sync.WaitGroup
	for i := range serials {
		all.Go(func() {
			serials[i] = w.issueOne(t, csr)
			if strings.Count(w.notes.text(), serials[i]) != 1 {
				t.Errorf("certificate %s is given out before the history has it", serials[i])
			}
		})
	}
	all.Wait()
	history := w.notes.text()
	for _, serial := range serials {
		if strings.Count(history, serial) != 1 {
			t.Errorf("certificate %s is not once in %q", serial, history)
		}
	}
	if n := strings.Count(history, "\n") + 1; n > many/2 {
		t.Errorf("%d certificates are %d records", many, n)
	}
	if strings.Contains(history, "web-token") || !strings.Contains(history, "10.0.0.7") {
		t.Errorf("the history has %q", history)
	}
}

// TestTheAuditOfRenewals: the history tells a renewal with an expired certificate from others.
func TestTheAuditOfRenewals(t *testing.T) {
	t.Parallel()
	w := start(t)
	csr := authoritytest.CSR(t, authoritytest.Key(t))
	past := w.Server(t, func(o *authority.Options) { o.Now = func() time.Time { return time.Now().Add(-3 * time.Hour) } })
	_, ended := authoritytest.Issue(t, past, web, time.Hour)
	w.Await(t)
	_, valid := authoritytest.Issue(t, w.authority, web, time.Hour)
	for says, shown := range map[string]*authority.Certificate{", renewed with an expired certificate": ended, ", by certificate": valid} {
		signed, _, err := w.issuer.Issue(t.Context(), issue.Request{CSR: csr, Certificates: []*x509.Certificate{shown.Leaf}, Renewal: true})
		if err != nil {
			t.Fatal(err)
		}
		serial := signed.Leaf.SerialNumber.Text(16)
		if want := "serial " + serial + " until " + signed.Leaf.NotAfter.UTC().Format(time.RFC3339) + says; !strings.Contains(w.notes.text(), want) {
			t.Errorf("the history has no %q: %q", want, w.notes.text())
		}
	}
}

// TestTheAuditWithoutAStore: while the store is away, certificates are handed out after a
// wait; they are in the history when the store is back. Nothing else waits.
func TestTheAuditWithoutAStore(t *testing.T) {
	t.Parallel()
	w := start(t)
	csr := authoritytest.CSR(t, authoritytest.Key(t))
	w.notes.set(true)
	began := time.Now()
	serial := w.issueOne(t, csr)
	if took := time.Since(began); took < time.Second {
		t.Errorf("the certificate is given out after %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := w.issuer.Issue(ctx, issue.Request{CSR: csr, Credential: "web-token"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has gone is told %v", err)
	}
	w.notes.set(false)
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(w.notes.text(), serial); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the history has %q", w.notes.text())
		}
	}
}

// TestIstiosService: a client like Istio's agent gets certificates.
func TestIstiosService(t *testing.T) {
	t.Parallel()
	w := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	w.issuer.Register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := istio.NewIstioCertificateServiceClient(conn)
	csr := string(authoritytest.CSR(t, authoritytest.Key(t), web.String()))
	for name, c := range map[string]struct {
		token   string
		request *istio.IstioCertificateRequest
		code    codes.Code
	}{
		"a token":                    {"Bearer web-token", &istio.IstioCertificateRequest{Csr: csr, ValidityDuration: 3600}, codes.OK},
		"nothing":                    {"", &istio.IstioCertificateRequest{Csr: csr}, codes.Unauthenticated},
		"a wrong token":              {"Bearer guess", &istio.IstioCertificateRequest{Csr: csr}, codes.Unauthenticated},
		"no bearer":                  {"guess", &istio.IstioCertificateRequest{Csr: csr}, codes.InvalidArgument},
		"no request":                 {"Bearer web-token", &istio.IstioCertificateRequest{}, codes.InvalidArgument},
		"a negative time":            {"Bearer web-token", &istio.IstioCertificateRequest{Csr: csr, ValidityDuration: -1}, codes.InvalidArgument},
		"an endless time":            {"Bearer web-token", &istio.IstioCertificateRequest{Csr: csr, ValidityDuration: 1 << 62}, codes.InvalidArgument},
		"too long a time":            {"Bearer web-token", &istio.IstioCertificateRequest{Csr: csr, ValidityDuration: 91 * 24 * 3600}, codes.InvalidArgument},
		"another identity":           {"Bearer web-token", &istio.IstioCertificateRequest{Csr: string(authoritytest.CSR(t, authoritytest.Key(t), "spiffe://cluster.local/ns/a/sa/b"))}, codes.PermissionDenied},
		"too many guesses":           {"Bearer throttled", &istio.IstioCertificateRequest{Csr: csr}, codes.ResourceExhausted},
		"a server that cannot judge": {"Bearer away", &istio.IstioCertificateRequest{Csr: csr}, codes.Unavailable},
	} {
		ctx := t.Context()
		if c.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.token)
		}
		answer, err := client.CreateCertificate(ctx, c.request)
		if status.Code(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
			continue
		}
		if err != nil {
			continue
		}
		roots := x509.NewCertPool()
		if n := len(answer.CertChain); n != 2 || !roots.AppendCertsFromPEM([]byte(answer.CertChain[n-1])) {
			t.Fatalf("a chain of %d", n)
		}
		block, _ := pem.Decode([]byte(answer.CertChain[0]))
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil || time.Until(leaf.NotAfter) > time.Hour {
			t.Errorf("%v, it ends %v", err, leaf.NotAfter)
		}
	}
}
