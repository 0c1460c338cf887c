package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// machine is a proxy with a certificate that a command renews.
type machine struct {
	name, dir string
	token     string // file of the join token for the first certificate
	keeper    *process
	proxy     *envoy
}

// files returns the files of its certificate.
func (m *machine) files() *securetest.Files {
	return &securetest.Files{Dir: m.dir, Cert: filepath.Join(m.dir, enroll.ChainFile), Key: filepath.Join(m.dir, enroll.KeyFile), CA: filepath.Join(m.dir, enroll.RootsFile)}
}

// turnover is a mesh with short-lived certificates, under requests and changes.
type turnover struct {
	t        *testing.T
	life     time.Duration
	servers  [2]doors
	mesh     string // HOST:PORT that leads to a live server
	shop     *shop
	machines []*machine
	loads    []*load
	// down is the number of the server that is down, -1 for none.
	down    int
	pace    *time.Ticker
	changes int
	slowest time.Duration
	// replaced counts the streams that ended because their certificates expired.
	replaced int
}

// newTurnover starts two servers of one store, a gateway and a sidecar over mutual TLS, each
// with a certificate of a given lifetime, and requests to both.
func newTurnover(t *testing.T, life time.Duration, gateway, sidecar protocol.Variant) *turnover {
	t.Helper()
	x := &turnover{t: t, life: life, shop: newShop(t), down: -1, pace: time.NewTicker(200 * time.Millisecond)}
	t.Cleanup(x.pace.Stop)
	etcd, keys := startEtcd(t), sealingKeys(t)
	var secure []string
	for i := range x.servers {
		address := local(freePort(t))
		secure = append(secure, address)
		x.servers[i].server = startServer(t, serverOptions{etcd: etcd, args: []string{
			"--secure-xds-address", address, "--sealing-key", keys, "--api-socket", filepath.Join(t.TempDir(), "api.sock"),
		}})
	}
	one := x.servers[0]
	roots := write(t, "roots.pem", one.must("", "ca", "root"))
	one.apply(x.shop.all(100, 0))
	link := processtest.NewLink(t, one.api, nil)
	link.Also(x.servers[1].api)
	x.mesh = link.Address()
	for i, o := range []envoyOptions{
		{kind: "router", name: "edge", labels: "app=edge", variant: gateway},
		{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2", variant: sidecar},
	} {
		m := &machine{name: o.name, dir: filepath.Join(t.TempDir(), o.name)}
		x.machines = append(x.machines, m)
		m.token = write(t, o.name+".token", one.must("", "token", "create", "-n", "shop", "--service-account", o.name, "--ttl", "10s"))
		keep := []string{"--out", m.dir, "--ttl", life.String(), "--server", "https://" + x.mesh, "--ca", roots}
		if got := command(t, "", append([]string{"certificate", "request", "--token-file", m.token}, keep...)...); got.code != 0 {
			t.Fatalf("%s: %+v", o.name, got)
		}
		m.keeper = start(t, "keeper-"+o.name, binary, append([]string{"certificate", "renew", "--watch"}, keep...)...)
		o.tls, o.xds = m.files(), secure[i]+","+secure[1-i]
		m.proxy = one.launchEnvoy(o)
	}
	x.awaitTaken(one.revision())
	for _, m := range x.machines {
		m.proxy.awaitReady()
	}
	awaitReply(t, x.shop.atGateway("/"), "v1")
	awaitReply(t, x.shop.atSidecar("/"), "v1")
	x.loads = []*load{startLoad(t, "gateway", x.shop.atGateway("/")), startLoad(t, "sidecar", x.shop.atSidecar("/"))}
	return x
}

// awaitTaken waits until each proxy has acknowledged a revision to one of the servers.
func (x *turnover) awaitTaken(revision int64) {
	x.t.Helper()
	begun := time.Now()
	for _, m := range x.machines {
		eventually(x.t, fmt.Sprintf("%s has taken revision %d", m.name, revision), func() error {
			var all []error
			for i, s := range x.servers {
				if i == x.down {
					continue
				}
				proxies, err := s.proxies()
				if err != nil {
					return err
				}
				if p, ok := proxies[m.name]; ok && syncedAt(p, revision) {
					return nil
				}
				all = append(all, fmt.Errorf("server %d: %+v", i, proxies[m.name]))
			}
			return errors.Join(all...)
		})
	}
	x.slowest = max(x.slowest, time.Since(begun))
}

// change makes a change through one of the servers, and waits until both proxies have it.
func (x *turnover) change() {
	x.t.Helper()
	<-x.pace.C
	x.changes++
	at := x.changes % 2
	if at == x.down {
		at = 1 - at
	}
	share := x.changes % 3 * 50
	x.awaitTaken(x.servers[at].apply(x.shop.routes(share, 100-share)))
}

// until makes changes until a condition holds.
func (x *turnover) until(what string, check func() error) {
	x.t.Helper()
	deadline := time.Now().Add(2*x.life + patience)
	for err := check(); err != nil; err = check() {
		if time.Now().After(deadline) {
			x.t.Fatalf("%s: %v", what, err)
		}
		x.change()
	}
}

// renewed makes changes until each machine has its next certificate, and checks how many roots
// each trusts then.
func (x *turnover) renewed(what string, roots int) {
	x.t.Helper()
	was := map[string]string{}
	for _, m := range x.machines {
		was[m.name] = m.serial(x.t)
	}
	x.until(what, func() error {
		for _, m := range x.machines {
			if m.serial(x.t) == was[m.name] {
				return fmt.Errorf("%s has the same\n%s", m.name, m.keeper.output())
			}
		}
		return nil
	})
	for _, m := range x.machines {
		text, err := os.ReadFile(filepath.Join(m.dir, enroll.RootsFile))
		if n := bytes.Count(text, []byte("BEGIN CERTIFICATE")); err != nil || n != roots {
			x.t.Errorf("%s: %s trusts %d roots, %v, want %d", what, m.name, n, err, roots)
		}
	}
}

func (m *machine) serial(t testing.TB) string {
	t.Helper()
	held, err := enroll.Read(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	return serial(held.Pair.Leaf)
}

// restart kills a server, and starts it again after a change.
func (x *turnover) restart(which int) {
	x.t.Helper()
	s := x.servers[which]
	x.down = which
	s.kill()
	x.count(s)
	x.change()
	s.start()
	x.down = -1
	x.change()
}

// expectUnharmed ends the requests. None may have failed, and no client may have been refused.
func (x *turnover) expectUnharmed() {
	x.t.Helper()
	for _, l := range x.loads {
		l.expectUnharmed()
	}
	for _, s := range x.servers {
		x.count(s)
		s.expectNothingRejected()
	}
	if x.replaced == 0 {
		x.t.Error("no stream has ended with its certificate")
	}
	for _, m := range x.machines {
		m.proxy.expectNothingRejected()
		again := command(x.t, "", "certificate", "request", "--token-file", m.token, "--out", m.dir+"-again", "--server", "https://"+x.mesh, "--ca", m.files().CA)
		if again.code == 0 || !strings.Contains(again.stderr, "expired at") {
			x.t.Errorf("the join token of %s is long expired: %+v", m.name, again)
		}
	}
	x.t.Logf("%d changes, the slowest taken after %s; %d streams replaced at the end of their certificates", x.changes, x.slowest.Round(time.Millisecond), x.replaced)
}

// count reads a server's log: it counts ended streams, and fails if a client was refused.
func (x *turnover) count(s doors) {
	x.t.Helper()
	log := s.process.output()
	x.replaced += strings.Count(log, "closing a connection whose certificate or token has expired")
	if strings.Contains(log, "refusing a") {
		x.t.Errorf("somebody was refused:\n%s", log)
	}
}

// TestSoakLifetimes: a gateway and a sidecar over mutual TLS have certificates of seconds,
// which their machines renew long after the join tokens have expired. The root is replaced, or
// a replacement is cancelled; a server is killed and started. No request fails, and each change
// reaches each proxy. In the long form certificates live for 30 seconds.
func TestSoakLifetimes(t *testing.T) {
	needEnvoy(t)
	long := longtest.Soak(t)
	life := 9 * time.Second
	variants := []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld}
	if long > 0 {
		life = 30 * time.Second
	}
	t.Parallel()
	for i, gateway := range variants {
		if i > 0 && long == 0 {
			break
		}
		t.Run("gateway-"+gateway.String(), func(t *testing.T) {
			t.Parallel()
			x, begun := newTurnover(t, life, gateway, variants[1-i]), time.Now()
			x.renewed("with the first root", 1)
			for round := i; round == i || time.Since(begun) < long; round++ {
				one, two := x.servers[round%2], x.servers[(round+1)%2]
				x.restart(round % 2)
				one.must("", "ca", "rotate", "start")
				x.renewed("with both roots", 2)
				if round%2 == 0 {
					two.must("", "ca", "rotate", "finish", "--force")
				} else {
					two.must("", "ca", "rotate", "abort")
				}
				x.renewed("with one root", 1)
			}
			t.Logf("%.1f lifetimes", float64(time.Since(begun))/float64(life))
			x.expectUnharmed()
		})
	}
}
