package xds_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	mcp "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// kindURL is the type that a control plane requests for a kind.
func kindURL(kind config.GroupVersionKind) string {
	return export.TypeURL(kind.Group, kind.Version, kind.Kind)
}

// exportedKinds are the kinds that a control plane may have.
func exportedKinds() []*schema.Schema {
	return slices.DeleteFunc(slices.Clone(schema.Pilot().All()), func(s *schema.Schema) bool {
		_, isMessage := s.Codec.New().(proto.Message)
		return s.Internal || !isMessage
	})
}

// controlPlane connects a control plane that takes all kinds of the mesh.
func controlPlane(t testing.TB, s *xdstest.Server, o xdstest.ClientOptions) *xdstest.Client {
	t.Helper()
	o.Node = xdstest.NewConfigNode("istiod-1", "istio-system")
	resumes := o.Resume != nil
	c := xdstest.Dial(t, s.Address, o)
	if !resumes {
		for _, kind := range exportedKinds() {
			c.Subscribe(kindURL(kind.GroupVersionKind))
		}
	}
	return c
}

// stored are the objects of the store, as a control plane should have them, by type and
// name.
func stored(t testing.TB, s *xdstest.Server) map[string]map[string]*mcp.Resource {
	t.Helper()
	out := map[string]map[string]*mcp.Resource{}
	for _, kind := range exportedKinds() {
		out[kindURL(kind.GroupVersionKind)] = map[string]*mcp.Resource{}
		objects, err := s.Store.List(context.Background(), kind.GroupVersionKind, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range objects {
			out[kindURL(kind.GroupVersionKind)][c.Namespace+"/"+c.Name] = exportedForm(t, c)
		}
	}
	return out
}

// exportedForm is an object as a control plane should have it.
func exportedForm(t testing.TB, c *config.Config) *mcp.Resource {
	t.Helper()
	r, err := export.Resource(c)
	if err != nil {
		t.Fatal(err)
	}
	out := &mcp.Resource{}
	if err := r.Body.UnmarshalTo(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// has returns what a control plane has of a type, by name.
func has(held map[string]xdstest.Held) map[string]*mcp.Resource {
	out := map[string]*mcp.Resource{}
	for name, h := range held {
		m := &mcp.Resource{}
		if err := h.Body.UnmarshalTo(m); err != nil {
			panic(err)
		}
		out[name] = m
	}
	return out
}

// awaitStored waits until a control plane has what the store has.
func awaitStored(t testing.TB, s *xdstest.Server, c *xdstest.Client) {
	t.Helper()
	want := stored(t, s)
	c.Await("all objects of the store", func(held func(string) map[string]xdstest.Held) bool {
		for typeURL, objects := range want {
			if !maps.EqualFunc(objects, has(held(typeURL)), func(a, b *mcp.Resource) bool { return proto.Equal(a, b) }) {
				return false
			}
		}
		return true
	})
}

// TestAControlPlaneTakesTheObjects of all kinds, with their metadata; a kind without
// objects is answered too.
func TestAControlPlaneTakesTheObjects(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		labelled := xdstest.Objects(t, service("reviews", 9080, "10.1.0.1"))[0]
		labelled.Labels, labelled.Annotations = map[string]string{"team": "a", "app": "b"}, map[string]string{"note": "x"}
		s.Batch([]storage.Op{{Verb: storage.Put, Config: labelled}})
		published(t, s, s.Apply(route("reviews", "reviews"), subsets))
		c := controlPlane(t, s, xdstest.ClientOptions{Variant: v})
		for _, kind := range exportedKinds() {
			c.AwaitAnswer(kindURL(kind.GroupVersionKind), 0)
		}
		awaitStored(t, s, c)
		got := has(c.Held(kindURL(schema.ServiceEntry)))["shop/reviews"]
		kept, err := s.Store.Get(context.Background(), labelled.GroupVersionKind, labelled.Name, labelled.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		m := got.GetMetadata()
		if m.GetVersion() != kept.ResourceVersion || !m.GetCreateTime().AsTime().Equal(kept.CreationTimestamp) ||
			!maps.Equal(m.GetLabels(), labelled.Labels) || !maps.Equal(m.GetAnnotations(), labelled.Annotations) {
			t.Errorf("metadata %v, want those of %+v", m, kept.Meta)
		}
		spec, err := got.GetBody().UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(labelled.Spec, spec, protocmp.Transform()); d != "" {
			t.Errorf("spec (-want +got):\n%s", d)
		}
	})
}

// TestAControlPlaneGetsWhatChanges: one object in delta, and its removal.
func TestAControlPlaneGetsWhatChanges(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.2"), route("reviews", "reviews")))
		c := controlPlane(t, s, xdstest.ClientOptions{Variant: v})
		awaitStored(t, s, c)
		services := kindURL(schema.ServiceEntry)
		xdstest.Eventually(t, "all is acknowledged", func() bool { return acknowledged(s) })
		before := len(c.Answers(""))

		s.Apply(service("reviews", 9080, "10.1.0.7"))
		awaitStored(t, s, c)
		names, removed := []string{"shop/reviews"}, []string(nil)
		if v == protocol.StateOfTheWorld {
			names = []string{"shop/ratings", "shop/reviews"}
		}
		if last := c.AwaitAnswer(services, 1); !slices.Equal(last.Names(), names) || len(last.Removed) > 0 {
			t.Errorf("a change sent %v, and removed %v", last.Names(), last.Removed)
		}
		xdstest.Eventually(t, "the change is acknowledged", func() bool { return acknowledged(s) })

		s.Delete(service("reviews", 9080))
		awaitStored(t, s, c)
		names, removed = nil, []string{"shop/reviews"}
		if v == protocol.StateOfTheWorld {
			names, removed = []string{"shop/ratings"}, nil
		}
		if last := c.AwaitAnswer(services, 2); !slices.Equal(last.Names(), names) || !slices.Equal(last.Removed, removed) {
			t.Errorf("a delete sent %v, and removed %v", last.Names(), last.Removed)
		}
		if d := cmp.Diff(map[string]int{services: 2}, sent(c, before)); d != "" {
			t.Errorf("answers (-want +got):\n%s", d)
		}
	})
}

// acknowledged says whether the one control plane has all kinds.
func acknowledged(s *xdstest.Server) bool {
	all := s.XDS.Proxies()
	return len(all) == 1 && len(all[0].Types) == len(exportedKinds()) &&
		!slices.ContainsFunc(all[0].Types, func(t progress.TypeStatus) bool { return t.State != protocol.Synced })
}

// TestAKindInAnotherVersionIsTheSame: a control plane may request a kind in any API
// version. The answer has the version that was requested.
func TestAKindInAnotherVersionIsTheSame(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Variant: v, Node: xdstest.NewConfigNode("a", "b")})
		versions := []string{"v1", "v1beta1", "v1alpha3"}
		for _, version := range versions {
			c.Subscribe("networking.istio.io/" + version + "/ServiceEntry")
		}
		for _, version := range versions {
			if got := c.AwaitAnswer("networking.istio.io/"+version+"/ServiceEntry", 0).Names(); !slices.Equal(got, []string{"shop/reviews"}) {
				t.Errorf("%s: %v", version, got)
			}
		}
	})
}

// TestAnUnknownKindHasNoObjects: a control plane that knows more kinds is answered, so that
// it need not wait.
func TestAnUnknownKindHasNoObjects(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Variant: v, Node: xdstest.NewConfigNode("a", "b")})
		for _, typeURL := range []string{"core/v1alpha1/MeshConfig", "core/v1/Secret", "odd", xdstest.ClusterType} {
			c.Subscribe(typeURL)
			if a := c.AwaitAnswer(typeURL, 0); len(a.Names())+len(a.Removed) > 0 {
				t.Errorf("%s: %+v", typeURL, a)
			}
		}
	})
}

// TestAReturningControlPlaneGetsTheDifference to what it has, by its versions in delta.
func TestAReturningControlPlaneGetsTheDifference(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.2"), service("details", 9080, "10.1.0.3"))
		first := controlPlane(t, s, xdstest.ClientOptions{Variant: v})
		awaitStored(t, s, first)
		xdstest.Eventually(t, "all is acknowledged", func() bool { return acknowledged(s) })
		first.Close()
		s.Delete(service("ratings", 9080))
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.9")))
		again := controlPlane(t, s, xdstest.ClientOptions{Variant: v, Resume: first})
		awaitStored(t, s, again)
		if v == protocol.StateOfTheWorld {
			return
		}
		a := again.AwaitAnswer(kindURL(schema.ServiceEntry), 0)
		if !slices.Equal(a.Names(), []string{"shop/reviews"}) || !slices.Equal(a.Removed, []string{"shop/ratings"}) {
			t.Errorf("sent %v, removed %v", a.Names(), a.Removed)
		}
	})
}

// TestAReturningControlPlaneIsAnswered for each kind, also if nothing differs, since it
// waits for the answer. In delta the answer is empty.
func TestAReturningControlPlaneIsAnswered(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
		first := controlPlane(t, s, xdstest.ClientOptions{Variant: v})
		awaitStored(t, s, first)
		xdstest.Eventually(t, "all is acknowledged", func() bool { return acknowledged(s) })
		first.Close()
		again := controlPlane(t, s, xdstest.ClientOptions{Variant: v, Resume: first})
		for _, kind := range exportedKinds() {
			a := again.AwaitAnswer(kindURL(kind.GroupVersionKind), 0)
			if v == protocol.Delta && len(a.Resources)+len(a.Removed) > 0 {
				t.Errorf("%s: sent %v, removed %v", kind.Kind, a.Names(), a.Removed)
			}
		}
		awaitStored(t, s, again)
	})
}

// TestAControlPlaneGetsABatchAtOnce: all that one batch creates, changes and deletes of a
// kind comes in one response.
func TestAControlPlaneGetsABatchAtOnce(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("a", 9080, "10.1.0.1"), service("b", 9080, "10.1.0.2")))
		c := controlPlane(t, s, xdstest.ClientOptions{Variant: v})
		awaitStored(t, s, c)
		xdstest.Eventually(t, "all is acknowledged", func() bool { return acknowledged(s) })
		s.Batch(append(xdstest.Ops(t, service("b", 9081, "10.1.0.2"), service("c", 9080, "10.1.0.3")), xdstest.Removals(t, service("a", 9080))...))
		a := c.AwaitAnswer(kindURL(schema.ServiceEntry), 1)
		removed := []string{"shop/a"}
		if v == protocol.StateOfTheWorld {
			removed = nil
		}
		if !slices.Equal(a.Names(), []string{"shop/b", "shop/c"}) || !slices.Equal(a.Removed, removed) {
			t.Errorf("sent %v, removed %v", a.Names(), a.Removed)
		}
	})
}

// TestAControlPlaneFollowsTheStore through random histories, over new streams too.
func TestAControlPlaneFollowsTheStore(t *testing.T) {
	t.Parallel()
	for seed := range longtest.Histories(6, 200) {
		variants(t, func(t *testing.T, v protocol.Variant) { follow(t, v, rand.New(rand.NewPCG(uint64(seed), 1))) })
	}
}

func follow(t *testing.T, v protocol.Variant, random *rand.Rand) {
	s := xdstest.NewServer(t, catalogue.Types())
	c := controlPlane(t, s, xdstest.ClientOptions{Variant: v})
	for range 12 {
		if ops := someWrites(t, s, random); len(ops) > 0 {
			s.Batch(ops)
		}
		switch random.IntN(5) {
		case 0:
			c.Close()
			c = controlPlane(t, s, xdstest.ClientOptions{Variant: v, Resume: c})
		case 1: // the next change comes before the answer
			continue
		}
		awaitStored(t, s, c)
	}
	awaitStored(t, s, c)
}

// someWrites draws a batch that the store takes.
func someWrites(t *testing.T, s *xdstest.Server, random *rand.Rand) (ops []storage.Op) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	seen := map[string]bool{}
	for range 1 + random.IntN(3) {
		name := pick("a", "b", "c")
		document := pick(service(name, 1+random.IntN(3), "10.1.0.1"), route(name, pick("a", "b")))
		object := xdstest.Objects(t, document)[0]
		if seen[object.Key().Path()] {
			continue
		}
		seen[object.Key().Path()] = true
		if random.IntN(3) > 0 {
			ops = append(ops, storage.Op{Verb: storage.Put, Config: object})
		} else if _, err := s.Store.Get(context.Background(), object.GroupVersionKind, object.Name, object.Namespace); err == nil {
			ops = append(ops, storage.Op{Verb: storage.Delete, Key: object.Key()})
		}
	}
	return ops
}

// TestAControlPlaneIsNoProxy: the server lists it among its clients, but no change waits
// for it.
func TestAControlPlaneIsNoProxy(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	c := controlPlane(t, s, xdstest.ClientOptions{Variant: protocol.Delta, Manual: true})
	c.AwaitAnswer(kindURL(schema.ServiceEntry), 0)
	revision := s.Apply(service("reviews", 9080, "10.1.0.1"))
	published(t, s, revision)
	xdstest.Eventually(t, "the control plane is shown with all kinds", func() bool {
		all := s.XDS.Proxies()
		return len(all) == 1 && len(all[0].Types) == len(exportedKinds())
	})
	if p := s.XDS.Proxies()[0]; p.Type != "api" || p.Name != "istiod-1.istio-system" {
		t.Errorf("shown as %+v", p)
	}
	if nodes := s.XDS.Nodes(); len(nodes) > 0 {
		t.Errorf("proxies %v", nodes)
	}
	if counts := s.XDS.Progress().All(revision); counts.Proxies() != 0 {
		t.Errorf("the change waits for %+v", counts)
	}
}

// TestAnObjectThatAControlPlaneRefusesIsNamed, and the others reach it.
func TestAnObjectThatAControlPlaneRefusesIsNamed(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
		c := controlPlane(t, s, xdstest.ClientOptions{Variant: v, Refuse: func(a *xdstest.Answer) string {
			if _, bad := a.Resources["shop/bad"]; bad {
				return "no such thing"
			}
			return ""
		}})
		awaitStored(t, s, c)
		s.Apply(service("bad", 9080, "10.1.0.2"), service("good", 9080, "10.1.0.3"))
		services := kindURL(schema.ServiceEntry)
		c.Await("the other object", func(held func(string) map[string]xdstest.Held) bool {
			return slices.Equal(slices.Sorted(maps.Keys(held(services))), []string{"shop/good", "shop/reviews"})
		})
		xdstest.Eventually(t, "the object is named", func() bool {
			for _, typ := range s.XDS.Proxies()[0].Types {
				if typ.Name == "ServiceEntry" {
					return typ.State == protocol.Rejected && slices.Equal(typ.Objects, []string{"serviceentry/shop/bad"})
				}
			}
			return false
		})
	})
}

// TestHoldingsOfAControlPlane: Holdings says what it has and lacks, with the objects,
// including those that it is about to lose.
func TestHoldingsOfAControlPlane(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.1")))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Variant: v, Node: xdstest.NewConfigNode("a", "b"), Manual: true})
		services := kindURL(schema.ServiceEntry)
		c.Subscribe(services)
		c.Ack(c.AwaitAnswer(services, 0))
		xdstest.Eventually(t, "all is acknowledged", func() bool {
			all := s.XDS.Proxies()
			return len(all) == 1 && all[0].Types[0].State == protocol.Synced
		})
		s.Delete(service("ratings", 9080))
		s.Apply(service("reviews", 9080, "10.1.0.2"))
		c.AwaitAnswer(services, 1)
		var h *xds.Holdings
		xdstest.Eventually(t, "the response is noted", func() (done bool) {
			var err error
			if h, err = s.XDS.Holdings(t.Context(), s.XDS.Clients()[0].ID, func(name string) bool { return name == "ServiceEntry" }); err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(h.Types[0].Resources, func(of xds.Holding) bool { return of.InSync() })
		})
		got := map[string][]string{}
		for _, of := range h.Types[0].Resources {
			got[of.Name] = config.Names(of.Objects)
		}
		want := map[string][]string{"shop/ratings": {"serviceentry/shop/ratings"}, "shop/reviews": {"serviceentry/shop/reviews"}}
		if d := cmp.Diff(want, got); d != "" || !h.Types[0].Requested || h.Types[1].Requested {
			t.Errorf("%+v (-want +got)\n%s", h.Types, d)
		}
	})
}

// TestAnIstiodIsUnderstood: an istiod sends a nonce of its own in the first request of a
// type, and the node in each request.
func TestAnIstiodIsUnderstood(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	published(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
	connection, err := grpc.NewClient(s.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node := xdstest.NewConfigNode("istiod-1", "istio-system")
	node.Metadata.Fields["ISTIO_VERSION"] = structpb.NewStringValue("65536.65536.65536")
	types := []string{"core/v1alpha1/MeshConfig", kindURL(schema.ServiceEntry), kindURL(schema.Gateway)}
	for _, typeURL := range types {
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: typeURL, ResponseNonce: time.Now().String()}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int{}
	for range len(types) {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got[r.GetTypeUrl()] = len(r.GetResources())
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo()}); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(map[string]int{types[0]: 0, types[1]: 1, types[2]: 0}, got); d != "" {
		t.Errorf("objects by type (-want +got):\n%s", d)
	}
	s.Delete(service("reviews", 9080))
	if r, err := stream.Recv(); err != nil || r.GetTypeUrl() != types[1] || len(r.GetResources()) > 0 {
		t.Errorf("after a delete: %v, %v", r, err)
	}
}

// TestAServerWithoutAnExportRefusesControlPlanes.
func TestAServerWithoutAnExportRefusesControlPlanes(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.Export = nil })
	c := controlPlane(t, s, xdstest.ClientOptions{Variant: protocol.Delta})
	if err := c.AwaitEnd(); !strings.Contains(err.Error(), "exports no objects") {
		t.Errorf("the stream ends with %v", err)
	}
}
