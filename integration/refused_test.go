package integration

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyRefuses: real Envoys reject routes, listeners and clusters that the server takes for
// valid, while requests run. They keep what they had. The server says who rejected what,
// because of which object and why. It sends the resource again only when that changes. It keeps
// the clusters of both the old and the rejected routes. The next good configuration heals it.
func TestEnvoyRefuses(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		r := &refusals{t: t, etcd: startEtcd(t), shop: newShop(t)}
		r.server = startServer(t, serverOptions{etcd: r.etcd})
		r.server.apply(r.shop.all(100, 0))
		r.edge, r.client = r.server.startPair(v)
		awaitReply(t, r.shop.atGateway("/"), "v1")
		awaitReply(t, r.shop.atSidecar("/"), "v1")
		r.loads = []*load{startLoad(t, "gateway", r.shop.atGateway("/")), startLoad(t, "sidecar", r.shop.atSidecar("/"))}
		r.routes()
		r.listeners()
		r.clusters()
		for _, l := range r.loads {
			l.expectUnharmed()
		}
	})
}

// refusals makes the Envoys of a shop reject resources.
type refusals struct {
	t            *testing.T
	etcd         string
	server       *server
	shop         *shop
	edge, client *envoy
	loads        []*load
	others       []*upstream // endpoints that get no requests
}

// routes: a header with a command operator that this Envoy does not know, written before
// validation knew these. The same batch moves the routes to another subset and drops the old
// one.
func (r *refusals) routes() {
	s, x, t := r.server, r.shop, r.t
	rule := strings.Replace(x.rule(), "{name: v1, labels: {version: v1}}", "{name: next, labels: {version: v2}}", 1)
	good := strings.ReplaceAll(x.routes(100, 0), "subset: v1", "subset: next")
	bad := strings.Replace(good, "  - route:", "  - headers: {request: {set: {x-later: \"%OF_A_LATER_ENVOY%\"}}}\n    route:", 1)
	const words = "OF_A_LATER_ENVOY"
	expectOutcome(t, "refused routes", r.applyUnchecked(rule, bad), 2, "distributed  0/2 proxies", "rejected 2", "rejected  edge", "rejected  client", words)
	r.expectTold("virtualservice/shop/reviews", words, []string{"RDS", "VHDS"}, "edge", "client")
	s.awaitCondition("virtualservices", "reviews", "Rejected", "True", words)
	s.awaitCondition("virtualservices", "reviews", "Programmed", "False", "refused by 2")
	if got := s.conditions("destinationrules", "reviews"); got["Rejected"].status != "" {
		t.Errorf("the rule of the same batch is blamed: %+v", got)
	}
	r.expectQuiet("v1")
	for _, e := range []*envoy{r.edge, r.client} {
		for _, subset := range []string{"v1", "next"} {
			e.awaitCluster(fmt.Sprintf("outbound|%d|%s|%s", x.service, subset, shopHost), true)
		}
	}
	expectOutcome(t, "good routes", s.applyWait([]string{good}), 0, "distributed  2/2 proxies", "accepted 2")
	awaitOnly(t, r.loads, "v2")
	s.awaitCondition("virtualservices", "reviews", "Rejected", "", "")
	for _, e := range []*envoy{r.edge, r.client} {
		e.awaitCluster(fmt.Sprintf("outbound|%d|v1|%s", x.service, shopHost), false)
	}
	expectOutcome(t, "back again", s.applyWait([]string{x.rule(), x.routes(100, 0)}), 0, "distributed  2/2 proxies")
	awaitOnly(t, r.loads, "v1")
}

// listeners: ports that are in use on the proxies' machine. One is of a second Gateway, the
// other of a service, which also has routes.
func (r *refusals) listeners() {
	s, t := r.server, r.t
	blocked := func(door, service int) []string {
		return []string{fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: blocked, namespace: shop}
spec:
  selector: {app: edge}
  servers: [{port: {number: $port, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*"]}]
`, "$port", door), fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: blocked, namespace: shop}
spec:
  hosts: [blocked.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`, "$port", service)}
	}
	door, service := takenPort(t), takenPort(t)
	expectOutcome(t, "refused listeners", s.applyWait(blocked(door, service)), 2, "distributed  0/2 proxies", "rejected 2", "LDS")
	r.expectTold("gateway/shop/blocked", fmt.Sprint("127.0.0.1_", door), []string{"LDS"}, "edge")
	r.expectTold("serviceentry/shop/blocked", fmt.Sprint("127.0.0.1_", service), []string{"LDS"}, "client")
	s.awaitCondition("gateways", "blocked", "Rejected", "True", fmt.Sprint("127.0.0.1_", door))
	s.awaitCondition("serviceentries", "blocked", "Rejected", "True", fmt.Sprint("127.0.0.1_", service))
	if got := s.conditions("gateways", "edge"); got["Rejected"].status != "" {
		t.Errorf("the other gateway of the proxy is blamed: %+v", got)
	}
	r.expectQuiet("v1")
	expectOutcome(t, "ports that are free", s.applyWait(blocked(freePort(t), freePort(t))), 0, "distributed  2/2 proxies", "accepted 2")
	s.awaitCondition("gateways", "blocked", "Rejected", "", "")
	s.awaitCondition("serviceentries", "blocked", "Rejected", "", "")
	s.remove(blocked(1, 1)...)
}

// clusters: a duration that Envoy rejects, in a rule written before validation rejected it, so
// the test bypasses validation.
func (r *refusals) clusters() {
	s, x, t := r.server, r.shop, r.t
	store := r.store()
	rule, err := store.Get(t.Context(), schema.DestinationRule, "reviews", "shop")
	if err != nil {
		t.Fatal(err)
	}
	endless := rule.Clone()
	endless.Spec.(*networking.DestinationRule).TrafficPolicy = &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{
		Http: &networking.ConnectionPoolSettings_HTTPSettings{IdleTimeout: &durationpb.Duration{Seconds: 9223372036}},
	}}
	if _, err := store.Update(t.Context(), endless); err != nil {
		t.Fatal(err)
	}
	const words = "Duration out-of-range"
	r.expectTold("destinationrule/shop/reviews", words, []string{"CDS"}, "edge", "client")
	s.awaitCondition("destinationrules", "reviews", "Rejected", "True", words)
	r.expectQuiet("v1")
	expectOutcome(t, "a good rule", s.applyWait([]string{x.rule()}), 0, "distributed  2/2 proxies", "accepted 2")
	s.awaitCondition("destinationrules", "reviews", "Rejected", "", "")
}

// applyUnchecked writes documents as one batch, bypassing validation, and waits for the
// proxies.
func (r *refusals) applyUnchecked(documents ...string) outcome {
	r.t.Helper()
	var ops []storage.Op
	for _, document := range documents {
		decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, d := range decoded {
			ops = append(ops, storage.Op{Verb: storage.Put, Config: d.Config})
		}
	}
	revision, _, err := r.store().Apply(r.t.Context(), ops)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.server.try("", "wait", "--revision", revision)
}

// store returns a store on the server's etcd.
func (r *refusals) store() *etcd.Store {
	r.t.Helper()
	store, err := etcd.New(etcdtest.Dial(r.t, r.etcd), etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		r.t.Fatal(err)
	}
	return store
}

// expectTold waits until the server reports that proxies reject types, because of which object,
// and with what words.
func (r *refusals) expectTold(object, words string, types []string, names ...string) {
	r.t.Helper()
	for _, name := range names {
		eventually(r.t, fmt.Sprintf("%s is known to have refused %s", name, object), func() error {
			proxies, err := r.server.proxies()
			if err != nil {
				return err
			}
			for _, typ := range proxies[name].Types {
				if typ.State == protocol.Rejected && slices.Contains(types, typ.Name) && strings.Contains(typ.Message, words) && slices.Equal(typ.Objects, []string{object}) {
					return nil
				}
			}
			return fmt.Errorf("%+v", proxies[name].Types)
		})
	}
	if out := r.server.must("", "proxy", "status", "-o", "wide"); !strings.Contains(out, "REJECTED") {
		r.t.Errorf("proxy status:\n%s", out)
	}
}

// expectQuiet fails if the server sends more while a rejection stands, if another change makes
// it resend the rejected resource, or if requests get other answers than before.
func (r *refusals) expectQuiet(answeredBy string) {
	s := r.server
	r.t.Helper()
	before, refused := s.responses(), s.counters("portolan_xds_rejections_total", "type")
	for _, l := range r.loads {
		if sample := l.sample(100); len(sample) != 1 || sample[answeredBy] == 0 {
			r.t.Errorf("%s is answered by %v", l.name, sample)
		}
	}
	expectEqual(r.t, "responses of a server that has nothing to say", s.responses(), before)
	r.others = append(r.others, &upstream{name: "other", port: r.shop.v2.port})
	more := r.shop.entry(append([]*upstream{r.shop.v1, r.shop.v2}, r.others...)...)
	expectOutcome(r.t, "other endpoints", s.applyWait([]string{more}), 0, "distributed  2/2 proxies", "accepted 2")
	if sent := less(s.responses(), before); len(sent) != 1 || sent["EDS"] == 0 {
		r.t.Errorf("responses after other endpoints: %v", sent)
	}
	expectEqual(r.t, "refusals", s.counters("portolan_xds_rejections_total", "type"), refused)
}

// takenPort returns a port of 127.0.0.1 that is in use until the test ends.
func takenPort(t *testing.T) int {
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	return taken.Addr().(*net.TCPAddr).Port
}
