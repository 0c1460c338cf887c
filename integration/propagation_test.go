package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// condition is one of an object's status.
type condition struct{ status, reason, message string }

// conditions returns the conditions of an object, by type. The name may be NAMESPACE/NAME; the
// default namespace is shop.
func (s *server) conditions(plural, name string) map[string]condition {
	s.t.Helper()
	namespace, short, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace, short = "shop", name
	}
	group, version := "networking", "v1"
	switch plural {
	case "authorizationpolicies":
		group = "security"
	case "envoyfilters":
		version = "v1alpha3"
	}
	var object unstructured.Unstructured
	if _, err := s.get("/apis/"+group+".istio.io/"+version+"/namespaces/"+namespace+"/"+plural+"/"+short, &object.Object); err != nil {
		s.t.Fatal(err)
	}
	return conditionsOf(&object)
}

func conditionsOf(object *unstructured.Unstructured) map[string]condition {
	out := map[string]condition{}
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range list {
		c, _ := one.(map[string]any)
		text := func(field string) string { return fmt.Sprint(c[field]) }
		out[text("type")] = condition{text("status"), text("reason"), text("message")}
	}
	return out
}

// awaitCondition waits until a condition of an object has a status and contains words. An empty
// status means that it is absent.
func (s *server) awaitCondition(plural, name, typ, status, words string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%s of %s %s is %q, %q", typ, plural, name, status, words), func() error {
		got := s.conditions(plural, name)
		if c := got[typ]; c.status != status || !strings.Contains(c.message, words) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// applyWait runs apply --wait with documents, and returns the outcome.
func (s *server) applyWait(documents []string, args ...string) outcome {
	s.t.Helper()
	return s.try(strings.Join(documents, "\n---\n"), append([]string{"apply", "-f", "-", "--wait"}, args...)...)
}

func expectOutcome(t *testing.T, what string, o outcome, code int, words ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("%s: exit code %d, want %d\n%s%s", what, o.code, code, o.stdout, o.stderr)
	}
	for _, w := range words {
		if !strings.Contains(o.stdout, w) {
			t.Errorf("%s: there is no %q in\n%s%s", what, w, o.stdout, o.stderr)
		}
	}
}

const unseen = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: unseen, namespace: elsewhere, labels: {round: "$round"}}
spec:
  hosts: [unseen.elsewhere.test]
  exportTo: ["."]
  resolution: STATIC
  ports: [{number: 7999, name: http, protocol: HTTP}]
  endpoints: [{address: 10.9.9.$round}]
`

// TestWaitTellsTheTruth: what apply --wait and the status of the objects say if real Envoys
// accept a change, reject it, are not affected, are gone, or do not answer.
func TestWaitTellsTheTruth(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)

		expectOutcome(t, "a change", s.applyWait([]string{x.routes(50, 50)}), 0, "distributed  2/2 proxies", "accepted 2  not concerned 0")
		expectOutcome(t, "at once", s.try("", "describe", "vs/reviews", "-n", "shop"), 0, "Programmed  True", "2 of 2 proxies concerned have acknowledged it", "Accepted    True")
		s.awaitCondition("virtualservices", "reviews", "Programmed", "True", "2 of 2 proxies concerned have acknowledged it")
		s.awaitCondition("virtualservices", "reviews", "Accepted", "True", "")
		expectOutcome(t, "a change that nobody sees", s.applyWait([]string{fill(unseen, "$round", 1)}), 3, "distributed  2/2 proxies", "accepted 0  not concerned 2")
		expectOutcome(t, "at once, of what nobody sees", s.try("", "describe", "se/unseen", "-n", "elsewhere"), 0, "Unknown", "no connected proxy got anything from it")
		expectOutcome(t, "no change", s.applyWait([]string{x.routes(50, 50)}), 0, "unchanged", "distributed  2/2 proxies")
		expectOutcome(t, "an object", s.try("", "wait", "vs/reviews", "-n", "shop"), 0, "distributed  2/2 proxies")

		// If the port of a gateway is in use, the proxy cannot listen there.
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = taken.Close() }()
		blocked := fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: blocked, namespace: shop}
spec:
  selector: {app: edge}
  servers: [{port: {number: $port, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*"]}]
`, "$port", taken.Addr().(*net.TCPAddr).Port)
		refused := s.applyWait([]string{blocked})
		expectOutcome(t, "a refused change", refused, 2, "distributed  1/2 proxies", "not concerned 1  rejected 1", "rejected  edge", "LDS")
		expectOutcome(t, "at once", s.try("", "describe", "gateway/blocked", "-n", "shop"), 0, "refused by 1", "LDS")
		if !strings.Contains(refused.stderr, "was refused by 1 of 2 proxies") {
			t.Errorf("a refused change: %s", refused.stderr)
		}
		expectOutcome(t, "half of them will do", s.try("", "wait", "gateway/blocked", "-n", "shop", "--threshold", "50%"), 0, "rejected 1")
		s.awaitCondition("gateways", "blocked", "Rejected", "True", "edge")
		s.awaitCondition("gateways", "blocked", "Programmed", "False", "refused by 1")
		s.awaitCondition("gateways", "blocked", "Stalled", "True", "edge")
		expectOutcome(t, "what became of it", s.try("", "describe", "gateway/blocked", "-n", "shop"), 0, "Rejected ", "rejected  edge", "refused by 1")
		expectOutcome(t, "what another refers to", s.try("", "describe", "vs/reviews", "-n", "shop"), 0, "Accepted    True", "gateway/shop/edge", "destinationrule/shop/reviews")
		if got := s.conditions("virtualservices", "reviews"); got["Rejected"].status != "" {
			t.Errorf("another object is blamed: %+v", got)
		}
		if out := s.must("", "proxy", "status", "-o", "wide"); !strings.Contains(out, "REJECTED") {
			t.Errorf("proxy status:\n%s", out)
		}
		s.remove(blocked)
		eventually(t, "the refusal is over", func() error {
			if o := s.try("", "wait", "--revision", fmt.Sprint(s.revision()), "--timeout", "1s"); o.code != 0 {
				return fmt.Errorf("%s%s", o.stdout, o.stderr)
			}
			return nil
		})

		// An Envoy that does not answer, and then is gone, is expected back.
		if err := syscall.Kill(edge.process.pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(edge.process.pid(), syscall.SIGCONT) })
		expectOutcome(t, "one does not answer", s.applyWait([]string{x.routes(10, 90)}, "--timeout", "1s"), 2,
			"distributed  1/2 proxies", "waiting 1", "waiting  edge")
		s.awaitCondition("virtualservices", "reviews", "Programmed", "False", "waiting for 1")
		s.awaitCondition("virtualservices", "reviews", "Reconciling", "True", "waiting for 1")
		edge.process.kill()
		s.awaitCondition("virtualservices", "reviews", "Programmed", "True", "1 of 1 proxies")
		if out := s.must("", "proxy", "status"); !strings.Contains(out, "offline") {
			t.Errorf("proxy status:\n%s", out)
		}
		expectOutcome(t, "one is gone", s.applyWait([]string{x.routes(20, 80)}, "--timeout", "1s"), 2,
			"distributed  1/2 proxies", "waiting 1", "waiting  edge", "expected back")
		client.expectNothingRejected()
	})
}

// TestProgrammedNeedsAProxy: without a proxy, Programmed is unknown, and the commands say so.
// When real Envoys come, the objects that they use are Programmed; for the others it stays
// unknown.
func TestProgrammedNeedsAProxy(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	const nobodys = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: nobodys, namespace: shop}
spec:
  selector: {app: nobody}
  servers: [{port: {number: 7999, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*"]}]
`
	expectOutcome(t, "no proxy", s.applyWait([]string{x.all(100, 0), nobodys}), 3, "distributed  0/0 proxies", "no proxy is concerned: none is connected")
	expectOutcome(t, "one proxy at least", s.try("", "wait", "vs/reviews", "-n", "shop", "--min-proxies", "1", "--timeout", "1s"), 2, "distributed  0/0 proxies")
	future := s.try("", "wait", "--revision", "99999")
	expectOutcome(t, "a revision of the future", future, 65)
	if !strings.Contains(future.stderr, "revision 99999 is in the future: the store is at ") {
		t.Errorf("a revision of the future: %s", future.stderr)
	}
	unknown := func(plural, name string) {
		t.Helper()
		s.awaitCondition(plural, name, "Programmed", "Unknown", "no connected proxy got anything from it")
	}
	unknown("virtualservices", "reviews")
	unknown("gateways", "nobodys")
	eventually(t, "a list has it too", func() error {
		if out := s.must("", "get", "gateway", "-n", "shop", "-o", "wide"); !strings.Contains(out, "ISSUES") || !strings.Contains(out, "NoProxies") || !strings.Contains(out, "PTL0116") {
			return errors.New(out)
		}
		return nil
	})
	expectOutcome(t, "describe", s.try("", "describe", "gateway/nobodys", "-n", "shop"), 0, "Unknown", "FINDING", "PTL0116", "spec.selector", "start a gateway with these labels")

	_, client := s.startPair(protocol.Delta)
	for _, object := range []string{"virtualservices/reviews", "destinationrules/reviews", "gateways/edge"} {
		plural, name, _ := strings.Cut(object, "/")
		s.awaitCondition(plural, name, "Programmed", "True", "")
	}
	unknown("gateways", "nobodys")
	expectOutcome(t, "two proxies at least", s.try("", "wait", "vs/reviews", "-n", "shop", "--min-proxies", "2"), 0, "distributed  2/2 proxies")
	for _, typ := range []string{"Reconciling", "Stalled", "Rejected"} {
		if c := s.conditions("virtualservices", "reviews")[typ]; c.status != "" {
			t.Errorf("%s of what all have taken: %+v", typ, c)
		}
	}
	client.expectNothingRejected()
}

// TestInformerSeesConditions: a status that servers write changes the version of the object,
// and reaches an informer of client-go. A write with the current version is no conflict, but
// one with an older version is.
func TestInformerSeesConditions(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(100, 0))
	connect(t, s, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: protocol.Delta, Follow: true})

	config := &clientrest.Config{Host: "http://" + s.api}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	services := runtimeschema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
	informer := resttest.Informer(client.Resource(services).Namespace("shop"))
	var mu sync.Mutex
	var seen []string // generation and Programmed, as they change
	note := func(object any) {
		mu.Lock()
		defer mu.Unlock()
		o := object.(*unstructured.Unstructured)
		seen = append(seen, fmt.Sprintf("%d %s", o.GetGeneration(), conditionsOf(o)["Programmed"].status))
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, now any) { note(now) }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	told := func(what string) {
		t.Helper()
		eventually(t, "the informer is told "+what, func() error {
			mu.Lock()
			defer mu.Unlock()
			for _, one := range seen {
				if one == what {
					return nil
				}
			}
			return fmt.Errorf("it was told %q", seen)
		})
	}
	told("1 True")
	object, err := client.Resource(services).Namespace("shop").Get(t.Context(), "reviews", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := object.DeepCopy()
	edited := object.DeepCopy()
	edited.SetLabels(map[string]string{"edited": "yes"})
	if _, err := client.Resource(services).Namespace("shop").Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an update under the version of the status: %v", err)
	}
	s.apply(x.routes(50, 50))
	told("2 True")
	stale.SetLabels(map[string]string{"edited": "late"})
	if _, err := client.Resource(services).Namespace("shop").Update(t.Context(), stale, metav1.UpdateOptions{}); err == nil {
		t.Error("an update under a version of before is no conflict")
	}
	if out := s.must("", "get", "vs", "reviews", "-n", "shop", "-o", "yaml"); !strings.Contains(out, "Programmed") {
		t.Errorf("get -o yaml shows no condition:\n%s", out)
	}
}

// TestAnotherServerWritesConditions: two servers of one etcd know different proxies, and all
// proxies are counted. If the server that writes statuses is killed, the other takes over.
func TestAnotherServerWritesConditions(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	x := newShop(t)
	x.v1, x.v2 = &upstream{name: "v1", port: 9001}, &upstream{name: "v2", port: 9002}
	node := func(ip, name string) xdstest.ClientOptions {
		return xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", ip, name, "shop", nil), Variant: protocol.Delta, Follow: true}
	}
	connect(t, one, node("10.0.0.1", "first"))
	connect(t, two, node("10.0.0.2", "second"))
	one.apply(x.all(100, 0))
	for _, s := range []*server{one, two} {
		s.awaitCondition("virtualservices", "reviews", "Programmed", "True", "2 of 2 proxies")
		expectOutcome(t, "a change through either", s.applyWait([]string{x.routes(50, 50)}), 0, "distributed  2/2 proxies")
	}
	first, second := one, two
	if two.leads() {
		first, second = two, one
	}
	first.kill()
	expectOutcome(t, "one server is gone", second.applyWait([]string{x.routes(30, 70)}, "--timeout", "60s", "--threshold", "50"), 0, "distributed  1/2 proxies", "waiting 1", "expected back")
	second.awaitCondition("virtualservices", "reviews", "Programmed", "True", "1 of 1 proxies")
}

// leads reports whether the server does the jobs of the leader.
func (s *server) leads() bool {
	s.t.Helper()
	text, err := s.get("/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Contains(string(text), `portolan_leader{job="server"} 1`)
}

// TestWaitAfterARestart: proxies that were connected to the server before a restart are waited
// for, though none has come back yet. Nobody has taken a change that concerns no proxy, and the
// exit code says so.
func TestWaitAfterARestart(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	waits := func(document string, flags ...string) outcome {
		t.Helper()
		return s.try(document, append([]string{"apply", "-f", "-", "--wait"}, flags...)...)
	}
	if out := waits(x.all(100, 0)); out.code != 3 || !strings.Contains(out.stdout, "no proxy is concerned: none is connected") {
		t.Errorf("without proxies: %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	if out := waits(x.routes(90, 10), "--min-proxies", "0"); out.code != 0 {
		t.Errorf("without proxies, which none has to be: %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	edge, client := s.startPair(protocol.Delta)
	eventually(t, "the store knows the proxies", func() error {
		if out := s.try("", "analyze"); strings.Contains(out.stdout, "PTL0116") {
			return errors.New(out.stdout)
		}
		return nil
	})
	for _, e := range []*envoy{edge, client} {
		if err := syscall.Kill(e.process.pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(e.process.pid(), syscall.SIGCONT) }()
	}
	if err := s.process.terminate(t); err != nil {
		t.Fatalf("the server ended with: %v", err)
	}
	s.start()
	out := waits(x.routes(0, 100), "--timeout", "1s")
	if out.code != 2 || !strings.Contains(out.stdout, "waiting 2") || !strings.Contains(out.stdout, "edge") || !strings.Contains(out.stdout, "client") || !strings.Contains(out.stdout, "expected back") {
		t.Errorf("while they are on their way back: %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	for _, e := range []*envoy{edge, client} {
		if err := syscall.Kill(e.process.pid(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	out = waits(x.routes(10, 90), "--timeout", "1m")
	if out.code != 0 || !strings.Contains(out.stdout, "2/2 proxies  accepted 2") {
		t.Errorf("when they are back: %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	awaitReply(t, request{port: x.service, host: shopHost}, send(t, x.atSidecar("/")).String())
	if out := waits("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: lone, namespace: shop}\nspec: {address: 10.7.0.1, labels: {app: none}}\n"); out.code != 3 || !strings.Contains(out.stdout, "it changes nothing for those that are connected") {
		t.Errorf("a change that concerns nobody: %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}
