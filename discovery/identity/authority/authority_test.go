package authority_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/authority/authoritytest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

var web = authoritytest.Workload("shop", "web")

func bundle(t *testing.T, a *authority.Authority) []byte {
	t.Helper()
	text, err := a.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestServersThatStartAtOnceHaveOneRoot: and a server that starts later has the same root.
func TestServersThatStartAtOnceHaveOneRoot(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	all := make([]*authority.Authority, 8)
	var ready sync.WaitGroup
	for i := range all {
		all[i] = mesh.Server(t)
		ready.Go(func() {
			if err := all[i].Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	want := bundle(t, all[0])
	later := mesh.Server(t)
	if err := later.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range append(all, later) {
		if got := bundle(t, a); !bytes.Equal(got, want) {
			t.Errorf("roots differ:\n%s\n%s", got, want)
		}
		_, signed := authoritytest.Issue(t, a, web, 0)
		if who, err := all[0].Verify([]*x509.Certificate{signed.Leaf}); err != nil || who != web {
			t.Errorf("a certificate of one server is of %v at another, %v", who, err)
		}
	}
	object, err := mesh.Store.Get(t.Context(), schema.Secret, authority.SecretName, "istio-system")
	if err != nil {
		t.Fatal(err)
	}
	spec := object.Spec.(*secret.Spec)
	if spec.Type != secret.CertificateAuthority || spec.Sealed == nil || spec.InClear() {
		t.Errorf("the secret is %+v", spec)
	}
	if _, _, ok := spec.Pair(); ok {
		t.Error("proxies could be given the key of the authority")
	}
	if _, ok := spec.Roots(); ok {
		t.Error("proxies could be given an entry of the authority's secret")
	}
}

func TestACertificateHasTheIdentityAndNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	a := authoritytest.Start(t).Server(t, func(o *authority.Options) { o.Now = func() time.Time { return now } })
	_, signed := authoritytest.Issue(t, a, web, 0)
	leaf := signed.Leaf
	switch {
	case len(leaf.URIs) != 1 || leaf.URIs[0].String() != web.String() || len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) != 0 || leaf.Subject.String() != "":
		t.Errorf("names: %v %v, subject %q", leaf.URIs, leaf.DNSNames, leaf.Subject)
	case !leaf.NotBefore.Equal(now.Add(-2*time.Minute)) || !leaf.NotAfter.Equal(now.Add(24*time.Hour)):
		t.Errorf("it is valid from %v to %v, and now is %v", leaf.NotBefore, leaf.NotAfter, now)
	case leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 || len(leaf.ExtKeyUsage) != 2:
		t.Errorf("it may be used for %v, %v", leaf.KeyUsage, leaf.ExtKeyUsage)
	case leaf.SerialNumber.Sign() <= 0 || len(signed.Chain) != 1:
		t.Errorf("serial %v, a chain of %d", leaf.SerialNumber, len(signed.Chain))
	}
	request, err := authority.ParseRequest(authoritytest.CSR(t, authoritytest.Key(t)))
	if err != nil {
		t.Fatal(err)
	}
	for life, want := range map[time.Duration]string{
		time.Second: "ends before it is of use", -time.Hour: "ends before", authority.DefaultMaxLife + 1: "--max-certificate-ttl", authority.DefaultMaxLife: "",
	} {
		_, err := a.Sign(t.Context(), request, web, life)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !errors.Is(err, storage.ErrInvalid)) {
			t.Errorf("%v: %v, want %q", life, err, want)
		}
	}
	foreign := identity.Identity{TrustDomain: "other.example", Namespace: "shop", ServiceAccount: "web"}
	if _, err := a.Sign(t.Context(), request, foreign, 0); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("an identity of another trust domain: %v", err)
	}
	servers := identity.Identity{TrustDomain: web.TrustDomain, Namespace: "istio-system", ServiceAccount: authority.ServerAccount}
	if _, err := a.Sign(t.Context(), request, servers, 0); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "the identity of the servers") {
		t.Errorf("the identity of the servers: %v", err)
	}
}

// verifies returns an error unless a client that trusts these roots accepts the chain.
func verifies(pair tls.Certificate, roots []byte, now time.Time) error {
	trusted, between := x509.NewCertPool(), x509.NewCertPool()
	trusted.AppendCertsFromPEM(roots)
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(c)
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: now})
	return err
}

// TestARotation: at each step, everybody who trusts the current bundle accepts everybody. Once
// the former root is gone, its certificates count for nothing.
func TestARotation(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	now := time.Now()
	var clock sync.Mutex
	at := func() time.Time { clock.Lock(); defer clock.Unlock(); return now }
	pass := func(d time.Duration) { clock.Lock(); now = now.Add(d); clock.Unlock() }
	timed := func(o *authority.Options) { o.Now = at }
	a, b := mesh.Server(t, timed), mesh.Server(t, timed)
	rotate := func(step string, force bool) error {
		err := a.Rotate(t.Context(), step, force)
		mesh.Await(t)
		return err
	}
	issue := func(by *authority.Authority) tls.Certificate {
		pair, _ := authoritytest.Issue(t, by, web, 0)
		return pair
	}
	for _, step := range []string{authority.RotateFinish, authority.RotateAbort} {
		if err := rotate(step, true); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s without a rotation: %v", step, err)
		}
	}
	before := issue(a)
	mesh.Await(t)
	old := bundle(t, b)
	check := func(when string, chains map[string]tls.Certificate, bundles map[string][]byte, refused ...string) {
		t.Helper()
		for chain, pair := range chains {
			for name, roots := range bundles {
				what := chain + " by " + name
				bad := false
				for _, r := range refused {
					bad = bad || r == what
				}
				if err := verifies(pair, roots, at()); (err != nil) != bad {
					t.Errorf("%s: %s: %v", when, what, err)
				}
			}
		}
	}
	check("before", map[string]tls.Certificate{"old": before}, map[string][]byte{"old roots": old})

	// The rotation starts, is aborted, and starts anew.
	if err := rotate(authority.RotateStart, false); err != nil {
		t.Fatal(err)
	}
	tried, trying := issue(b), bundle(t, b)
	if err := rotate(authority.RotateAbort, false); err != nil {
		t.Fatal(err)
	}
	check("aborted", map[string]tls.Certificate{"old": before, "of the aborted root": tried, "new": issue(b)}, map[string][]byte{"old roots": bundle(t, b), "roots of before": old, "roots between": trying})
	if !bytes.Equal(bundle(t, b), old) {
		t.Error("an abort does not bring the roots of before back")
	}
	if err := rotate(authority.RotateStart, false); err != nil {
		t.Fatal(err)
	}
	if err := rotate(authority.RotateStart, false); !errors.Is(err, storage.ErrExists) {
		t.Errorf("a second start: %v", err)
	}
	during, both := issue(b), bundle(t, b)
	fresh := both[len(old):]
	if !bytes.HasPrefix(both, old) || len(fresh) == 0 {
		t.Fatal("both roots are not trusted")
	}
	check("during", map[string]tls.Certificate{"old": before, "new": during}, map[string][]byte{"old roots": old, "both roots": both, "new root": fresh}, "old by new root")
	status, err := b.AuthorityStatus(t.Context())
	if err != nil || status.Rotation == nil || len(status.Roots) != 2 || status.Rotation.Former != status.Roots[0].Fingerprint {
		t.Errorf("status %+v, %v", status, err)
	}
	if err := rotate(authority.RotateFinish, false); err == nil || !strings.Contains(err.Error(), "may be valid until") {
		t.Errorf("a finish while certificates of the former root are valid: %v", err)
	}
	pass(24*time.Hour + 11*time.Minute)
	if err := rotate(authority.RotateFinish, false); err != nil {
		t.Fatal(err)
	}
	after := issue(b)
	if got := bundle(t, b); !bytes.Equal(got, fresh) {
		t.Errorf("after it the roots are\n%s", got)
	}
	check("after", map[string]tls.Certificate{"after": after}, map[string][]byte{"old roots": old, "both roots": both, "new root": fresh}, "after by old roots")
	if err := rotate(authority.RotateStart, false); err != nil {
		t.Fatal(err)
	}
	if err := rotate("sideways", false); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a step that is none: %v", err)
	}
	if err := rotate(authority.RotateFinish, true); err != nil {
		t.Errorf("by force: %v", err)
	}
}

// TestALongLifeDelaysTheEndOfARotation: the root is kept as long as a certificate that it
// signed may be valid.
func TestALongLifeDelaysTheEndOfARotation(t *testing.T) {
	t.Parallel()
	a := authoritytest.Start(t).Server(t)
	authoritytest.Issue(t, a, web, 60*24*time.Hour)
	if err := a.Rotate(t.Context(), authority.RotateStart, false); err != nil {
		t.Fatal(err)
	}
	status, err := a.AuthorityStatus(t.Context())
	if err != nil || status.Rotation.MayFinish.Sub(status.Rotation.Started) < 60*24*time.Hour {
		t.Errorf("it may finish from %v, %v", status.Rotation, err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	a := mesh.Server(t)
	later := func(d time.Duration) *authority.Authority {
		return mesh.Server(t, func(o *authority.Options) { o.Now = func() time.Time { return time.Now().Add(d) } })
	}
	_, mine := authoritytest.Issue(t, a, web, time.Hour)
	_, strange := authoritytest.Issue(t, authoritytest.Start(t).Server(t), web, time.Hour)
	root, err := a.AuthorityStatus(t.Context())
	if err != nil || root.Problem != "" {
		t.Fatal(root, err)
	}
	for name, c := range map[string]struct {
		at   time.Duration
		leaf *x509.Certificate
		want string
	}{
		"in its time":             {0, mine.Leaf, ""},
		"by a clock that is late": {-time.Minute, mine.Leaf, ""},
		"too early":               {-10 * time.Minute, mine.Leaf, "one of the two clocks is wrong"},
		"ended":                   {2 * time.Hour, mine.Leaf, "prove who you are anew"},
		"of another mesh":         {0, strange.Leaf, "not one for workloads of this mesh"},
		"of another mesh, ended":  {2 * time.Hour, strange.Leaf, "not one for workloads of this mesh"},
		"that signs itself":       {0, selfSigned(t), "not one for workloads of this mesh"},
	} {
		who, err := later(c.at).Verify([]*x509.Certificate{c.leaf})
		if c.want == "" && (err != nil || who != web) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || who != (identity.Identity{})) {
			t.Errorf("%s: %v, %v; want %q", name, who, err, c.want)
		}
	}
	if _, err := a.Verify(nil); err == nil {
		t.Error("no certificate verifies")
	}
	foreign := mesh.Server(t, func(o *authority.Options) { o.TrustDomain = "other.example" })
	if _, err := foreign.Verify([]*x509.Certificate{mine.Leaf}); err == nil || !strings.Contains(err.Error(), "another trust domain") {
		t.Errorf("of another trust domain: %v", err)
	}
}

// selfSigned returns a self-signed certificate with the name of a workload.
// TestVerifyRenewal: an expired certificate is good for a renewal, for a time, and for nothing
// else; whatever else makes one bad still does.
func TestVerifyRenewal(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	a := mesh.Server(t)
	_, mine := authoritytest.Issue(t, a, web, time.Hour)
	_, strange := authoritytest.Issue(t, authoritytest.Start(t).Server(t), web, time.Hour)
	const year = 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		at, grace time.Duration
		domain    string
		leaf      *x509.Certificate
		expired   bool
		want      string
	}{
		"in its time":             {0, 24 * time.Hour, "", mine.Leaf, false, ""},
		"ended":                   {24 * time.Hour, 24 * time.Hour, "", mine.Leaf, true, ""},
		"ended too long ago":      {26 * time.Hour, 24 * time.Hour, "", mine.Leaf, false, "longer ago than the 24h0m0s in which it can be renewed (serve --renew-expired)"},
		"ended, with no grace":    {2 * time.Hour, 0, "", mine.Leaf, false, "with a token (portolan token create)"},
		"too early":               {-10 * time.Minute, 24 * time.Hour, "", mine.Leaf, false, "one of the two clocks is wrong"},
		"of another mesh, ended":  {2 * time.Hour, 24 * time.Hour, "", strange.Leaf, false, "not one for workloads of this mesh"},
		"that signs itself":       {0, 24 * time.Hour, "", selfSigned(t), false, "not one for workloads of this mesh"},
		"of another trust domain": {2 * time.Hour, 24 * time.Hour, "other.example", mine.Leaf, false, "another trust domain"},
		"of a root that ended":    {20 * year, 30 * year, "", mine.Leaf, false, "so did the authority that signed it"},
	} {
		at := mesh.Server(t, func(o *authority.Options) {
			o.Now, o.RenewExpired = func() time.Time { return time.Now().Add(c.at) }, c.grace
			if c.domain != "" {
				o.TrustDomain = c.domain
			}
		})
		who, expired, err := at.VerifyRenewal([]*x509.Certificate{c.leaf})
		if expired != c.expired || c.want == "" && (err != nil || who != web) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || who != (identity.Identity{})) {
			t.Errorf("%s: %v, expired %t, %v; want %q", name, who, expired, err, c.want)
		}
		if _, err := at.Verify([]*x509.Certificate{c.leaf}); c.expired && err == nil {
			t.Errorf("%s: it is good for more than a renewal", name)
		}
	}
}

func selfSigned(t *testing.T) *x509.Certificate {
	t.Helper()
	key := authoritytest.Key(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), URIs: []*url.URL{web.URL()}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRevoked(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	a := mesh.Server(t)
	then := time.Now()
	revoke := func(namespace, name string, spec access.RevokedIdentity) {
		mesh.Put(t, &config.Config{Meta: config.Meta{GroupVersionKind: schema.RevokedIdentity, Namespace: namespace, Name: name}, Spec: &spec})
	}
	revoke("shop", "web", access.RevokedIdentity{ServiceAccount: "web", Reason: "the machine was stolen"})
	revoke("shop", "mail", access.RevokedIdentity{ServiceAccount: "mail", Before: &metav1.Time{Time: then}})
	for _, c := range []struct {
		who    identity.Identity
		issued time.Time
		want   string
	}{
		{web, then.Add(time.Hour), "revoked (revokedidentity/shop/web): the machine was stolen"},
		{web, time.Time{}, "is revoked"},
		{authoritytest.Workload("shop", "mail"), then.Add(-time.Hour), "is revoked (revokedidentity/shop/mail)"},
		{authoritytest.Workload("shop", "mail"), then.Add(time.Hour), ""},
		{authoritytest.Workload("shop", "mail"), time.Time{}, ""},
		{authoritytest.Workload("shop", "db"), then, ""},
		{authoritytest.Workload("other", "web"), then, ""},
	} {
		err := a.Revoked(c.who, c.issued)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, authority.ErrRevoked) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v at %v: %v, want %q", c.who, c.issued, err, c.want)
		}
	}
	unread := mesh.Server(t, func(o *authority.Options) { o.Snapshot = func() *cache.Snapshot { return nil } })
	if err := unread.Revoked(web, then); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("before the configuration is read: %v", err)
	}
}

// TestWithoutTheSealingKey: the authority signs nothing without the sealing key, and says so.
// With the key it signs.
func TestWithoutTheSealingKey(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	if err := mesh.Server(t).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	mesh.Await(t)
	other := sealing.New(filepath.Join(t.TempDir(), "sealing.key"), mesh.Store)
	a := mesh.Server(t, func(o *authority.Options) { o.Sealer = other })
	if err := a.Degraded(); err == nil || !strings.Contains(err.Error(), "cannot be opened") {
		t.Errorf("degraded: %v", err)
	}
	request, err := authority.ParseRequest(authoritytest.CSR(t, authoritytest.Key(t)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sign(t.Context(), request, web, 0); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("signed without the key: %v", err)
	}
	if status, err := a.AuthorityStatus(t.Context()); err != nil || !strings.Contains(status.Problem, "cannot be opened") {
		t.Errorf("status %+v, %v", status, err)
	}
	if _, err := other.Import(mesh.Sealer.Ring().Text()); err != nil {
		t.Fatal(err)
	}
	if err := a.Degraded(); err != nil {
		t.Errorf("with the key: %v", err)
	}
	if _, err := a.Sign(t.Context(), request, web, 0); err != nil {
		t.Errorf("with the key: %v", err)
	}
}

func TestAnAuthorityThatEnds(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	if err := mesh.Server(t).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	mesh.Await(t)
	const life = 10 * 365 * 24 * time.Hour
	at := func(d time.Duration) *authority.Authority {
		return mesh.Server(t, func(o *authority.Options) { o.Now = func() time.Time { return time.Now().Add(d) } })
	}
	for d, want := range map[time.Duration]string{0: "", life - 20*24*time.Hour: "ends on", life + time.Hour: "signs nothing", -time.Hour: "check the clock"} {
		err := at(d).Degraded()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("after %v: %v, want %q", d, err, want)
		}
	}
	_, last := authoritytest.Issue(t, at(life-time.Hour), web, 0)
	if left := time.Until(last.Leaf.NotAfter); left > life {
		t.Errorf("a certificate ends %v after its root", left-life)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(at(0))
	if families, err := registry.Gather(); err != nil || len(families) != 1 || len(families[0].Metric) != 2 {
		t.Errorf("metrics %v, %v", families, err)
	}
}

func TestAServersCertificateFollowsTheAuthority(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	var clock sync.Mutex
	now := time.Now()
	a := mesh.Server(t, func(o *authority.Options) {
		o.Now = func() time.Time { clock.Lock(); defer clock.Unlock(); return now }
	})
	if err := a.Rotate(t.Context(), authority.RotateStart, false); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a rotation of nothing: %v", err)
	}
	show := a.ServerCertificate("portolan.example", "127.0.0.1")
	get := func() *tls.Certificate {
		t.Helper()
		pair, err := show(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	first := get()
	if who, err := identity.OfCertificate(first.Leaf); err != nil || who != authoritytest.Workload("istio-system", "portolan") || first.Leaf.VerifyHostname("portolan.example") != nil || first.Leaf.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("it is of %v %v %v, %v", who, first.Leaf.DNSNames, first.Leaf.IPAddresses, err)
	}
	if get() != first {
		t.Error("each client gets another")
	}
	if err := a.Rotate(t.Context(), authority.RotateStart, false); err != nil {
		t.Fatal(err)
	}
	second := get()
	if second == first || len(second.Certificate) != 2 {
		t.Errorf("a new root does not sign it: a chain of %d", len(second.Certificate))
	}
	clock.Lock()
	now = now.Add(17 * time.Hour)
	clock.Unlock()
	if get() == second {
		t.Error("it is not renewed at two thirds of its life")
	}
}

func TestFilesOfAnOperator(t *testing.T) {
	t.Parallel()
	// The operator's root signs an intermediate: a rotation in another mesh makes both.
	other := authoritytest.Start(t)
	source := other.Server(t)
	entries := func() map[string][]byte {
		object, err := other.Store.Get(t.Context(), schema.Secret, authority.SecretName, "istio-system")
		if err != nil {
			t.Fatal(err)
		}
		data, err := other.Sealer.Open(object)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if err := source.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	root := entries()
	if err := source.Rotate(t.Context(), authority.RotateStart, false); err != nil {
		t.Fatal(err)
	}
	middle := entries()
	dir := t.TempDir()
	files := &authority.Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Root: filepath.Join(dir, "root"), Chain: filepath.Join(dir, "chain")}
	write := func(cert, key, root, chain []byte) {
		for path, text := range map[string][]byte{files.Cert: cert, files.Key: key, files.Root: root, files.Chain: chain} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	mesh := authoritytest.Start(t)
	o := mesh.Options()
	o.Files = files
	// cert-chain.pem of the rotation is the new root as the old one has signed it.
	write(middle["cert-chain.pem"], middle["ca-key.pem"], root["root-cert.pem"], root["root-cert.pem"])
	a, err := authority.New(o)
	if err != nil {
		t.Fatal(err)
	}
	pair, signed := authoritytest.Issue(t, a, web, 0)
	if len(pair.Certificate) != 2 || !bytes.Equal(signed.Roots, root["root-cert.pem"]) {
		t.Errorf("a chain of %d, roots\n%s", len(pair.Certificate), signed.Roots)
	}
	if err := verifies(pair, root["root-cert.pem"], time.Now()); err != nil {
		t.Error(err)
	}
	if err := a.Rotate(t.Context(), authority.RotateStart, false); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a rotation of files: %v", err)
	}
	if objects, err := mesh.Store.List(t.Context(), schema.Secret, ""); err != nil || len(objects) != 0 {
		t.Errorf("%d secrets, %v", len(objects), err)
	}
	for name, c := range map[string]struct {
		cert, key, root []byte
		want            string
	}{
		"another's key":  {root["ca-cert.pem"], middle["ca-key.pem"], root["root-cert.pem"], "no certificate with its key"},
		"another's root": {middle["ca-cert.pem"], middle["ca-key.pem"], root["root-cert.pem"], "does not lead to a root"},
		"no root":        {root["ca-cert.pem"], root["ca-key.pem"], nil, "has no certificates"},
		"a leaf":         {signed.Chain[0], root["ca-key.pem"], root["root-cert.pem"], "no certificate with its key"},
		"a key as root":  {root["ca-cert.pem"], root["ca-key.pem"], root["ca-key.pem"], "has no certificates"},
	} {
		write(c.cert, c.key, c.root, nil)
		if _, err := authority.New(o); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "-----") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestNoRootInPlaceOfAnother: where the mesh had a root, none is made silently. It may be gone
// from the store, or the root namespace may be another one now.
func TestNoRootInPlaceOfAnother(t *testing.T) {
	t.Parallel()
	mesh := authoritytest.Start(t)
	if err := mesh.Server(t).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	elsewhere := mesh.Server(t, func(o *authority.Options) { o.RootNamespace = "mesh-root" })
	if err := elsewhere.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "set rootNamespace to istio-system again") {
		t.Errorf("in another root namespace: %v", err)
	}
	if _, err := mesh.Store.Delete(t.Context(), schema.Secret, authority.SecretName, "istio-system", ""); err != nil {
		t.Fatal(err)
	}
	a := mesh.Server(t)
	if err := a.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "are gone from the store") || !strings.Contains(err.Error(), "portolan ca init") {
		t.Errorf("when the secret is gone: %v", err)
	}
	if _, err := a.ServerCertificate("localhost")(&tls.ClientHelloInfo{}); err == nil {
		t.Error("the server has a certificate of a new root")
	}
	if err := a.Begin(t.Context()); err != nil {
		t.Errorf("a new root on purpose: %v", err)
	}
	bundle(t, a)
}
