package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// consulBinary is where `make consul` puts Consul.
const consulBinary = "../.tools/consul"

// needConsul skips a test where there is no Consul, but fails it in CI.
func needConsul(t testing.TB) string {
	t.Helper()
	return builtTool(t, "Consul", consulBinary, "consul")
}

// consulAgent is a Consul with one server and default limits.
type consulAgent struct {
	*api.Client
	t      testing.TB
	url    string
	config string // the file
	// secureURL is the HTTPS URL, and ca the file with the authority of its certificate.
	secureURL, ca string
	process       *process
}

// consulOptions are the options of a Consul.
type consulOptions struct {
	// root is the token with all rights; empty disables ACLs.
	root string
	// secure makes it serve HTTPS too, and sets secureURL and ca.
	secure bool
	// node is the id of the server, which stays the same even without its data; empty for a
	// random one.
	node string
	// connections is how many connections Consul accepts from one address, 0 for its default.
	connections int
}

// startConsul runs a Consul until the test ends.
func startConsul(t testing.TB, o consulOptions) *consulAgent {
	t.Helper()
	needConsul(t)
	port := freePort(t)
	config := map[string]any{
		"data_dir": filepath.Join(t.TempDir(), "consul"), "server": true, "bootstrap_expect": 1, "node_name": "server",
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "log_level": "warn", "disable_update_check": true,
		"ports": map[string]int{
			"http": port, "dns": -1, "grpc": -1, "https": -1, "serf_wan": -1, "server": freePort(t), "serf_lan": freePort(t),
		},
		"performance": map[string]any{"raft_multiplier": 1},
		"telemetry":   map[string]any{"prometheus_retention_time": "10m", "disable_hostname": true},
	}
	if o.connections > 0 {
		config["limits"] = map[string]any{"http_max_conns_per_client": o.connections}
	}
	if o.node != "" {
		config["node_id"] = o.node
	}
	if o.root != "" {
		config["acl"] = map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]any{"initial_management": o.root, "agent": o.root},
		}
	}
	c := &consulAgent{t: t, url: "http://" + local(port)}
	if o.secure {
		c.secureURL = "https://" + local(freePort(t))
		c.ca = secureConsul(t, config, c.secureURL)
	}
	document, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c.config = write(t, "consul.json", string(document))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	if c.Client, err = api.NewClient(&api.Config{
		Address: local(port), Token: o.root, HttpClient: &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}); err != nil {
		t.Fatal(err)
	}
	c.start()
	return c
}

// secureConsul adds HTTPS to a configuration, and returns the file with the authority of the
// certificate.
func secureConsul(t testing.TB, config map[string]any, address string) (ca string) {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"tls", "ca", "create"}, {"tls", "cert", "create", "-server"}} {
		c := exec.CommandContext(t.Context(), needConsul(t), args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("consul %v: %v\n%s", args, err, out)
		}
	}
	port, err := strconv.Atoi(address[strings.LastIndex(address, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	config["ports"].(map[string]int)["https"] = port
	ca = filepath.Join(dir, "consul-agent-ca.pem")
	config["ca_file"] = ca
	config["cert_file"] = filepath.Join(dir, "dc1-server-consul-0.pem")
	config["key_file"] = filepath.Join(dir, "dc1-server-consul-0-key.pem")
	return ca
}

// start runs the agent, with the data of an earlier run, and waits until it has a leader and is
// itself in the catalogue.
func (c *consulAgent) start() {
	c.t.Helper()
	c.process = start(c.t, "consul", needConsul(c.t), "agent", "-config-file", c.config)
	eventually(c.t, "Consul has a leader", func() error {
		servers, _, err := c.Health().Service("consul", "", true, nil)
		if err == nil && len(servers) == 0 {
			err = errors.New("it has no server yet")
		}
		return err
	})
}

// register registers an instance at an upstream with the agent. Its check passes until the test
// calls fail.
func (c *consulAgent) register(service, id string, u *upstream, port int, tags ...string) {
	c.t.Helper()
	c.must(c.Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: id, Name: service, Address: "127.0.0.1", Port: u.port, Tags: tags,
		Meta:  map[string]string{"protocol": "http", "portolan-port": fmt.Sprint(port)},
		Check: &api.AgentServiceCheck{CheckID: "check-" + id, TTL: "10m", Status: api.HealthPassing},
	}))
	// After a restart the agent still knows the result of a check.
	c.must(c.Agent().UpdateTTL("check-"+id, "", api.HealthPassing))
}

// fail makes the check of an instance critical.
func (c *consulAgent) fail(id string) {
	c.t.Helper()
	c.must(c.Agent().UpdateTTL("check-"+id, "it is told to fail", api.HealthCritical))
}

// deregister removes an instance.
func (c *consulAgent) deregister(id string) {
	c.t.Helper()
	c.must(c.Agent().ServiceDeregister(id))
}

func (c *consulAgent) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// queries returns the number of queries that Consul has answered or holds, by its own counter.
func (c *consulAgent) queries() int {
	c.t.Helper()
	response, err := http.Get(c.url + "/v1/agent/metrics?format=prometheus")
	c.must(err)
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	c.must(err)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&text)
	c.must(err)
	total := 0.0
	for _, m := range families["consul_rpc_query"].GetMetric() {
		total += m.GetCounter().GetValue()
	}
	return int(total)
}

// catalogue registers services with one instance each in the catalogue, spread over nodes, in
// transactions.
func (c *consulAgent) catalogue(services, nodes int) {
	c.t.Helper()
	const most = 64 // the most operations that Consul accepts in one transaction
	var ops api.TxnOps
	flush := func(least int) {
		if len(ops) < least || len(ops) == 0 {
			return
		}
		ok, answer, _, err := c.Txn().Txn(ops, nil)
		if err == nil && !ok {
			err = fmt.Errorf("%v", answer.Errors[0].What)
		}
		c.must(err)
		ops = ops[:0]
	}
	for i := range nodes {
		node := fmt.Sprintf("n%d", i)
		_, err := c.Catalog().Register(&api.CatalogRegistration{
			Node: node, Address: fmt.Sprintf("10.1.0.%d", i+1), NodeMeta: map[string]string{"zone": fmt.Sprint(i % 3)},
			// Nodes with an agent have such a check, named serfHealth. This one needs another
			// name: Consul removes nodes that have serfHealth and no agent.
			Check: &api.AgentCheck{Node: node, CheckID: "alive", Name: "alive", Status: api.HealthPassing},
		}, nil)
		c.must(err)
	}
	for i := range services {
		ops = append(ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: fmt.Sprintf("n%d", i%nodes), Service: api.AgentService{
			ID: fmt.Sprintf("s%d", i), Service: fmt.Sprintf("s%d", i), Port: 8080, Meta: map[string]string{"protocol": "http"},
		}}})
		flush(most)
	}
	flush(1)
}

// weigh gives the instance of a service another weight, and its check another note.
func (c *consulAgent) weigh(service, nodes, weight int) {
	c.t.Helper()
	id := fmt.Sprintf("s%d", service)
	_, err := c.Catalog().Register(&api.CatalogRegistration{
		Node: fmt.Sprintf("n%d", service%nodes), SkipNodeUpdate: true,
		Service: &api.AgentService{
			ID: id, Service: id, Port: 8080, Meta: map[string]string{"protocol": "http"},
			Weights: api.AgentWeights{Passing: weight, Warning: 1},
		},
		Check: &api.AgentCheck{
			Node: fmt.Sprintf("n%d", service%nodes), CheckID: "c" + id, Name: "c", ServiceID: id, Status: api.HealthPassing, Notes: fmt.Sprint(weight),
		},
	}, nil)
	c.must(err)
}
