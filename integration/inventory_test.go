package integration

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEntriesGoWithoutServers: three machines with one address, of two groups and two networks, have
// an entry each. The end of one takes its own alone. When all servers and machines die at once, etcd
// alone ends the entries, and the next server has none.
func TestEntriesGoWithoutServers(t *testing.T) {
	t.Parallel()
	etcd, host := startEtcdWithClient(t)
	o := serverOptions{etcd: host, args: []string{"--machine-lease", storage.MinLease.String()}}
	one, two := startServer(t, o), startServer(t, o)
	group := newGroupWeb(t).group()
	one.apply(group, strings.ReplaceAll(group, "web", "api"))
	web, api := one.agentOf("web", "10.0.0.1", "web"), two.agentOf("api", "10.0.0.1", "api")
	far := two.agentWith("far", "10.0.0.1", map[string]string{"AUTO_REGISTER_GROUP": "web", "NETWORK": "vpc"}, nil)
	names := func() string {
		t.Helper()
		found, err := etcd.Get(t.Context(), entries, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, kv := range found.Kvs {
			out = append(out, string(kv.Key[strings.LastIndexByte(string(kv.Key), '/')+1:]))
		}
		return strings.Join(out, " ")
	}
	await := func(what, want string) {
		t.Helper()
		eventually(t, what, func() error {
			if got := names(); got != want {
				return fmt.Errorf("they are %s, want %s", got, want)
			}
			return nil
		})
	}
	await("all entries", "api-10.0.0.1 web-10.0.0.1 web-10.0.0.1-vpc")
	web.Close()
	await("the entries of the others", "api-10.0.0.1 web-10.0.0.1-vpc")

	one.kill()
	two.kill()
	died := time.Now()
	api.Close()
	far.Close()
	await("no entries", "")
	took := time.Since(died)
	t.Logf("etcd had no entry %v after all servers and machines had died", took.Round(time.Millisecond))
	if late(took, storage.MinLease+time.Second) {
		t.Errorf("the entries were there for %v", took)
	}
	three := startServer(t, o)
	eventually(t, "the history says why", func() error {
		for _, name := range []string{"api-10.0.0.1", "web-10.0.0.1-vpc"} {
			if out := three.must("", "history", "workloadentry/"+name, "-n", "shop"); !strings.Contains(out, storage.LeaseEnded) {
				return fmt.Errorf("of %s: %s", name, out)
			}
		}
		return nil
	})
}

// TestAnEntryFollowsItsNode: machine describe tells where each label of an entry is from, and what
// follows from the node is made anew at each connection, whatever the entry says. A machine can be
// connected and unhealthy.
func TestAnEntryFollowsItsNode(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	s.apply(`
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop, annotations: {portolan.io/node-labels: version}}
spec:
  metadata: {labels: {app: web}}
  template: {serviceAccount: web, network: office, labels: {app: template, tier: front}}
  probe: {tcpSocket: {port: 8080}}
`)
	const name = "web-10.0.0.1"
	// describes waits until machine describe has lines, of fields with blanks between.
	describes := func(what string, lines ...string) {
		t.Helper()
		eventually(t, what, func() error {
			out := s.try("", "machine", "describe", name, "-n", "shop")
			for _, line := range lines {
				if !regexp.MustCompile(`(?m)^` + strings.ReplaceAll(regexp.QuoteMeta(line), " ", " +")).MatchString(out.stdout) {
					return fmt.Errorf("no %q in %+v", line, out)
				}
			}
			return nil
		})
	}
	connect := func(version string) func(codes.Code, string) {
		c := s.agentWith("vm", "10.0.0.1", map[string]string{"AUTO_REGISTER_GROUP": "web"}, map[string]string{"app": "payments", "version": version})
		t.Cleanup(c.Close)
		return c.Report
	}
	connect("v1")
	describes("the labels", "label app=web of metadata of the group", "label tier=front of template of the group",
		"label version=v1 of the node", "label security.istio.io/tlsMode=disabled of the certificate of the proxy")
	eventually(t, "the group says which label its node may not choose", func() error {
		if out := s.must("", "describe", "workloadgroup", "web", "-n", "shop"); !strings.Contains(out, "PTL0232") || !strings.Contains(out, "without the node's labels app") {
			return errors.New(out)
		}
		return nil
	})
	uid := s.entryOf("10.0.0.1").Metadata.UID

	text := s.must("", "get", "workloadentry/"+name, "-n", "shop", "-o", "yaml")
	s.apply(strings.NewReplacer("tlsMode: disabled", "tlsMode: istio", "network: office", "network: old").Replace(text))
	describes("an edit", "label security.istio.io/tlsMode=istio")
	report := connect("v2")
	describes("what a new connection makes of it", "label version=v2 of the node", "label security.istio.io/tlsMode=disabled of the certificate of the proxy")
	if text := s.must("", "get", "workloadentry/"+name, "-n", "shop", "-o", "yaml"); !strings.Contains(text, "network: office") {
		t.Errorf("the entry is %s", text)
	}
	if e := s.entryOf("10.0.0.1"); e.Metadata.UID != uid {
		t.Errorf("the entry was made anew: %+v", e)
	}

	describes("before the first report", "state connected", "health ")
	report(codes.Internal, "connection refused")
	describes("connected, and unhealthy", "state connected", "health UNHEALTHY")
	report(codes.OK, "")
	describes("connected, and healthy", "state connected", "health healthy")
}

// TestTwoEntriesOfOneEndpoint: analyze tells of two WorkloadEntries with one address and port, of two
// networks, and a client has the endpoint once.
func TestTwoEntriesOfOneEndpoint(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	m, s := newGroupWeb(t), startServer(t, serverOptions{})
	entry := func(name, network string) string {
		return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: $name, namespace: shop}
spec: {address: 127.0.0.1, ports: {http: $port}, labels: {app: web}, network: $network}
`, "$name", name, "$port", m.at.port, "$network", network)
	}
	s.apply(m.service(), entry("near", "office"))
	if out := s.try("", "analyze", "-n", "shop"); strings.Contains(out.stdout, "PTL0217") {
		t.Errorf("of one: %+v", out)
	}
	client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.9", variant: protocol.Delta})
	s.awaitSynced(s.apply(entry("far", "vpc")), "client")
	awaitReply(t, m.request(), "here")
	text, err := client.get("/clusters")
	if n := strings.Count(string(text), fmt.Sprintf("outbound|%d||web.shop.test::%s::weight::", m.port, local(m.at.port))); err != nil || n != 1 {
		t.Errorf("the client has the endpoint %d times, %v", n, err)
	}
	for _, want := range []string{"[PTL0217] workloadentry/shop/near: spec.address", "[PTL0217] workloadentry/shop/far: spec.address", `in network "vpc", and this one in "office"`} {
		eventually(t, "analyze tells it", func() error {
			if out := s.try("", "analyze", "-n", "shop"); !strings.Contains(out.stdout, want) {
				return fmt.Errorf("no %q in %+v", want, out)
			}
			return nil
		})
	}
}
