package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// envoyBinary is where `make tools` puts Envoy.
const envoyBinary = "../.tools/envoy"

// needEnvoy skips a test if there is no Envoy, but fails it in CI.
func needEnvoy(t testing.TB) string {
	t.Helper()
	return needTool(t, envoyBinary, "tools")
}

// needTool skips a test if a file is missing that a make target installs, but fails it in CI.
func needTool(t testing.TB, file, target string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err == nil {
		_, err = os.Stat(path)
	}
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("a tool is missing (%v): run make %s", err, target)
	}
	t.Skipf("SKIPPED, AND NOTHING WAS TESTED: a tool is missing (%v): run make %s", err, target)
	return ""
}

// envoy is an Envoy that is connected to a server.
type envoy struct {
	t       testing.TB
	name    string
	admin   string // host:port
	process *process
	client  *http.Client
}

// envoyOptions describe an Envoy.
type envoyOptions struct {
	kind    string // sidecar or router
	name    string
	labels  string // k=v,...
	variant protocol.Variant
	// selfDiscovery makes it know the endpoints of its own service.
	selfDiscovery bool
	// dnsCapture makes it listen on the addresses that are assigned to services.
	dnsCapture bool
	// httpProxyPort is the port of its HTTP proxy; 0 leaves it to the mesh configuration.
	httpProxyPort int
	// interception is the node metadata INTERCEPTION_MODE; NONE by default.
	interception string
	// drain is the drain time of removed listeners, in seconds; 0 means Envoy's default, ten
	// minutes.
	drain int
	// namespace and ip default to shop and 10.0.0.1; xds to the server's address.
	namespace, ip, xds string
	// locality is its locality: region/zone/subzone.
	locality string
	// systemRoots is the file of the authorities that its machine trusts.
	systemRoots string
	// account is the service account that it says, empty for none.
	account string
	// group is the WorkloadGroup in which it asks to be registered, empty for none.
	group string
	// proxyConfig asks the server what ProxyConfigs say of its bootstrap.
	proxyConfig bool
	// certificate is its certificate in the mesh, nil for none.
	certificate *certificateFiles
	// sdsSocket is the socket on which its machine serves its certificate; empty for none.
	sdsSocket string
	// tls are the files for TLS to the server; nil for plaintext.
	tls *securetest.Files
	// secure is for TLS to the server with the certificate of sdsSocket.
	secure bool
	// clusterID is the cluster that it says it is of, empty for none.
	clusterID string
	// runtime is a setting of Envoy's runtime, as "key: value"; empty for none.
	runtime string
	// logs makes it write access logs at once.
	logs bool
	// in is the network that it runs in, nil for that of the machine.
	in network
}

// network is a network of its own that processes run in.
type network interface {
	// command returns the command that runs a program in it.
	command() []string
	// http returns a client in it.
	http(t testing.TB) *http.Client
}

// startEnvoy runs an Envoy until the test ends, from the bootstrap that the command line makes.
// It waits until the Envoy has the current configuration.
func (s *server) startEnvoy(o envoyOptions) *envoy {
	s.t.Helper()
	e := s.launchEnvoy(o)
	s.awaitSynced(s.revision(), o.name)
	e.awaitReady()
	return e
}

// launchEnvoy is startEnvoy without waiting.
func (s *server) launchEnvoy(o envoyOptions) *envoy {
	s.t.Helper()
	path := needEnvoy(s.t)
	if o.namespace == "" {
		o.namespace = "shop"
	}
	if o.ip == "" {
		o.ip = "10.0.0.1"
	}
	if o.xds == "" {
		o.xds = s.xds
	}
	e := &envoy{t: s.t, name: o.name, admin: local(freePort(s.t)), client: clientOf(s.t)}
	args := []string{
		"bootstrap", "--type", o.kind, "--name", o.name, "--namespace", o.namespace, "--ip", o.ip,
		"--xds-address", o.xds, "--admin-address", e.admin,
	}
	if o.labels != "" {
		args = append(args, "--labels", o.labels)
	}
	if o.account != "" {
		args = append(args, "--service-account", o.account)
	}
	if o.group != "" {
		args = append(args, "--workload-group", o.group)
	}
	if o.proxyConfig {
		args = append(args, "--proxy-config")
	}
	if o.locality != "" {
		args = append(args, "--locality", o.locality)
	}
	if o.systemRoots != "" {
		args = append(args, "--system-roots", o.systemRoots)
	}
	if c := o.certificate; c != nil {
		args = append(args, "--cert", c.chain, "--key", c.key, "--ca", c.roots)
	}
	if o.sdsSocket != "" {
		args = append(args, "--sds-socket", o.sdsSocket)
	}
	if o.selfDiscovery {
		args = append(args, "--self-discovery")
	}
	if o.dnsCapture {
		args = append(args, "--dns-capture")
	}
	if o.httpProxyPort != 0 {
		args = append(args, "--http-proxy-port", fmt.Sprint(o.httpProxyPort))
	}
	if o.interception != "" {
		args = append(args, "--interception", o.interception)
	}
	if o.variant == protocol.StateOfTheWorld {
		args = append(args, "--state-of-the-world")
	}
	if o.secure {
		args = append(args, "--tls")
	}
	var config string
	if o.tls == nil {
		config = write(s.t, o.name+".yaml", s.must("", args...))
	} else {
		dir := s.t.TempDir()
		s.must("", append(args, "--tls", "--cert", o.tls.Cert, "--key", o.tls.Key, "--ca", o.tls.CA, "--out", dir)...)
		config = filepath.Join(dir, "envoy.yaml")
	}
	command := []string{path, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"}
	if o.runtime != "" {
		command = append(command, "--config-yaml", "{layered_runtime: {layers: [{name: test, static_layer: {"+o.runtime+"}}]}}")
	}
	if o.clusterID != "" {
		command = append(command, "--config-yaml", "{node: {metadata: {CLUSTER_ID: "+o.clusterID+"}}}")
	}
	if o.drain > 0 {
		command = append(command, "--drain-time-s", fmt.Sprint(o.drain))
	}
	if o.logs {
		command = append(command, "--file-flush-interval-msec", "20")
	}
	if o.in != nil {
		command, e.client = append(o.in.command(), command...), o.in.http(s.t)
	}
	e.process = start(s.t, "envoy-"+o.name, command[0], command[1:]...)
	return e
}

// startPair runs a gateway and a sidecar: "edge" with the label app=edge, and
// "client".
func (s *server) startPair(v protocol.Variant) (edge, client *envoy) {
	s.t.Helper()
	edge = s.launchEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
	client = s.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2", variant: v})
	s.awaitSynced(s.revision(), "edge", "client")
	edge.awaitReady()
	client.awaitReady()
	return edge, client
}

// get reads a path of Envoy's admin interface.
func (e *envoy) get(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.admin+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := e.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// awaitReady waits until Envoy serves traffic.
func (e *envoy) awaitReady() {
	e.t.Helper()
	eventually(e.t, e.name+" is ready", func() error {
		if !e.process.running() {
			e.t.Fatalf("%s has ended: %v\n%s", e.name, e.process.Err(), e.process.tail())
		}
		_, err := e.get("/ready")
		return err
	})
}

// stats returns the counters and gauges whose names match a regular expression.
func (e *envoy) stats(filter string) (map[string]int, error) {
	body, err := e.get("/stats?format=json&filter=" + filter)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Stats []struct {
			Name  string
			Value json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, s := range answer.Stats {
		var n int
		if s.Name != "" && json.Unmarshal(s.Value, &n) == nil {
			out[s.Name] = n
		}
	}
	return out, nil
}

// listenersModified counts how often a listener of the Envoy was replaced by a changed one.
func (e *envoy) listenersModified() int {
	e.t.Helper()
	const name = "listener_manager.listener_modified"
	all, err := e.stats(name)
	if err != nil {
		e.t.Fatal(err)
	}
	return all[name]
}

// expectNothingRejected fails if Envoy rejected a configuration.
func (e *envoy) expectNothingRejected() {
	e.t.Helper()
	rejected, err := e.stats("update_rejected$")
	if err != nil {
		e.t.Fatal(err)
	}
	if n := nonzero(rejected); len(n) > 0 {
		e.t.Errorf("%s rejected updates: %v\n%s", e.name, n, e.process.tail())
	}
}

// awaitWarm waits until no cluster and no listener is warming.
func (e *envoy) awaitWarm() {
	e.t.Helper()
	eventually(e.t, "nothing of "+e.name+" is warming", func() error {
		warming, err := e.warming()
		if err == nil && len(warming) > 0 {
			err = fmt.Errorf("%v", warming)
		}
		return err
	})
}

func (e *envoy) warming() (map[string]int, error) {
	warming, err := e.stats("warming")
	return nonzero(warming), err
}

// acceptedResource is one resource that Envoy has.
type acceptedResource struct {
	Version string
	// Since is when Envoy accepted it.
	Since string
}

// acceptedResources returns the resources that Envoy accepted from its server, by "type name".
func (e *envoy) acceptedResources() (map[string]acceptedResource, error) {
	body, err := e.get("/config_dump?include_eds")
	if err != nil {
		return nil, err
	}
	var dump struct{ Configs []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, err
	}
	out := map[string]acceptedResource{}
	for _, section := range dump.Configs {
		for key, raw := range section {
			if !strings.HasPrefix(key, "dynamic_") {
				continue
			}
			if err := readHeld(key, raw, out); err != nil {
				return nil, err
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("it has nothing")
	}
	return out, nil
}

// readHeld reads a list of a config dump. It gives warming resources names of their own.
func readHeld(key string, raw json.RawMessage, into map[string]acceptedResource) error {
	type entry struct {
		Name           string `json:"name"`
		VersionInfo    string `json:"version_info"`
		LastUpdated    string `json:"last_updated"`
		Cluster        named  `json:"cluster"`
		RouteConfig    named  `json:"route_config"`
		EndpointConfig named  `json:"endpoint_config"`
		ActiveState    *struct {
			VersionInfo string `json:"version_info"`
			LastUpdated string `json:"last_updated"`
		} `json:"active_state"`
	}
	var entries []entry
	if err := json.Unmarshal(raw, &entries); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	for _, x := range entries {
		name := x.Name + x.Cluster.String() + x.RouteConfig.String() + x.EndpointConfig.String()
		h := acceptedResource{Version: x.VersionInfo, Since: x.LastUpdated}
		if x.ActiveState != nil {
			h = acceptedResource{Version: x.ActiveState.VersionInfo, Since: x.ActiveState.LastUpdated}
		}
		into[strings.TrimPrefix(key, "dynamic_")+" "+name] = h
	}
	return nil
}

// named is a message of a config dump. Only its name is read.
type named struct {
	Name        string `json:"name"`
	ClusterName string `json:"cluster_name"`
}

// String returns the name, whichever field has it.
func (n named) String() string { return n.Name + n.ClusterName }

// mustHold is held, but fails the test if Envoy does not answer.
func (e *envoy) mustHold() map[string]acceptedResource {
	e.t.Helper()
	out, err := e.acceptedResources()
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// awaitCluster waits until Envoy has a cluster, or no longer has it.
func (e *envoy) awaitCluster(name string, present bool) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("cluster %s of %s: %v", name, e.name, present), func() error {
		resources, err := e.acceptedResources()
		if _, there := resources["active_clusters "+name]; err == nil && there != present {
			err = errors.New("not so")
		}
		return err
	})
}

// awaitConfig waits until a text is part of Envoy's configuration. This includes what Envoy
// drains, such as the routes of a removed listener.
func (e *envoy) awaitConfig(text string) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("%q in the configuration of %s", text, e.name), func() error {
		dump, err := e.get("/config_dump")
		if err == nil && !strings.Contains(string(dump), text) {
			err = errors.New("not so")
		}
		return err
	})
}
