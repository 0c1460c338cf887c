package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

// Where `make grpc-clients` puts the gRPC clients.
const (
	grpcPython = "../.tools/grpc-python/bin/python"
	grpcNode   = "../.tools/grpc-js/node"
	grpcJS     = "../.tools/grpc-js/node_modules"
	grpcJava   = "../.tools/grpc-java"
)

// grpcLanguages are the languages of the gRPC clients of every test.
var grpcLanguages = []string{"go", "python", "js"}

// guestLanguages returns Java, for the few tests that run it: each of its programs costs over a
// second of processor time. Where it is not installed, in CI too, a subtest says that it is
// skipped.
func guestLanguages(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(grpcJava); err != nil {
		t.Run("java", func(t *testing.T) {
			t.Skipf("SKIPPED, AND NOTHING WAS TESTED: no gRPC in Java (%v): install a JDK, 11 or later, and Maven, and run make grpc-clients", err)
		})
		return nil
	}
	return []string{"java"}
}

// javaProgram makes o run a program in Java, with a small heap.
func javaProgram(o *processtest.Options, args ...string) {
	o.Path = filepath.Join(grpcJava, "java")
	classes := filepath.Join(grpcJava, "classes") + ":" + filepath.Join(grpcJava, "lib", "*")
	o.Args = append([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", classes}, args...)
}

// grpcPeer builds the Go server and client once, beside the binary.
var grpcPeer = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "grpcpeer")
	if out, err := exec.Command("go", "build", "-o", path, "./grpcpeer").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build grpcpeer: %w\n%s", err, out)
	}
	return path, nil
})

func needGRPCPeer(t testing.TB) string {
	t.Helper()
	path, err := grpcPeer()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// grpcClient is a proxyless gRPC client program. It accepts HTTP on its port and makes gRPC
// calls: the host of a request is the target, its path the method, and its headers x-... are
// the metadata.
type grpcClient struct {
	name string
	port int
}

// startGRPCClient runs a client until the test ends. The command line makes its bootstrap, for
// the addresses in xds and with further flags.
func (s *server) startGRPCClient(language, ip, xds string, flags ...string) *grpcClient {
	s.t.Helper()
	c := &grpcClient{name: language, port: freePort(s.t)}
	o := processtest.Options{Name: "grpc-" + language, Env: []string{s.grpcBootstrap(language, ip, xds, flags...)}}
	switch language {
	case "python":
		o.Path, o.Args = needTool(s.t, grpcPython, "grpc-clients"), []string{"testdata/grpc/front.py", local(c.port)}
	case "js":
		o.Path, o.Args = needTool(s.t, grpcNode, "grpc-clients"), []string{"testdata/grpc/front.js", local(c.port)}
		o.Env = append(o.Env, "NODE_PATH="+needTool(s.t, grpcJS, "grpc-clients"))
	case "java":
		javaProgram(&o, "Front", local(c.port))
	default:
		o.Path, o.Args = needGRPCPeer(s.t), []string{"front", "--listen", local(c.port)}
	}
	processtest.Start(s.t, o)
	eventually(s.t, "the client in "+language+" listens", func() error {
		if !listening(local(c.port)) {
			return fmt.Errorf("nothing listens on %d", c.port)
		}
		return nil
	})
	return c
}

// grpcBootstrap writes a bootstrap, and returns the environment variable that names it.
func (s *server) grpcBootstrap(name, ip, xds string, flags ...string) string {
	s.t.Helper()
	text := s.must("", append([]string{"bootstrap", "--type", "grpc", "--name", name, "--namespace", "shop", "--ip", ip, "--xds-address", xds}, flags...)...)
	return "GRPC_XDS_BOOTSTRAP=" + write(s.t, name+".json", text)
}

// call returns a request that calls a method of the service.
func (c *grpcClient) call(method string, metadata ...string) request {
	r := request{port: c.port, host: shopHost + ":8080", path: method, header: map[string]string{}}
	for i := 0; i+1 < len(metadata); i += 2 {
		r.header[metadata[i]] = metadata[i+1]
	}
	return r
}

// anyMethod is a method that no route matches specifically.
const anyMethod = "/shop.Reviews/Get"

// grpcBackend is a server of the service. Its name is its version.
type grpcBackend struct {
	name    string
	port    int
	process *processtest.Process
}

// startGRPCBackend runs a server until the test ends.
func startGRPCBackend(t testing.TB, name string, env ...string) *grpcBackend {
	t.Helper()
	b := &grpcBackend{name: name, port: freePort(t)}
	args := []string{"serve", "--name", name, "--listen", local(b.port)}
	if len(env) > 0 {
		args = append(args, "--xds")
	}
	b.process = processtest.Start(t, processtest.Options{Name: "grpc-" + name, Path: needGRPCPeer(t), Args: args, Env: env})
	eventually(t, name+" listens", func() error {
		if !listening(local(b.port)) {
			return fmt.Errorf("nothing listens on %d", b.port)
		}
		return nil
	})
	return b
}

// grpcEntry is the service, with some backends.
func grpcEntry(backends ...*grpcBackend) string { return grpcEntryOf("reviews", backends...) }

// grpcEntryOf is the service NAME.shop.test, with some backends.
func grpcEntryOf(name string, backends ...*grpcBackend) string {
	doc := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: grpc, protocol: GRPC}]
  endpoints:
`, "$name", name)
	for _, b := range backends {
		doc += fmt.Sprintf("  - {address: 127.0.0.1, ports: {grpc: %d}, labels: {version: %s}}\n", b.port, b.name)
	}
	return doc
}

// grpcScene is a server, a service with two versions, and clients of all languages.
type grpcScene struct {
	*server
	shop    *shop // its rules and routes
	v1, v2  *grpcBackend
	clients []*grpcClient
}

func startGRPCScene(t testing.TB, o serverOptions, documents ...string) *grpcScene {
	t.Helper()
	s := startServer(t, o)
	return s.startGRPCSceneAt(s.xds, documents...)
}

// startGRPCSceneAt starts the scene of a server. Its clients use the addresses in xds.
func (s *server) startGRPCSceneAt(xds string, documents ...string) *grpcScene {
	s.t.Helper()
	g := &grpcScene{server: s, shop: &shop{}, v1: startGRPCBackend(s.t, "v1"), v2: startGRPCBackend(s.t, "v2")}
	g.apply(append([]string{grpcEntry(g.v1, g.v2), g.shop.rule()}, documents...)...)
	g.addClients(xds, grpcLanguages...)
	return g
}

// addClients starts a client of each language.
func (g *grpcScene) addClients(xds string, languages ...string) {
	g.t.Helper()
	for _, language := range languages {
		g.clients = append(g.clients, g.startGRPCClient(language, fmt.Sprintf("10.0.1.%d", len(g.clients)+1), xds))
	}
}

// startLoads makes each client call the service continuously.
func (g *grpcScene) startLoads() []*load {
	g.t.Helper()
	var out []*load
	for _, c := range g.clients {
		send(g.t, c.call(anyMethod)) // creates the channel
		out = append(out, startLoad(g.t, c.name, c.call(anyMethod)))
	}
	return out
}

// awaitClients waits until all clients have acknowledged a revision.
func (g *grpcScene) awaitClients(revision int64) {
	g.t.Helper()
	var names []string
	for _, c := range g.clients {
		names = append(names, c.name)
	}
	g.awaitSynced(revision, names...)
}

// moveTo changes the routes of the service, and waits until each client has them and the
// backend of a name answers its calls.
func (g *grpcScene) moveTo(loads []*load, name string, documents ...string) {
	g.t.Helper()
	g.awaitClients(g.apply(documents...))
	g.awaitAnswered(loads, name)
}

// awaitAnswered waits until the backend of a name has answered some more calls of each load.
func (g *grpcScene) awaitAnswered(loads []*load, name string) {
	g.t.Helper()
	before := make([]map[string]int, len(loads))
	for i, l := range loads {
		before[i] = l.snapshot()
	}
	for i, l := range loads {
		eventually(g.t, l.name+" is answered by "+name, func() error {
			if got := less(l.snapshot(), before[i]); got[name] < 5 {
				return fmt.Errorf("by %v, failed %v", got, l.failed())
			}
			return nil
		})
	}
}

// expectUnharmed ends the loads. No call may have failed, and no client may have rejected
// anything.
func (g *grpcScene) expectUnharmed(loads []*load) {
	g.t.Helper()
	for _, l := range loads {
		l.expectUnharmed()
	}
	g.expectNothingRejected()
	shown := g.must("", "proxy", "status")
	for _, c := range g.clients {
		if !strings.Contains(shown, c.name+".shop ") || strings.Count(shown, " grpc ") < len(g.clients) {
			g.t.Errorf("%s is not shown as what it is:\n%s", c.name, shown)
		}
	}
}
