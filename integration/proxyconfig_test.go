package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// dumped returns Envoy's config dump.
func (e *envoy) dumped() ([]byte, error) { return e.get("/config_dump?include_eds") }

// compareWithDump compares the output of proxy config for an Envoy with the Envoy's own dump,
// resource by resource, including names and versions that the dump lists. It returns the number
// of resources of each type.
func (s *server) compareWithDump(e *envoy) (map[string]int, error) {
	out := s.try("", "proxy", "config", "all", e.name, "-o", "json")
	if out.code != 0 {
		return nil, fmt.Errorf("exit code %d: %s", out.code, out.stderr)
	}
	var config admin.ProxyConfig
	if err := json.Unmarshal([]byte(out.stdout), &config); err != nil {
		return nil, err
	}
	text, err := e.dumped()
	if err != nil {
		return nil, err
	}
	dump, err := admin.ReadDump(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if dump.Node != config.Proxy.Node {
		return nil, fmt.Errorf("the dump is of %q, the configuration of %q", dump.Node, config.Proxy.Node)
	}
	listed, err := e.acceptedResources()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, typ := range config.Types {
		dumped, has := dump.Resources[typ.TypeURL], map[string]proto.Message{}
		for i := range typ.Resources {
			r := &typ.Resources[i]
			if has[r.Name], err = r.Has(); err != nil {
				return nil, err
			}
			if section, ok := dumpSections[typ.TypeURL]; ok && config.Proxy.Variant == "delta" && listed[section+r.Name].Version != r.Version {
				return nil, fmt.Errorf("%s %s has version %q, and %q in the dump", typ.Name, r.Name, r.Version, listed[section+r.Name].Version)
			}
		}
		maps.DeleteFunc(dumped, func(name string, _ proto.Message) bool { return has[name] == nil && dump.Drains(typ.TypeURL, name) })
		if got, want := slices.Sorted(maps.Keys(has)), slices.Sorted(maps.Keys(dumped)); !slices.Equal(got, want) {
			return nil, fmt.Errorf("%s: %v, and in the dump %v", typ.Name, got, want)
		}
		for name, message := range has {
			theirs, ours := admin.Comparable(dumped[name], message)
			if !proto.Equal(theirs, ours) {
				return nil, fmt.Errorf("%s %s: %v, and in the dump %v", typ.Name, name, ours, theirs)
			}
			counts[typ.Name]++
		}
	}
	return counts, nil
}

// dumpSections are the sections of a dump that list the versions of resources.
var dumpSections = map[string]string{resource.ClusterType: "active_clusters ", resource.ListenerType: "listeners "}

// expectDump waits until proxy config equals the Envoy's own dump, with at least these types,
// and proxy diff finds no difference in either way of comparing.
func (s *server) expectDump(what string, e *envoy, types ...string) {
	s.t.Helper()
	eventually(s.t, what+": proxy config of "+e.name+" is its dump", func() error {
		counts, err := s.compareWithDump(e)
		for _, typ := range types {
			if err == nil && counts[typ] == 0 {
				err = fmt.Errorf("there are no resources of type %s", typ)
			}
		}
		return err
	})
	if out := s.try("", "proxy", "diff", e.name); out.code != 0 || out.stdout != "" {
		s.t.Errorf("%s: proxy diff %s: exit code %d\n%s%s", what, e.name, out.code, out.stdout, out.stderr)
	}
	text, err := e.dumped()
	if err != nil {
		s.t.Fatal(err)
	}
	if out := s.try(string(text), "proxy", "diff", e.name, "--dump", "-"); out.code != 0 || out.stdout != "" {
		s.t.Errorf("%s: proxy diff %s --dump: exit code %d\n%s%s", what, e.name, out.code, out.stdout, out.stderr)
	}
}

// outsideService is a service whose host Envoys resolve, and one with localities, weights and
// health states.
func outsideService(dns, weighted int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [localhost]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: $dns, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: weighted, namespace: shop}
spec:
  hosts: [weighted.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $weighted, name: tcp, protocol: TCP}]
  endpoints:
  - {address: 10.9.0.3, locality: eu/b, weight: 3}
  - {address: 10.9.0.1, locality: eu/a/1}
  - {address: 10.9.0.2, locality: eu/a/1, weight: 7, labels: {version: v1}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: weighted, namespace: shop}
spec:
  host: weighted.shop.test
  trafficPolicy:
    loadBalancer: {simple: ROUND_ROBIN, localityLbSetting: {enabled: true, distribute: [{from: "*", to: {"eu/a/*": 80, "eu/b/*": 20}}]}}
    outlierDetection: {consecutive5xxErrors: 5}
`, "$dns", dns, "$weighted", weighted)
}

// TestProxyConfigIsTheDump compares the output of proxy config for a gateway and a sidecar with
// their own dumps: at first, after changes and after removals.
func TestProxyConfigIsTheDump(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		x := newShop(t)
		outside := outsideService(freePort(t), freePort(t))
		s.apply(x.all(90, 10), outside)
		edge, client := s.startPair(v)
		hosts := map[protocol.Variant]string{protocol.Delta: "VHDS", protocol.StateOfTheWorld: "RDS"}[v]
		for i, change := range []func() int64{
			s.revision,
			func() int64 { return s.apply(x.routes(50, 50)) },
			func() int64 { return s.apply(x.entry(x.v2)) },
			func() int64 { return s.apply(x.entry(x.v1, x.v2), fill(tunedRule, "$host", shopHost)) },
			func() int64 { return s.remove(x.routes(50, 50)) },
			func() int64 { return s.apply(x.routes(10, 90)) },
		} {
			s.awaitSynced(change(), "edge", "client")
			what := fmt.Sprintf("change %d", i)
			s.expectDump(what, client, "CDS", "EDS", "LDS", "RDS", hosts)
			s.expectDump(what, edge, "CDS", "EDS", "LDS", "RDS")
		}
		for args, want := range map[string]string{
			"cluster client --subset v1":                   "destinationrule/shop/reviews,serviceentry/shop/reviews",
			"listener edge":                                "gateway/shop/edge",
			"route client --name " + fmt.Sprint(x.service): "virtualservice/shop/reviews",
			"endpoint client":                              local(x.v1.port),
		} {
			if out := s.must("", append([]string{"proxy", "config"}, strings.Fields(args)...)...); !strings.Contains(out, want) {
				t.Errorf("proxy config %s does not say %s:\n%s", args, want, out)
			}
		}
		// The listeners drain, and their routes remain for a while.
		s.awaitSynced(s.remove(outside), "edge", "client")
		s.expectDump("a service that is gone", client, "CDS", "EDS", "LDS", "RDS")
		s.awaitSynced(s.remove(x.door()), "edge", "client")
		s.expectDump("a gateway that is gone", edge, "CDS")
		s.expectNothingRejected()
	})
}

// TestProxyDiffOfARefusal: while an Envoy rejects a listener, both ways of comparing show a
// difference. It goes when the Envoy accepts a better one.
func TestProxyDiffOfARefusal(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		x := newShop(t)
		s.apply(x.all(100, 0))
		edge, _ := s.startPair(v)
		s.expectDump("before", edge, "LDS")
		blocked := func(port int) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: blocked, namespace: shop}
spec:
  selector: {app: edge}
  servers: [{port: {number: $port, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*"]}]
`, "$port", port)
		}
		taken := takenPort(t)
		s.apply(blocked(taken))
		name := fmt.Sprint("127.0.0.1_", taken)
		eventually(t, "the refusal is a difference", func() error {
			out := s.try("", "proxy", "diff", "edge")
			for _, want := range []string{"# the proxy refused it", "of gateway/shop/blocked", "+++ LDS " + name + "\tintended"} {
				if !strings.Contains(out.stdout, want) {
					return fmt.Errorf("exit code %d, without %q:\n%s%s", out.code, want, out.stdout, out.stderr)
				}
			}
			if out.code != 2 {
				return fmt.Errorf("exit code %d", out.code)
			}
			return nil
		})
		text, err := edge.dumped()
		if err != nil {
			t.Fatal(err)
		}
		if out := s.try(string(text), "proxy", "diff", "edge", "--dump", "-"); out.code != 2 || !strings.Contains(out.stdout, "+++ LDS "+name+"\tintended") {
			t.Errorf("proxy diff --dump: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
		}
		if out := s.try(string(text), "proxy", "diff", "client", "--dump", "-"); out.code != 65 || !strings.Contains(out.stderr, "it is of router~") {
			t.Errorf("the dump of another proxy: exit code %d\n%s", out.code, out.stderr)
		}
		s.awaitSyncedAgain(s.apply(blocked(freePort(t))), "edge")
		s.expectDump("after", edge, "LDS")
	})
}

// awaitSyncedAgain is awaitSynced for a proxy that still has a rejection.
func (s *server) awaitSyncedAgain(revision int64, name string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%s acknowledges revision %d", name, revision), func() error {
		connected, err := s.proxies()
		if err == nil && !syncedAt(connected[name], revision) {
			err = fmt.Errorf("%+v", connected[name].Types)
		}
		return err
	})
}

// TestProxyDiffOfASlowProxy: a stopped Envoy has not answered the last response.
func TestProxyDiffOfASlowProxy(t *testing.T) {
	s := startServer(t, serverOptions{})
	x := newShop(t)
	s.apply(x.all(100, 0))
	edge, _ := s.startPair(protocol.Delta)
	edge.process.Pause()
	s.apply(x.routes(50, 50))
	eventually(t, "it is behind", func() error {
		if out := s.try("", "proxy", "diff", "edge"); out.code != 2 || !strings.Contains(out.stdout, "# the proxy has not answered yet") {
			return fmt.Errorf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
		}
		return nil
	})
	edge.process.Resume()
	s.awaitSynced(s.revision(), "edge", "client")
	s.expectDump("it has caught up", edge, "CDS", "EDS", "LDS", "RDS")
}

// TestProxyConfigOfAnotherServer: a server that does not have the proxy redirects the command
// line to the one that does.
func TestProxyConfigOfAnotherServer(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	x := newShop(t)
	one.apply(x.all(100, 0))
	two.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	eventually(t, "the other server has the proxy", func() error {
		out := one.try("", "proxy", "config", "listener", "edge")
		if out.code != 0 || !strings.Contains(out.stdout, "gateway/shop/edge") {
			return fmt.Errorf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
		}
		return nil
	})
	if _, err := one.get(admin.ProxyConfigPath+"?node=edge", nil); err == nil || !strings.Contains(err.Error(), "--server http://"+two.api) {
		t.Errorf("the server without the proxy answers %v", err)
	}
	if out := one.try("", "proxy", "diff", "edge"); out.code != 0 {
		t.Errorf("proxy diff: exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	if out := one.try("", "proxy", "config", "all", "nobody"); out.code == 0 || !strings.Contains(out.stderr, "no proxy is called nobody") {
		t.Error(errors.New(out.stderr))
	}
}
