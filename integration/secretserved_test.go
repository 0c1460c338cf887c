package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestKeysAreInNoDump: neither the server's reports about an Envoy with TLS, and about itself,
// nor the Envoy's dump contain a key.
func TestKeysAreInNoDump(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{args: []string{"--log-level", "debug", "--pprof"}}), newShop(t)
	names, all, keys := []string{"door", "window", "hatch"}, []secrettest.Pair(nil), scanner{}
	documents := []string{x.entry(x.v1), secureGateway(x.gateway, names...)}
	for _, name := range names {
		pair := secrettest.New(t, 24*time.Hour, name+".shop.test")
		keys.add(t, "the key of "+name, pair)
		all, documents = append(all, pair), append(documents, tlsSecret(name, pair))
	}
	s.apply(documents...)
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	for i, name := range names {
		newTLSClient(x.gateway, name+".shop.test", all...).awaitCertificate(t, all[i])
	}
	seen := map[string][]byte{}
	for _, args := range [][]string{
		{"proxy", "config", "all", "edge", "-o", "json"}, {"proxy", "config", "all", "edge"}, {"proxy", "config", "secret", "edge"}, {"proxy", "status", "-o", "json"}, {"proxy", "diff", "edge"},
		{"describe", "gateway/secure", "-n", "shop", "-o", "json"}, {"describe", "secret/door", "-n", "shop"}, {"get", "gateways", "-n", "shop", "-o", "yaml"},
		{"explain", "gateway/shop/secure", "door.shop.test"}, {"analyze", "-o", "json"},
	} {
		out := s.try("", args...)
		seen["portolan "+strings.Join(args, " ")] = []byte(out.stdout + out.stderr)
	}
	for _, pair := range all {
		for _, form := range []string{"portolan proxy config secret edge", "portolan proxy config all edge -o json"} {
			if serial := pair.Parsed.SerialNumber.Text(16); !strings.Contains(string(seen[form]), serial) {
				t.Errorf("%s lacks the serial %s:\n%s", form, serial, seen[form])
			}
		}
	}
	for _, want := range []string{"listener 127.0.0.1_", "CN=door.shop.test"} {
		if form := "portolan proxy config secret edge"; !strings.Contains(string(seen[form]), want) {
			t.Errorf("%s lacks %q:\n%s", form, want, seen[form])
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2", "/readyz?verbose"} {
		text, err := s.get(path, nil)
		if err != nil {
			t.Error(err)
		}
		seen[path] = text
	}
	dump, err := edge.get("/config_dump?include_eds")
	if err != nil {
		t.Fatal(err)
	}
	seen["the Envoy's dump"], seen["the log"], seen["the Envoy's log"] = dump, []byte(s.process.output()), []byte(edge.process.output())
	for where, content := range seen {
		for _, what := range keys.scan(content) {
			t.Errorf("%s has %s", where, what)
		}
	}
	if !strings.Contains(string(dump), "kubernetes://door") {
		t.Error("the Envoy's dump does not name the secret")
	}
}

// TestAServerWithoutTheKeyServesAllElse: if a server cannot open secrets, its proxies get
// everything except what needs them. With the key they get that too, without a restart.
func TestAServerWithoutTheKeyServesAllElse(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		etcd, dir := startEtcd(t), t.TempDir()
		start := func(name string) *server {
			return startServer(t, serverOptions{etcd: etcd, args: []string{"--api-socket", filepath.Join(dir, name+".sock"), "--sealing-key", filepath.Join(dir, name+".key")}})
		}
		one, two, x, secure := start("one"), start("two"), newShop(t), freePort(t)
		pair, renewed := secrettest.New(t, 24*time.Hour, "door.shop.test"), secrettest.New(t, 24*time.Hour, "door.shop.test")
		one.apply(x.all(100, 0), secureGateway(secure, "door"), tlsSecret("door", pair))
		door := newTLSClient(secure, "door.shop.test", pair, renewed)
		edge := one.startEnvoy(envoyOptions{kind: "router", name: "first", labels: "app=edge", variant: v})
		door.awaitCertificate(t, pair)
		edge.process.kill()

		two.awaitRevision(one.revision())
		edge = two.startEnvoy(envoyOptions{kind: "router", name: "second", labels: "app=edge", ip: "10.0.0.2", variant: v})
		awaitReply(t, x.atGateway("/"), "v1")
		door.awaitRefused(t)
		if text, err := two.get("/readyz?verbose", nil); err != nil || !strings.Contains(string(text), "secret/shop/door: sealing key") {
			t.Errorf("%s, %v", text, err)
		}
		handed := filepath.Join(dir, "handed")
		if err := os.WriteFile(handed, []byte(one.must("", "secret", "key", "export")), 0o600); err != nil {
			t.Fatal(err)
		}
		two.must("", "secret", "key", "import", handed)
		door.awaitCertificate(t, pair)
		one.apply(tlsSecret("door", renewed))
		door.awaitCertificate(t, renewed)
		two.apply(tlsSecret("door", pair))
		door.awaitCertificate(t, pair)
		two.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// awaitRevision waits until the server has read the store up to a revision.
func (s *server) awaitRevision(revision int64) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the server has revision %d", revision), func() error {
		if got := s.revision(); got < revision {
			return fmt.Errorf("it has %d", got)
		}
		return nil
	})
}

// TestStrangersGetNoSecrets: a proxy that requests a secret which no Gateway of its own names
// gets nothing: not by name, by wildcard, or over SDS. The server counts and logs that.
func TestStrangersGetNoSecrets(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		first, second := secrettest.New(t, 24*time.Hour, "door.shop.test"), secrettest.New(t, 24*time.Hour, "door.shop.test")
		s.apply(x.entry(x.v1), secureGateway(x.gateway, "door"), tlsSecret("door", first), tlsSecret("unused", second))
		guesses := []string{
			"kubernetes://unused", "kubernetes://unused-cacert", "kubernetes://shop/door", "shop/door", "door", "kubernetes-gateway://shop/door", "default", "ROOTCA",
			"file-cert:/etc/shadow~/etc/shadow", "file-root:/etc/shadow",
		}
		app := map[string]string{"app": "edge"}
		owner := connect(t, s, xdstest.ClientOptions{Node: xdstest.NewNode("router", "10.0.0.1", "edge", "shop", app), Variant: v})
		owner.Subscribe(resource.SecretType, append(guesses, "kubernetes://door")...)
		strangers := map[string]*xdstest.Client{}
		for name, o := range map[string]struct {
			kind, namespace string
			labels          map[string]string
			names           []string
		}{
			"another namespace": {"router", "other", app, append(guesses, "kubernetes://door")},
			"another gateway":   {"router", "shop", nil, append(guesses, "kubernetes://door")},
			"a sidecar":         {"sidecar", "shop", app, append(guesses, "kubernetes://door")},
			"a wildcard":        {"router", "shop", app, []string{"*"}},
			"no name":           {"router", "shop", app, nil},
		} {
			for _, only := range []bool{false, true} {
				c := xdstest.Dial(t, s.xds, xdstest.ClientOptions{
					Node:    xdstest.NewNode(o.kind, fmt.Sprintf("10.0.1.%d", len(strangers)+1), fmt.Sprintf("stranger-%d", len(strangers)), o.namespace, o.labels),
					Variant: v, Secrets: only,
				})
				if !only {
					c.Subscribe(xdstest.ClusterType)
				}
				c.Subscribe(resource.SecretType, o.names...)
				strangers[fmt.Sprintf("%s, service of secrets %t", name, only)] = c
			}
		}
		held := func(c *xdstest.Client) string {
			return string(c.Held(resource.SecretType)["kubernetes://door"].Body.GetValue())
		}
		await := func(what, but string) {
			owner.Await(what, func(held func(string) map[string]xdstest.Held) bool {
				got := string(held(resource.SecretType)["kubernetes://door"].Body.GetValue())
				return got != "" && got != but
			})
		}
		await("the owner has its secret", "")
		const asking = 6 // how many strangers request secrets by name
		counted := 0
		eventually(t, "what strangers ask for is counted", func() error {
			counted = s.counter("portolan_xds_refused_secrets_total")
			if want := asking*(len(guesses)+1) + len(guesses); counted < want {
				return fmt.Errorf("%d, want %d", counted, want)
			}
			return nil
		})
		before := held(owner)
		s.apply(tlsSecret("door", second), tlsSecret("unused", first))
		await("the owner has its new secret", before)
		for name, c := range strangers {
			if got := c.Held(resource.SecretType); len(got) > 0 {
				t.Errorf("%s: %d secrets were given away", name, len(got))
			}
		}
		if got := owner.Held(resource.SecretType); len(got) != 1 {
			t.Errorf("the owner of one secret has %d", len(got))
		}
		lines := strings.Split(s.process.output(), "\n")
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "proxy requests secrets that it is not given") && strings.Contains(line, "namespace=other")
		}) {
			t.Error("the log does not say who asks")
		}
	})
}

// counter returns the value of a metric without labels.
func (s *server) counter(metric string) int {
	s.t.Helper()
	text, err := s.get("/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		var value float64
		if n, _ := fmt.Sscanf(line, metric+" %g", &value); n == 1 {
			return int(value)
		}
	}
	return 0
}
