package integration

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// sealingKeys writes a file of sealing keys, which the servers of a store share.
func sealingKeys(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sealing.key")
	ring, _ := seal.Ring{}.WithNew()
	if err := ring.Write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// doors is one server of several, with what its clients know of it.
type doors struct {
	*server
	roots string // file of the initial roots of a machine
}

// in returns the server for use in a subtest.
func (d doors) in(t testing.TB) doors {
	own := *d.server
	own.t = t
	return doors{&own, d.roots}
}

// secureXDS returns the address for proxies over TLS.
func (d doors) secureXDS() string {
	return announcedSecure.FindStringSubmatch(d.process.output())[1]
}

// machine runs a command for a machine with its certificate in a directory.
func (d doors) machine(dir, what string, args ...string) outcome {
	d.t.Helper()
	return command(d.t, "", append([]string{"certificate", what, "--out", dir, "--server", "https://" + d.api, "--ca", d.roots}, args...)...)
}

// as runs a command over TLS with a token.
func (d doors) as(token string, args ...string) outcome {
	d.t.Helper()
	return command(d.t, "", append(args, "--server", "https://"+d.api, "--ca", d.roots, "--token", token)...)
}

// joins gets the first certificate for a directory with a join token.
func (d doors) joins(dir, token string) {
	d.t.Helper()
	if o := d.machine(dir, "request", "--token", token); o.code != 0 {
		d.t.Fatalf("%s: a machine joins: %+v", d.api, o)
	}
}

// joinToken makes a join token.
func (d doors) joinToken(account string) string {
	d.t.Helper()
	return strings.TrimSpace(d.must("", "token", "create", "-n", "shop", "--service-account", account))
}

// refused waits until a command is refused with some words.
func refused(t testing.TB, what, words string, run func() outcome) {
	t.Helper()
	eventually(t, what, func() error {
		if o := run(); o.code == 0 || !strings.Contains(o.stderr, words) {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

// permitted waits until a command succeeds.
func permitted(t testing.TB, what string, run func() outcome) {
	t.Helper()
	eventually(t, what, func() error {
		if o := run(); o.code != 0 {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

// proxy connects a proxy over mutual TLS, with the certificate in a directory.
func (d doors) proxy(name, dir string) *xdstest.Client {
	d.t.Helper()
	held, err := enroll.Read(dir)
	if err != nil {
		d.t.Fatal(err)
	}
	client := xdstest.Dial(d.t, d.secureXDS(), xdstest.ClientOptions{
		Node: xdstest.NewNode("sidecar", "10.0.0.1", name, "shop", nil), Variant: protocol.Delta,
		Credentials: credentials.NewTLS(&tls.Config{RootCAs: trusted(d.t, filepath.Join(dir, enroll.RootsFile)), Certificates: []tls.Certificate{held.Pair}, ServerName: "localhost", MinVersion: tls.VersionTLS12}),
	})
	client.Subscribe(xdstest.ClusterType)
	return client
}

// trusted returns the certificates of a file.
func trusted(t testing.TB, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("%s has no certificates", file)
	}
	return pool
}

// awaitEntry waits until a proxy has the cluster of a plainEntry.
func awaitEntry(c *xdstest.Client, name string) {
	c.Await("the cluster of "+name, func(held func(string) map[string]xdstest.Held) bool {
		_, ok := held(xdstest.ClusterType)["outbound|80||"+name+".shop.example"]
		return ok
	})
}

// shows waits until a server presents a certificate that some roots verify.
func (d doors) shows(what string, roots *x509.CertPool) {
	d.t.Helper()
	eventually(d.t, what, func() error {
		for _, address := range []string{d.api, d.secureXDS()} {
			conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
			if err != nil {
				return err
			}
			_ = conn.Close()
		}
		return nil
	})
}

// jwt returns a token of an issuer for a subject.
func jwt(t testing.TB, issuer *jwkstest.Issuer, subject string) string {
	t.Helper()
	return issuer.Sign(t, map[string]any{"iss": issuer.URL, "aud": "portolan", "sub": subject, "exp": time.Now().Add(time.Hour).Unix()})
}

// comingIn are changes to who has access: one is made at a server, and the other must follow
// it.
var comingIn = map[string]func(t *testing.T, at, other doors, name string){
	"a join token": func(t *testing.T, at, other doors, name string) {
		token, dir := at.joinToken(name), filepath.Join(t.TempDir(), "m")
		other.joins(dir, token)
		if o := at.machine(dir, "request", "--token", token); o.code == 0 || !strings.Contains(o.stderr, "is used up") {
			t.Errorf("used up at the other: %+v", o)
		}
		token = at.joinToken(name)
		other.must("", "token", "revoke", token)
		if o := at.machine(dir, "request", "--token", token); o.code == 0 || !strings.Contains(o.stderr, "no such join token") {
			t.Errorf("revoked at the other: %+v", o)
		}
	},
	"a certificate": func(t *testing.T, at, other doors, name string) {
		dir := filepath.Join(t.TempDir(), "m")
		at.joins(dir, at.joinToken(name))
		if o := other.machine(dir, "renew"); o.code != 0 {
			t.Errorf("renewed at the other: %+v", o)
		}
		at.proxy(name+"-a", dir).Await("an answer", func(held func(string) map[string]xdstest.Held) bool { return len(held(xdstest.ClusterType)) > 0 })
	},
	"a revoked identity": func(t *testing.T, at, other doors, name string) {
		dir := filepath.Join(t.TempDir(), "m")
		at.joins(dir, at.joinToken(name))
		revocation := fill(`
apiVersion: portolan.io/v1
kind: RevokedIdentity
metadata: {name: $name, namespace: shop}
spec: {serviceAccount: $name, reason: stolen}
`, "$name", name)
		at.apply(revocation)
		refused(t, "the other does not renew it", "is revoked", func() outcome { return other.machine(dir, "renew") })
		client := other.proxy(name+"-r", dir)
		if err := client.AwaitEnd(); err == nil || !strings.Contains(err.Error(), "PermissionDenied") || !strings.Contains(err.Error(), "is revoked") {
			t.Errorf("its stream: %v", err)
		}
		var list admin.ProxyList
		if _, err := other.get(admin.ProxiesPath, &list); err != nil || len(list.Refused) == 0 || list.Refused[0].Identity != "spiffe://cluster.local/ns/shop/sa/"+name {
			t.Errorf("the refused ones are %+v, %v", list.Refused, err)
		}
		other.remove(revocation)
		permitted(t, "it is renewed again", func() outcome { return at.machine(dir, "renew") })
	},
	"a user": func(t *testing.T, at, other doors, name string) {
		token := strings.TrimSpace(at.must("", "user", "create", name, "--role", "viewer", "-n", "shop"))
		list := func(d doors) func() outcome {
			return func() outcome { return d.as(token, "get", "serviceentries", "-n", "shop") }
		}
		permitted(t, "the user comes in at the other", list(other))
		watch := start(t, "watch-"+name, binary, "get", "serviceentries", "-n", "shop", "-w", "-o", "name", "--server", "https://"+other.api, "--ca", other.roots, "--token", token)
		eventually(t, "the user watches", func() error {
			if !strings.Contains(watch.output(), "serviceentry/shop/before") {
				return errors.New(watch.output())
			}
			return nil
		})
		at.remove(fmt.Sprintf("{apiVersion: portolan.io/v1, kind: RoleBinding, metadata: {name: %s-viewer, namespace: shop}}", name))
		refused(t, "the user has no rights at the other", "may not list", list(other))
		eventually(t, "the watch has ended", func() error {
			if watch.running() {
				return errors.New(watch.output())
			}
			return nil
		})
		watch.kill() // the server should have ended it
		if !strings.Contains(watch.output(), "may not") {
			t.Errorf("the watch ended with %s", watch.output())
		}
		other.must("", "user", "disable", name)
		refused(t, "a user whom the other turned away", "the token is not valid", list(at))
	},
	"a TokenIssuer": func(t *testing.T, at, other doors, name string) {
		issuer, dir := jwkstest.New(t), filepath.Join(t.TempDir(), "m")
		trusts := tokenIssuer(name, issuer, forPortolan, subjectIs(name, "shop"))
		at.apply(trusts)
		ask := func(d doors) func() outcome {
			return func() outcome { return d.machine(dir, "request", "--token", jwt(t, issuer, name)) }
		}
		permitted(t, "the other takes its tokens", ask(other))
		other.remove(trusts)
		refused(t, "its tokens are taken no more", "is not of an issuer that this mesh trusts", ask(at))
	},
	"the root": func(t *testing.T, at, other doors, name string) {
		dir := filepath.Join(t.TempDir(), "m")
		at.joins(dir, at.joinToken(name))
		before := trusted(t, at.roots)
		at.must("", "ca", "rotate", "start")
		next := x509.NewCertPool()
		eventually(t, "the other signs with the new root", func() error {
			if o := other.machine(dir, "renew"); o.code != 0 {
				return fmt.Errorf("%+v", o)
			}
			text, err := os.ReadFile(filepath.Join(dir, enroll.RootsFile))
			_, second, _ := strings.Cut(string(text), "-----END CERTIFICATE-----\n")
			if err == nil && !next.AppendCertsFromPEM([]byte(second)) {
				err = errors.New("there is one root")
			}
			return err
		})
		for _, d := range []doors{at, other} {
			d.shows("who trusts the new root alone is served", next)
			d.shows("who trusts the former root alone is served", before)
		}
		at.proxy(name+"-n", dir).Await("an answer", func(held func(string) map[string]xdstest.Held) bool { return len(held(xdstest.ClusterType)) > 0 })
		other.must("", "ca", "rotate", "abort")
		if o := at.machine(dir, "renew"); o.code != 0 {
			t.Errorf("a certificate of the root that went, by its chain: %+v", o)
		}
	},
}

// TestComingInAtEitherServer: both servers of a store follow a change of access that one gets,
// also after the store's leader is lost with its machine. Without a store, known clients
// continue: users, certificates, streams, renewals, tokens of an issuer. A first join with a
// join token fails with the reason, and the token stays valid.
func TestComingInAtEitherServer(t *testing.T) {
	t.Parallel()
	began := time.Now()
	lap := func(what string) { t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond)) }
	f, keys := newFleet(t, "cp-1", "cp-2", "cp-3"), sealingKeys(t)
	for _, s := range f.servers {
		s.o.args = append(s.o.args, "--secure-xds-address", "127.0.0.1:0", "--anonymous-loopback", "--sealing-key", keys)
		s.launch()
	}
	for _, s := range f.servers {
		s.awaitReady()
		s.awaitWhole()
	}
	lap("servers run")
	leader, others := f.leader()
	one, two := doors{server: others[0]}, doors{server: others[1]}
	one.apply(plainEntry("before"))
	one.must("", "user", "create", "first", "--role", "admin")
	one.roots = write(t, "roots.pem", one.must("", "ca", "root"))
	two.roots = one.roots
	expectEqual(t, "the roots of the other", two.must("", "ca", "root"), one.must("", "ca", "root"))

	dir := filepath.Join(t.TempDir(), "web")
	one.joins(dir, two.joinToken("web"))
	atOne, atTwo := one.proxy("at-one", dir), two.proxy("at-two", dir)
	round := func(at, other doors, when string) {
		for name, check := range comingIn {
			t.Run(when+"/"+name, func(t *testing.T) {
				check(t, at.in(t), other.in(t), when)
			})
		}
	}
	round(one, two, "whole")
	lap("told by one")
	f.kill(leader)
	one.nextWrite("after")
	round(two, one, "leaderless")
	for _, s := range []doors{one, two} {
		s.apply(plainEntry("later"))
	}
	awaitEntry(atOne, "later")
	awaitEntry(atTwo, "later")
	serials := []string{}
	renew := func(d doors) {
		t.Helper()
		if o := d.machine(dir, "renew"); o.code != 0 {
			t.Fatalf("%+v", o)
		}
		held, err := enroll.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		serials = append(serials, serial(held.Pair.Leaf))
	}
	audited := func() {
		t.Helper()
		for _, d := range []doors{one, two} {
			eventually(t, "the audit has what each has issued", func() error {
				said := d.must("", "audit", "--limit", "0", "-o", "json")
				for _, s := range serials {
					if !strings.Contains(said, s) {
						return fmt.Errorf("it lacks %s", s)
					}
				}
				return nil
			})
		}
	}
	renew(one)
	renew(two)
	audited()
	lap("told by the other")

	// Without a store.
	issuer := jwkstest.New(t)
	one.apply(tokenIssuer("known", issuer, forPortolan, subjectIs("known", "shop")))
	user, join := strings.TrimSpace(one.must("", "user", "create", "ann", "--role", "viewer")), one.joinToken("late")
	byIssuer := func() outcome {
		return one.machine(filepath.Join(dir, "..", "known"), "request", "--token", jwt(t, issuer, "known"))
	}
	permitted(t, "the keys of the issuer are known", byIssuer)
	f.kill(two.server)
	one.expectDegraded("the store has no quorum")
	if o := one.as(user, "get", "serviceentries", "-n", "shop"); o.code != 0 || !strings.Contains(o.stdout, "later") {
		t.Errorf("a known user: %+v", o)
	}
	if o := byIssuer(); o.code != 0 {
		t.Errorf("a token of an issuer: %+v", o)
	}
	renew(one)
	newcomer := one.proxy("newcomer", dir)
	awaitEntry(newcomer, "later")
	select {
	case <-atOne.Done():
		t.Errorf("a stream has ended: %v", atOne.AwaitEnd())
	default:
	}
	late := filepath.Join(dir, "..", "late")
	t.Run("without", func(t *testing.T) {
		for name, c := range map[string]struct {
			run   func(d doors) outcome
			words string
		}{
			"a first join":           {func(d doors) outcome { return d.machine(late, "request", "--token", join) }, "the store cannot be read: try again"},
			"a user":                 {func(d doors) outcome { return d.try("", "user", "create", "bob") }, "the store has no quorum"},
			"a longer life than any": {func(d doors) outcome { return d.machine(dir, "renew", "--ttl", "48h") }, "the store has no quorum"},
			"a join token":           {func(d doors) outcome { return d.try("", "token", "create", "-n", "shop", "--service-account", "web") }, "the store has no quorum"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if o := c.run(one.in(t)); o.code != 69 || !strings.Contains(o.stderr, c.words) {
					t.Errorf("want %q: %+v", c.words, o)
				}
			})
		}
	})

	lap("without a store")
	two.launch()
	two.awaitReady()
	one.expectReports("writes succeed")
	two.joins(late, join)
	if o := one.machine(late, "request", "--token", join); o.code == 0 || !strings.Contains(o.stderr, "is used up") {
		t.Errorf("the token that was good afterwards: %+v", o)
	}
	audited()
}
