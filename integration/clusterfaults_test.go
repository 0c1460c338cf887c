package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// faultyCluster is a cluster to which a test does harm, a server that takes objects and services of
// it with the least rights, and sidecars under load.
type faultyCluster struct {
	*server
	k       *kubeCluster
	t       *testing.T
	cluster *testCluster
	wire    *wire    // between the server and the cluster
	config  string   // the kubeconfig
	port    int      // of the services
	own     string   // the address of pods
	clients []string // the addresses at which sidecars listen
	loads   []*load
}

// servicesPage is the page that shows the rights to services.
const servicesPage = "one-mesh-over-a-cluster-and-machines.md"

const (
	faultyService = "web.shop.svc.cluster.local"
	faultyEntry   = "entry.example"
	configSource  = "kube://east"
	serviceSource = "services/east"
)

// startFaultyCluster starts all with an API server that lists when it is asked to list, as older ones do.
// Those of the other tests stream their lists to whom may watch.
func startFaultyCluster(t *testing.T, flags ...string) *faultyCluster {
	t.Helper()
	api := startKubeAPIServer(t, kubeAPIServerBinary, withRBAC, "--feature-gates=WatchList=false")
	f := &faultyCluster{
		k: &kubeCluster{t, api}, t: t, cluster: newTestCluster(t, api), port: freePort(t), own: ownAddress(t),
		wire: startWire(t, strings.TrimPrefix(api.url, "https://")), config: filepath.Join(t.TempDir(), "kubeconfig"),
	}
	for _, page := range []string{objectsPage, servicesPage} {
		f.k.must("POST", rbacPath+"clusterroles", clusterRole(t, page))
	}
	f.grant()
	f.login("{token: " + followerToken + "}")
	pod, entry := startUpstreamAt(t, "pod", f.own, 0), startUpstream(t, "entry")
	f.cluster.apply(fill(`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{name: http, port: $port}]}}`, "$port", f.port))
	f.cluster.runs("shop", pod.name, f.own, "web")
	f.cluster.serves("shop", "web", pod, f.own, podReady)
	f.cluster.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: entry, namespace: shop}
spec: {hosts: [entry.example], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: $port, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: $target}}]}
`, "$port", f.port, "$target", entry.port))
	f.server = startServer(t, serverOptions{args: append([]string{"--services-kube", f.config, "--config-kube", f.config}, flags...)})
	f.startClient("client", "127.0.0.1", protocol.Delta)
	return f
}

// startClient starts a sidecar that listens at an address of the loopback, under load.
func (f *faultyCluster) startClient(name, at string, v protocol.Variant) {
	f.t.Helper()
	f.startEnvoy(envoyOptions{kind: "sidecar", name: name, labels: "app=" + name, variant: v})
	f.clients = append(f.clients, at)
	f.replies(faultyService, "/", "pod")
	f.replies(faultyEntry, "/", "entry")
	f.loads = append(f.loads, startLoad(f.t, name+" and the service", request{at: at, port: f.port, host: faultyService}),
		startLoad(f.t, name+" and the entry", request{at: at, port: f.port, host: faultyEntry}))
}

// startWorld starts a second sidecar, with state of the world, at an address of its own.
func (f *faultyCluster) startWorld() {
	f.t.Helper()
	f.server.apply(fill(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: world, namespace: shop}
spec:
  workloadSelector: {labels: {app: world}}
  egress: [{bind: 127.0.0.2, port: {number: $port, name: http, protocol: HTTP}, hosts: ['*/*']}]
`, "$port", f.port))
	f.startClient("world", "127.0.0.2", protocol.StateOfTheWorld)
}

// replies waits until each sidecar answers a request so.
func (f *faultyCluster) replies(host, path, want string) {
	f.t.Helper()
	for _, at := range f.clients {
		awaitReply(f.t, request{at: at, port: f.port, host: host, path: path}, want)
	}
}

// grant gives the account its rights, and revoke takes them away.
func (f *faultyCluster) grant() {
	f.k.t.Helper()
	f.k.bind("portolan-istio", "follower")
	f.k.bind("portolan-services", "follower")
}

func (f *faultyCluster) revoke() {
	f.k.t.Helper()
	for _, name := range []string{"portolan-istio-follower", "portolan-services-follower"} {
		f.k.must("DELETE", rbacPath+"clusterrolebindings/"+name, "")
	}
}

// login writes the kubeconfig for a user.
func (f *faultyCluster) login(user string) {
	f.t.Helper()
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: east
contexts: [{name: east, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]
users: [{name: u, user: %s}]
`, f.wire.address, user)
	next := f.config + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(next, f.config); err != nil {
		f.t.Fatal(err)
	}
}

// certificate is a user of the kubeconfig with a certificate.
func (f *faultyCluster) certificate(pair secrettest.Pair) string {
	return fmt.Sprintf("{client-certificate: %s, client-key: %s}", write(f.t, "user.pem", string(pair.Cert)), write(f.t, "user.key", string(pair.Key)))
}

// reconnect ends all connections of the server to the cluster.
func (f *faultyCluster) reconnect() { f.wire.set(false) }

// named waits until the readiness and the list of sources say what is wrong with both sources.
func (f *faultyCluster) named(words string) {
	f.t.Helper()
	eventually(f.t, "both sources are named, with "+words, func() error {
		ready, err := f.server.get("/readyz?verbose", nil)
		if err != nil {
			return err
		}
		list := f.server.must("", "source", "list")
		for _, line := range []struct{ in, begins string }{
			{string(ready), "[!] sources: source " + configSource}, {string(ready), "cluster east: what was known of it"},
			{list, configSource}, {list, serviceSource},
		} {
			if !slices.ContainsFunc(strings.Split(line.in, "\n"), func(l string) bool { return strings.Contains(l, line.begins) && strings.Contains(l, words) }) {
				return fmt.Errorf("no line with %q and %q in\n%s", line.begins, words, line.in)
			}
		}
		return nil
	})
}

// expectRightsDescribed waits until the descriptions of both sources have a line for each right that
// is missing, with the page that shows the role.
func (f *faultyCluster) expectRightsDescribed() {
	f.t.Helper()
	eventually(f.t, "each missing right has a line", func() error {
		for source, page := range map[string]string{configSource: objectsPage, serviceSource: servicesPage} {
			text := f.server.must("", "source", "describe", source)
			for _, r := range rightsOf(f.t, page) {
				words := fmt.Sprintf("the account follower may not list and watch %s in all namespaces: grant it the verbs list and watch (see docs/tasks/%s)", r.name(), page)
				if strings.Count(text, words) != 1 {
					return fmt.Errorf("no line with %q in\n%s", words, text)
				}
			}
		}
		return nil
	})
}

// whole waits until nothing is wrong with the sources, and the server has what the cluster has. No
// request may have failed.
func (f *faultyCluster) whole(after string) {
	f.t.Helper()
	f.wholeWithin(patience, after)
}

// wholeWithin is whole that may take longer.
func (f *faultyCluster) wholeWithin(limit time.Duration, after string) {
	f.t.Helper()
	began := time.Now()
	eventuallyWithin(f.t, limit, "the sources are whole after "+after, func() error {
		ready, err := f.server.get("/readyz?verbose", nil)
		if err == nil && (strings.Contains(string(ready), "source "+configSource) || strings.Contains(string(ready), "cluster east:")) {
			err = errors.New(string(ready))
		}
		return err
	})
	f.k.expectSame(f.server)
	f.expectSameServices()
	f.t.Logf("whole %s after %s", time.Since(began).Round(10*time.Millisecond), after)
	for _, l := range f.loads {
		l.sample(20)
		if failed := l.failed(); len(failed) > 0 {
			f.t.Fatalf("%s: requests of the %s fail: %s", after, l.name, failed[0])
		}
	}
}

// expectSameServices waits until the server has the addresses of the slices in the cluster.
func (f *faultyCluster) expectSameServices() {
	f.t.Helper()
	eventually(f.t, "the endpoints are those of the cluster", func() error {
		_, _, text, err := f.k.api.do(f.t.Context(), "GET", "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", "", nil)
		if err != nil {
			return err
		}
		var there discoveryv1.EndpointSliceList
		if err := json.Unmarshal([]byte(text), &there); err != nil {
			return err
		}
		var here admin.ServiceList
		if _, err := f.server.get(admin.ServicesPath+"?host="+faultyService, &here); err != nil {
			return err
		}
		var want, got []string
		for _, s := range there.Items {
			for _, e := range s.Endpoints {
				want = append(want, fmt.Sprint(e.Addresses[0], ":", *s.Ports[0].Port))
			}
		}
		for _, s := range here.Items {
			for _, e := range s.Endpoints {
				for _, p := range e.Ports {
					got = append(got, fmt.Sprint(e.Address, ":", p.Number))
				}
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%v, not %v", got, want)
		}
		return nil
	})
}

// startWriting writes objects of all sorts until stop is called, whatever becomes of the writes.
func (f *faultyCluster) startWriting() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = f.cluster.tryApply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: written-$slot, namespace: shop}
spec: {hosts: [written-$slot.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1, ports: {http: $i}}]}
`, "$slot", i%10, "$i", 1+i%60000))
			_ = f.cluster.tryApply(fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: written, namespace: shop}
spec: {hosts: [written-1.example], http: [{timeout: $is, route: [{destination: {host: written-1.example}}]}]}
`, "$i", 1+i%60))
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	f.t.Cleanup(stop)
	return stop
}

// TestKubernetesFaults does harm to Kubernetes' own server and to the account. Meanwhile proxies keep
// what they have, and both sources are named. Afterwards the server has what the cluster has.
func TestKubernetesFaults(t *testing.T) {
	needEnvoy(t)
	needKubeAPIServer(t)
	f := startFaultyCluster(t)
	f.startWorld()
	f.whole("the start")
	f.expectEachRightNamed()

	f.expectFaultsNamed()
	f.expectDefinitionDeleted()

	f.k.api.process.Pause()
	f.loads[0].sample(300)
	f.k.api.process.Resume()
	f.k.entry("thawed")
	f.whole("a freeze")

	f.revoke()
	f.reconnect()
	f.named("the account follower may not list and watch ")
	f.expectRightsDescribed()
	f.k.entry("denied")
	f.grant()
	f.whole("rights that were taken away")

	f.login(f.certificate(f.k.api.users.issue(-time.Hour, "follower")))
	f.reconnect()
	f.named("the cluster does not accept the credentials of the kubeconfig: renew them")
	f.login(f.certificate(f.k.api.users.issue(time.Hour, "follower")))
	f.whole("an expired certificate")

	// The API server is killed under writes. When it is back, it has another token for the account,
	// and knows nothing of the versions that the watches had.
	f.login("{token: " + followerToken + "}")
	f.reconnect()
	f.whole("a new token")
	stop := f.startWriting()
	f.wire.set(true)
	before := f.k.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/entry").GetResourceVersion()
	f.k.entry("unseen")
	f.k.api.process.Kill()
	f.named("")
	f.rotate("rotated")
	f.k.api.start(t)
	if _, _, text, err := f.k.api.do(t.Context(), "GET", fmt.Sprintf("/apis/networking.istio.io/v1/serviceentries?watch=1&timeoutSeconds=1&resourceVersion=%s", before), "", nil); err != nil || !strings.Contains(text, "too old resource version") {
		t.Errorf("a watch from before the restart has not expired: %s %v", text, err)
	}
	f.wire.set(false)
	f.named("the cluster does not accept the credentials of the kubeconfig: renew them")
	f.login("{token: rotated}")
	stop()
	f.whole("a restart, with another token")
	for _, l := range f.loads {
		l.expectUnharmed()
	}
}

// virtualServices is the path of those of the cluster.
const virtualServices = "/apis/networking.istio.io/v1/namespaces/shop/virtualservices"

// expectFaultsNamed writes an object that is not valid, and one that cannot even be decoded, which no
// API server of today would take. Both are named, and stop nothing else.
func (f *faultyCluster) expectFaultsNamed() {
	f.t.Helper()
	f.k.must("POST", virtualServices, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"odd"},
		"spec":{"hosts":["a..example"],"http":[{"route":[{"destination":{"host":"one.example"}}]}]}}`)
	const old = `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"old","namespace":"shop","uid":"old","creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"hosts":7}}`
	if _, err := f.k.api.etcd.Put(f.t.Context(), "/registry/networking.istio.io/virtualservices/shop/old", old); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "the faults are shown", func() error {
		ready, err := f.server.get("/readyz?verbose", nil)
		if err != nil {
			return err
		}
		for _, line := range []struct{ in, words string }{
			{string(ready), "source " + configSource + ": what is not served as it stands there: 2 (portolan source describe " + configSource + ")"},
			{f.server.must("", "source", "list"), "2 faults"},
			{f.server.must("", "source", "describe", configSource), "virtualservice/shop/odd: spec.hosts[0]"},
			{f.server.must("", "source", "describe", configSource), "virtualservice/shop/old: spec.hosts"},
		} {
			if !strings.Contains(line.in, line.words) {
				return fmt.Errorf("no %q in\n%s", line.words, line.in)
			}
		}
		return nil
	})
	f.k.entry("beside")
	f.k.expectSame(f.server)
	f.k.must("DELETE", virtualServices+"/odd", "")
	f.k.must("DELETE", virtualServices+"/old", "")
	f.whole("faults of objects")
}

// expectDefinitionDeleted deletes the definition of a kind, and so its objects: their routes go, and
// nothing else changes. They come back with it.
func (f *faultyCluster) expectDefinitionDeleted() {
	f.t.Helper()
	const aside = `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"aside"},"spec":{"hosts":["entry.example"],"http":[
		{"match":[{"uri":{"prefix":"/aside"}}],"fault":{"abort":{"httpStatus":418,"percentage":{"value":100}}},"route":[{"destination":{"host":"entry.example"}}]},
		{"route":[{"destination":{"host":"entry.example"}}]}]}}`
	f.k.must("POST", virtualServices, aside)
	f.replies(faultyEntry, "/aside", "418")
	restore := f.k.deleteDefinition("virtualservices.networking.istio.io")
	f.replies(faultyEntry, "/aside", "entry")
	eventually(f.t, "the API server has no VirtualServices", func() error {
		code, _, _, err := f.k.api.do(f.t.Context(), "GET", virtualServices, "", nil)
		if err == nil && code != 404 {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
	f.k.entry("meanwhile")
	f.whole("a deleted definition")
	eventually(f.t, "the deleted definition is shown", func() error {
		text := f.server.must("", "source", "describe", configSource)
		if strings.Contains(text, "the cluster no longer has the kind VirtualService (virtualservices.networking.istio.io): ") {
			return nil
		}
		return errors.New(text)
	})
	for line := range strings.Lines(f.server.process.output()) {
		if strings.Contains(line, "cannot be followed") && strings.Contains(line, "virtualservices") {
			f.t.Errorf("the log takes a deleted definition for a fault: %s", line)
		}
	}
	restore()
	f.k.create(virtualServices, aside)
	f.replies(faultyEntry, "/aside", "418")
	f.k.must("DELETE", virtualServices+"/aside", "")
	f.replies(faultyEntry, "/aside", "entry")
	f.whole("a definition that came back")
}

// rotate replaces the token of the account, which the API server reads at its start.
func (f *faultyCluster) rotate(token string) {
	f.t.Helper()
	text, err := os.ReadFile(f.k.api.tokens)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.k.api.tokens, []byte(strings.Replace(string(text), followerToken, token, 1)), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// TestSoakClusterFrozen: an API server gives no answer for more than a minute.
func TestSoakClusterFrozen(t *testing.T) {
	if longtest.Soak(t) == 0 {
		t.Skip("it takes minutes")
	}
	needEnvoy(t)
	needKubeAPIServer(t)
	f := startFaultyCluster(t)
	f.startWorld()
	f.whole("the start")
	f.k.api.process.Pause()
	for began := time.Now(); time.Since(began) < 75*time.Second; {
		f.loads[0].sample(500)
	}
	f.named("")
	f.k.api.process.Resume()
	f.k.entry("thawed")
	f.whole("75 s without an answer")
	for _, l := range f.loads {
		l.expectUnharmed()
	}
}
