package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// consulHost is the host of the service in the scenarios with Consul.
const consulHost = "shop.service.consul"

// consulScene is a server that follows a Consul, and a sidecar.
type consulScene struct {
	*server
	t     testing.TB
	agent *consulAgent
	port  int // of the service
	envoy *envoy
	took  []time.Duration
}

func startConsulScene(t testing.TB, o consulOptions, args ...string) *consulScene {
	t.Helper()
	needEnvoy(t)
	c := &consulScene{t: t, agent: startConsul(t, o), port: freePort(t)}
	c.server = startServer(t, serverOptions{args: append([]string{"--consul-address", c.agent.url}, args...)})
	c.envoy = c.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	return c
}

func (c *consulScene) request() request { return request{port: c.port, host: consulHost} }

// answered waits until exactly these upstreams answer requests, and notes how long that took.
func (c *consulScene) answered(what string, names ...string) {
	c.t.Helper()
	slices.Sort(names)
	client, began := clientOf(c.t), time.Now()
	eventually(c.t, what+": answered by "+strings.Join(names, ", "), func() error {
		seen := map[string]int{}
		for range 6 * len(names) {
			got, err := do(c.t.Context(), client, c.request())
			if err != nil {
				return err
			}
			seen[got.String()]++
		}
		if got := typesOf(seen); !slices.Equal(got, names) {
			return fmt.Errorf("by %v", seen)
		}
		return nil
	})
	c.took = append(c.took, time.Since(began))
	c.t.Logf("%s: %s", what, c.took[len(c.took)-1].Round(time.Millisecond))
}

// expectSoon fails if traffic took more than a second to follow, by the median: the machine may
// be busy once.
func (c *consulScene) expectSoon() {
	c.t.Helper()
	slices.Sort(c.took)
	if middle := c.took[len(c.took)/2]; late(middle, time.Second) {
		c.t.Errorf("traffic follows Consul after %s", c.took)
	}
}

// consulStatus returns the status that the registry reports.
func (c *consulScene) consulStatus() consul.DatacenterStatus {
	c.t.Helper()
	var s consul.Status
	if _, err := c.get("/apis/portolan.io/v1/consul", &s); err != nil {
		c.t.Fatal(err)
	}
	return s.Datacenters[0]
}

// awaitDegraded waits until the registry reports a problem with some words, in /readyz too.
// Empty words mean no problem.
func (c *consulScene) awaitDegraded(words string) {
	c.t.Helper()
	eventually(c.t, "the status has "+words, func() error {
		got := c.consulStatus().Degraded
		if (words == "") != (got == "") || !strings.Contains(got, words) {
			return fmt.Errorf("it is %q", got)
		}
		ready, err := c.get("/readyz", nil)
		if err == nil && !strings.Contains(string(ready), words) {
			err = fmt.Errorf("/readyz: %s", ready)
		}
		return err
	})
}

// TestConsulTraffic changes a service in Consul in every way while requests run. Traffic
// follows, and no request fails that a healthy instance could serve.
func TestConsulTraffic(t *testing.T) {
	t.Parallel()
	c := startConsulScene(t, consulOptions{})
	var up []*upstream
	for i := range 4 {
		up = append(up, startUpstream(t, fmt.Sprint("u", i)))
	}
	for i, u := range up[:3] {
		c.agent.register("shop", u.name, u, c.port, fmt.Sprint("version=v", i))
	}
	awaitReply(t, c.request(), "u0")
	c.answered("registered", "u0", "u1", "u2")
	l := startLoad(t, "sidecar", c.request())
	l.sample(50)

	c.agent.fail("u0")
	c.answered("a check fails", "u1", "u2")
	up[0].stop()
	c.agent.deregister("u1")
	c.answered("deregistered", "u2")
	up[1].stop()
	c.agent.register("shop", "u3", up[3], c.port, "version=v3")
	c.answered("registered again", "u2", "u3")

	c.apply(toVersion("shop", consulHost, "v2"))
	c.answered("a subset by tag", "u2")
	c.agent.register("shop", "u3", up[3], c.port, "version=v2")
	c.answered("other tags", "u2", "u3")
	c.agent.register("shop", "u2", up[2], c.port, "version=v1")
	c.answered("other tags", "u3")

	c.agent.process.kill()
	c.awaitDegraded("Consul cannot be read")
	if n := c.counters("portolan_consul_request_failures_total", "datacenter")["local"]; n == 0 {
		t.Error("no failure was counted")
	}
	c.answered("Consul is away", "u3")
	c.agent.start()
	c.awaitDegraded("")
	c.agent.register("shop", "u2", up[2], c.port, "version=v2")
	c.answered("Consul is back", "u2", "u3")
	l.expectUnharmed()
	c.expectSoon()
	c.expectNothingRejected()
	c.envoy.expectNothingRejected()
	if log := c.process.output(); strings.Contains(log, "has lost its data") {
		t.Errorf("a restart was taken for a loss of data:\n%s", c.process.tail())
	}
}

// TestConsulLosesEverything: Consul comes back empty. What it had is still served. For what is
// registered again, Consul counts.
func TestConsulLosesEverything(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]string{"another server": "", "a server of the same id": "7d0f2a54-6bb5-4d0b-9a53-1c1f2f3a4b5c"} {
		t.Run(name, func(t *testing.T) { losesEverything(t, consulOptions{node: node}) })
	}
}

func losesEverything(t *testing.T, o consulOptions) {
	c := startConsulScene(t, o, "--consul-reset-hold", "8s")
	one, two := startUpstream(t, "one"), startUpstream(t, "two")
	c.agent.register("shop", "one", one, c.port)
	c.agent.register("shop", "two", two, c.port)
	awaitReply(t, c.request(), "one")
	c.answered("registered", "one", "two")
	l := startLoad(t, "sidecar", c.request())
	c.agent.process.kill()
	c.agent.must(os.RemoveAll(dataOf(t, c.agent)))
	c.agent.start()
	c.awaitDegraded("lost its data")
	c.answered("an empty Consul", "one", "two")
	c.agent.register("shop", "two", two, c.port)
	c.awaitDegraded("1 instances that it had are served")
	l.expectUnharmed()
	c.answered("what did not come back is gone", "two")
	c.awaitDegraded("")
}

// dataOf returns the data directory of a Consul.
func dataOf(t testing.TB, c *consulAgent) string {
	t.Helper()
	content, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		DataDir string `json:"data_dir"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	return config.DataDir
}

// TestConsulToken: Consul requires a token, revokes it, and accepts another.
func TestConsulToken(t *testing.T) {
	t.Parallel()
	const root = "2f0ac5b1-8f2a-4f0e-9f43-8f7b0e1f4a10"
	file := filepath.Join(t.TempDir(), "token")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(file, []byte(root+"\n"), 0o600))
	c := startConsulScene(t, consulOptions{root: root}, "--consul-token-file", file)
	policy, _, err := c.agent.ACL().PolicyCreate(&api.ACLPolicy{
		Name: "reader", Rules: `node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`,
	}, nil)
	must(err)
	newToken := func() *api.ACLToken {
		token, _, err := c.agent.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
		must(err)
		must(os.WriteFile(file, []byte(token.SecretID), 0o600))
		return token
	}
	one, two := startUpstream(t, "one"), startUpstream(t, "two")
	first := newToken()
	c.agent.register("shop", "one", one, c.port)
	c.answered("registered", "one")
	l := startLoad(t, "sidecar", c.request())

	_, err = c.agent.ACL().TokenDelete(first.AccessorID, nil)
	must(err)
	c.agent.register("shop", "two", two, c.port) // ends the blocking queries
	c.awaitDegraded("the token is refused")
	second := newToken()
	c.awaitDegraded("")
	c.answered("with another token", "one", "two")

	// With a token that may no longer read, Consul shows nothing. The registry removes nothing.
	_, err = c.agent.ACL().PolicyDelete(policy.ID, nil)
	must(err)
	c.agent.deregister("two")
	c.awaitDegraded("the token reads nothing")
	c.answered("with a token without rights", "one", "two")
	must(os.WriteFile(file, []byte(root), 0o600))
	c.agent.register("shop", "three", one, c.port)
	l.expectUnharmed()
	if log := c.process.output(); strings.Contains(log, root) || strings.Contains(log, first.SecretID) || strings.Contains(log, second.SecretID) {
		t.Error("the log has a token")
	}
	c.expectNothingRejected()
}

// TestConsulAndServiceEntry has one host in both. The ServiceEntry defines the service, the
// endpoints of both count, and each can go without the other.
func TestConsulAndServiceEntry(t *testing.T) {
	t.Parallel()
	c := startConsulScene(t, consulOptions{})
	one, two := startUpstream(t, "one"), startUpstream(t, "two")
	entry := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop, namespace: consul}
spec:
  hosts: [$host]
  resolution: STATIC
  ports: [{number: $port, name: http-$port, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http-$port: $target}}]
`, "$host", consulHost, "$port", c.port, "$target", two.port)
	c.agent.register("shop", "one", one, c.port)
	awaitReply(t, c.request(), "one")
	l := startLoad(t, "sidecar", c.request())
	c.apply(entry)
	c.answered("both", "one", "two")
	c.remove(entry)
	c.answered("Consul alone", "one")
	c.apply(entry)
	c.answered("both", "one", "two")
	c.agent.deregister("one")
	c.answered("the ServiceEntry alone", "two")
	l.expectUnharmed()
	c.expectNothingRejected()
}

// TestConsulRequestsPerChange counts the requests for one changed instance, by Consul's own
// counter. With few services, or over TLS with hundreds, they are the query of the service and
// sometimes that of the list. With 5,000 services on dozens of nodes they are the queries of
// the node, the service, the list, and two of checks. Consul answers the latter even if no
// check is in the requested state. In all cases the server sends one response with endpoints.
func TestConsulRequestsPerChange(t *testing.T) {
	for name, scale := range map[string]struct {
		by              string
		services, nodes int
		secure          bool
		most            int // requests for one change
	}{
		"few": {"service", 50, 5, false, 2}, "many": {"node", 5000, 40, false, 5}, "over TLS": {"service", 300, 200, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			agent := startConsul(t, consulOptions{secure: scale.secure})
			agent.catalogue(scale.services, scale.nodes)
			args := []string{"--consul-address", agent.url, "--log-level", "debug"}
			if scale.secure {
				args = []string{"--consul-address", agent.secureURL, "--consul-ca", agent.ca, "--log-level", "debug"}
			}
			began := time.Now()
			s := startServer(t, serverOptions{args: args})
			c := &consulScene{t: t, server: s, agent: agent}
			status := c.consulStatus()
			t.Logf("%d services by %s: ready after %s, %d queries wait", status.Services, status.By, time.Since(began).Round(time.Millisecond), status.Queries)
			if status.By != scale.by || status.Services != scale.services || status.Queries > status.Limit {
				t.Fatalf("%+v", status)
			}
			client := connect(t, s, xdstest.ClientOptions{
				Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: protocol.Delta, Follow: true,
			})
			client.Await("all endpoints", func(held func(string) map[string]xdstest.Held) bool {
				return len(held(xdstest.EndpointType)) >= scale.services
			})
			const changes = 8
			queries, responses, requests := agent.settled(), s.responses(), s.counters("portolan_consul_requests_total", "query")
			for i := range changes {
				name := fmt.Sprintf("outbound|8080||s%d.service.consul", i)
				before := client.Held(xdstest.EndpointType)[name].Version
				agent.weigh(i, scale.nodes, i+2)
				client.Await("the endpoints of "+name, func(held func(string) map[string]xdstest.Held) bool {
					return held(xdstest.EndpointType)[name].Version != before
				})
			}
			spent := agent.settled() - queries
			requests = less(s.counters("portolan_consul_requests_total", "query"), requests)
			total, own := 0, 6+requests["probe"] // queries of the agent itself, which sometimes compares its state with the servers'
			for _, n := range requests {
				total += n
			}
			t.Logf("%d changes: requests %v, %d queries by Consul's count, responses %v", changes, requests, spent, less(s.responses(), responses))
			if total > scale.most*changes+own || spent > scale.most*changes+own {
				t.Errorf("%d changes cost %d requests, %d queries by Consul's count: more than %d each", changes, total, spent, scale.most)
			}
			expectEqual(t, "responses", less(s.responses(), responses), map[string]int{"EDS": changes})
		})
	}
}

// settled returns the count of queries once it no longer grows.
func (c *consulAgent) settled() int {
	c.t.Helper()
	last, since := c.queries(), time.Now()
	eventually(c.t, "Consul is quiet", func() error {
		if n := c.queries(); n != last {
			last, since = n, time.Now()
		}
		if quiet := time.Since(since); quiet < 700*time.Millisecond {
			return fmt.Errorf("for %s only", quiet)
		}
		return nil
	})
	return last
}
