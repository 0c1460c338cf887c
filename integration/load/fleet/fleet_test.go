package fleet_test

import (
	"context"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	services, proxies = 20, 5
	// patience leaves time for a busy machine.
	patience = time.Minute
	// silence is how long nothing must come to call a fleet in sync.
	silence = 300 * time.Millisecond
)

var mesh = refmesh.Mesh{Services: services}

// types are the types that all proxies request.
var types = []string{fleet.ClusterType, fleet.EndpointType, fleet.ListenerType, fleet.RouteType}

// rig is a fleet in sync with a control plane that serves the reference mesh.
type rig struct {
	*testing.T
	ctx    context.Context
	server *xdstest.Server
	link   *processtest.Link
	fleet  *fleet.Fleet
	node   func(int) *corev3.Node
	sync   fleet.Sync
}

func both(t *testing.T, f func(*testing.T, protocol.Variant)) {
	t.Helper()
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) { t.Parallel(); f(t, v) })
	}
}

func newRig(t *testing.T, v protocol.Variant) *rig {
	t.Helper()
	return newRigWith(t, mesh, fleet.Options{Variant: v})
}

func newRigWith(t *testing.T, mesh refmesh.Mesh, o fleet.Options) *rig {
	t.Helper()
	v := o.Variant
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r := &rig{T: t, ctx: ctx, server: xdstest.NewServer(t, catalogue.Types())}
	r.link = processtest.NewLink(t, r.server.Address, nil)
	r.apply(refmesh.Change{Objects: mesh.Objects()})
	if r.node = o.Node; r.node == nil {
		r.node = refmesh.Proxies{Mesh: mesh, Spread: true, Interception: "REDIRECT"}.Node
	}
	r.recorded(0, v).Close() // from now on the server has the whole mesh
	o.Address, o.Proxies, o.Node = r.link.Address(), proxies, r.node
	r.fleet = fleet.New(o)
	var running sync.WaitGroup
	running.Go(func() { r.fleet.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	r.sync = r.awaitSync()
	return r
}

// recorded returns a client with the node of a proxy. It records and decodes all responses.
func (r *rig) recorded(proxy int, v protocol.Variant) *xdstest.Client {
	r.Helper()
	c := xdstest.Dial(r, r.server.Address, xdstest.ClientOptions{Node: r.node(proxy), Variant: v, Follow: true})
	c.Subscribe(fleet.ClusterType)
	c.Subscribe(fleet.ListenerType)
	c.Await("all of the mesh", func(held func(string) map[string]xdstest.Held) bool {
		return len(held(fleet.EndpointType)) >= 4*services && len(held(fleet.RouteType)) > 0
	})
	return c
}

func (r *rig) awaitSync() fleet.Sync {
	r.Helper()
	got, err := r.fleet.AwaitSync(r.ctx, silence)
	if err != nil {
		r.Fatal(err)
	}
	return got
}

// apply makes a change in the server's store.
func (r *rig) apply(change refmesh.Change) {
	r.Helper()
	var ops []storage.Op
	for _, object := range change.Objects {
		if change.Delete {
			ops = append(ops, storage.Op{Verb: storage.Delete, Key: object.Key()})
		} else {
			ops = append(ops, storage.Op{Verb: storage.Put, Config: object})
		}
	}
	r.server.Batch(ops)
}

// change makes a change, waits until every proxy has received what is expected, and returns all
// that the change made the server send.
func (r *rig) change(change refmesh.Change, expected ...fleet.Expectation) fleet.Counts {
	r.Helper()
	before := r.fleet.Counts()
	receipt := r.fleet.Expect(expected...)
	began := time.Now()
	r.apply(change)
	times, err := receipt.Await(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	for i, at := range times {
		if at.Before(began) {
			r.Errorf("proxy %d had the change before it was made", i)
		}
	}
	r.awaitSilence()
	return r.fleet.Counts().Since(before)
}

func (r *rig) awaitSilence() {
	r.Helper()
	if err := r.fleet.AwaitSilence(r.ctx, silence); err != nil {
		r.Fatal(err)
	}
}

// TestEverythingIsReceived: the proxies of a fleet receive the same as recording clients with
// the same nodes, which decode everything.
func TestEverythingIsReceived(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		r := newRig(t, v)
		want := map[string]int64{}
		for i := range proxies {
			c := r.recorded(i, v)
			for _, typeURL := range types {
				want[typeURL] += int64(len(c.Held(typeURL)))
			}
		}
		for typeURL, n := range want {
			most := n
			if v == protocol.StateOfTheWorld {
				most = 2 * n // endpoints that wait for clusters may come in a second response, together with the others
			}
			if got := r.sync.Counts[typeURL]; got.Resources < n || got.Resources > most || got.Bytes == 0 {
				t.Errorf("%s: %+v, want %d resources", path.Base(typeURL), got, n)
			}
		}
		if r.sync.Reconnects != 0 {
			t.Errorf("%d streams were opened again", r.sync.Reconnects)
		}
	})
}

// TestSecretsOfMutualTLSAreReceived: proxies request the secrets of their own certificate, which
// clusters use for some endpoints.
func TestSecretsOfMutualTLSAreReceived(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		r := newRigWith(t, refmesh.Mesh{Services: services, Peers: true}, fleet.Options{Variant: v})
		want := int64(2 * proxies)
		if v == protocol.StateOfTheWorld {
			want *= 2 // proxies request them again when their last clusters come
		}
		if got := r.sync.Counts[fleet.SecretType]; got.Resources < 2*proxies || got.Resources > want {
			t.Errorf("%+v for %d proxies, want the certificate and the roots of each", got, proxies)
		}
	})
}

// TestPoliciesAreReceived: proxies request the configurations of the filters of their listeners. A
// changed policy is one of them for each proxy of its namespace.
func TestPoliciesAreReceived(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		mesh := refmesh.Mesh{Services: services, Policies: true}
		r := newRigWith(t, mesh, fleet.Options{Variant: v, Node: refmesh.Proxies{Mesh: mesh, Interception: "REDIRECT"}.Node})
		if got := r.sync.Counts[fleet.ExtensionType]; got.Resources < 2*proxies {
			t.Errorf("%+v for %d proxies", got, proxies)
		}
		changed := mesh.ChangePolicy(1)
		got := r.change(changed, fleet.Expectation{Types: []string{fleet.ExtensionType}, Mark: changed.Mark})
		r.expectSent("a policy", got, 4<<10, fleet.ExtensionType)
	})
}

// expectSent fails if the server sent other types, or more than most bytes to a proxy.
func (r *rig) expectSent(what string, counts fleet.Counts, most int64, types ...string) {
	r.Helper()
	for typeURL, c := range counts {
		if !slices.Contains(types, typeURL) {
			r.Errorf("%s: %+v of %s was sent", what, c, path.Base(typeURL))
		}
	}
	if got := counts.Total().Bytes / proxies; got == 0 || got > most {
		r.Errorf("%s: %d bytes for a proxy, want at most %d", what, got, most)
	}
}

// TestNothingButWhatChangedIsSent: a change of one endpoint is one EDS response for each proxy.
// A change of a VirtualService is one response with virtual hosts, or with one route
// configuration. No other type is sent, and a write without a change sends nothing.
func TestNothingButWhatChangedIsSent(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		r := newRig(t, v)
		moved := mesh.ChangeEndpoint(refmesh.Target, 1)
		got := r.change(moved, fleet.Expectation{Types: []string{fleet.EndpointType}, Mark: moved.Mark})
		r.expectSent("one endpoint", got, 8<<10, fleet.EndpointType)
		// Both ports, each with and without the subset of the endpoint.
		if e := got[fleet.EndpointType]; e.Messages != proxies || e.Resources != 4*proxies {
			t.Errorf("one endpoint: %+v for %d proxies", e, proxies)
		}

		changed := mesh.ChangeRoutes(refmesh.Target, 1)
		got = r.change(changed, fleet.Expectation{Mark: changed.Mark})
		whole := r.sync.Counts[fleet.RouteType].Bytes / proxies
		r.expectSent("one VirtualService", got, max(whole, 16<<10)*11/10, fleet.RouteType, fleet.VirtualHostType)
		if c := got.Total(); c.Messages != proxies || c.Resources != proxies {
			t.Errorf("one VirtualService: %+v for %d proxies", c, proxies)
		}

		before := r.fleet.Counts()
		r.apply(changed) // writes what is there
		r.awaitSilence()
		if more := r.fleet.Counts().Since(before); len(more) > 0 {
			t.Errorf("nothing changed, and %v was sent", more)
		}
	})
}

// TestWhatIsAskedForFollowsWhatIsSent: proxies subscribe to the endpoints of a new cluster, and
// unsubscribe when the cluster goes.
func TestWhatIsAskedForFollowsWhatIsSent(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		r := newRig(t, v)
		for range 2 { // the second time they subscribe again
			added := mesh.NewService(1)
			got := r.change(added,
				fleet.Expectation{Types: []string{fleet.ClusterType}, Mark: added.Mark},
				fleet.Expectation{Types: []string{fleet.EndpointType}, Mark: added.Mark},
				fleet.Expectation{Types: []string{fleet.RouteType, fleet.VirtualHostType}, Mark: added.Mark})
			if n := got[fleet.EndpointType].Resources; n != 2*proxies {
				t.Errorf("a new service: %d endpoint resources for %d proxies", n, proxies)
			}
			got = r.change(mesh.DeleteService(1), fleet.Expectation{
				Types: []string{fleet.ClusterType}, Mark: added.Mark, Absent: v == protocol.StateOfTheWorld,
			})
			if n := got[fleet.ClusterType].Removed; v == protocol.Delta && n != 2*proxies {
				t.Errorf("a deleted service: %d removed clusters for %d proxies", n, proxies)
			}
		}
	})
}

// TestAFleetComesBack: proxies whose streams end open others, and receive everything again.
func TestAFleetComesBack(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		r := newRig(t, v)
		first := r.sync.Counts
		r.link.Cut()
		r.link.Mend()
		for r.sync.Reconnects < proxies {
			r.sync = r.awaitSync()
		}
		for _, typeURL := range types {
			if n, want := r.sync.Counts[typeURL].Resources, 2*first[typeURL].Resources; n != want {
				t.Errorf("%s: %d resources with those after the reconnect, want %d", path.Base(typeURL), n, want)
			}
		}
	})
}

// TestWhatIsStatedIsNotSentAgain: proxies that state what they have receive only what changed
// while they were away.
func TestWhatIsStatedIsNotSentAgain(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		r := newRigWith(t, mesh, fleet.Options{Variant: v, States: true})
		moved := mesh.ChangeEndpoint(refmesh.Target, 1)
		r.change(moved, fleet.Expectation{Types: []string{fleet.EndpointType}, Mark: moved.Mark})
		before := r.fleet.Counts()
		r.link.Cut()
		away := mesh.ChangeEndpoint(refmesh.Target, 2)
		receipt := r.fleet.Expect(fleet.Expectation{Types: []string{fleet.EndpointType}, Mark: away.Mark})
		r.apply(away)
		r.link.Mend()
		if _, err := receipt.Await(r.ctx); err != nil {
			t.Fatal(err)
		}
		for r.sync.Reconnects < proxies {
			r.sync = r.awaitSync()
		}
		got := r.fleet.Counts().Since(before)
		if v == protocol.Delta {
			r.expectSent("the endpoint that changed meanwhile", got, 8<<10, fleet.EndpointType)
			if n := got[fleet.EndpointType].Resources; n != 4*proxies {
				t.Errorf("%d endpoint resources were sent", n)
			}
			return
		}
		// A version in state of the world covers several names, so it does not say what a
		// client has.
		r.expectSent("what a version does not tell", got, 1<<20, fleet.EndpointType, fleet.RouteType, fleet.ExtensionType)
	})
}

// TestAThousandProxiesAtOnce: all are brought up, a few at a time. Those that wait are not
// refused.
func TestAThousandProxiesAtOnce(t *testing.T) {
	const crowd, turns = 1000, 20
	both(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.MaxFirstSyncs = turns })
		small := refmesh.Mesh{Services: 4}
		r := &rig{T: t, server: s}
		r.apply(refmesh.Change{Objects: small.Objects()})
		xdstest.Eventually(t, "the mesh is published", func() bool { return strconv.FormatInt(s.XDS.Context().Revision(), 10) == s.Store.Version() })
		f := fleet.New(fleet.Options{
			Address: s.Address, Proxies: crowd, Variant: v, Node: refmesh.Proxies{Mesh: small, Interception: "REDIRECT"}.Node,
		})
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		got, err := f.AwaitSync(ctx, silence)
		if err != nil {
			t.Fatal(err)
		}
		if got.Reconnects > 0 {
			t.Errorf("%d streams were refused: %v", got.Reconnects, got.Reason)
		}
		t.Logf("%d proxies at most were brought up at one time", f.Rising())
		if n := f.Rising(); n > 2*turns { // a slow client's turn ends early
			t.Errorf("%d proxies were brought up at one time, not %d", n, turns)
		}
	})
}
