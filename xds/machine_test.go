package xds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery"
	facts "github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// told notes what a server tells its Registrar.
type told struct {
	mu    sync.Mutex
	calls []string
	ready sync.Once

	standing facts.Standing
	decided  bool
	changed  func()
}

func (r *told) Join(p *discovery.Proxy, changed func()) discovery.Registration {
	r.note("join " + p.Name + " " + p.Group)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
	return r
}

func (r *told) Labels(p *discovery.Proxy) labels.Instance {
	if p.Group == "" {
		return nil
	}
	return labels.Instance{"app": p.Group}
}

func (r *told) Standing() (facts.Standing, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standing, r.decided
}

// forget has nothing decided.
func (r *told) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing, r.decided = facts.Standing{}, false
}

// decide changes what is told to the machine.
func (r *told) decide(s facts.Standing) { r.set(s)() }

// set does so without a call of what it returns.
func (r *told) set(s facts.Standing) (changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing, r.decided = s, true
	return r.changed
}

func (r *told) Report(healthy bool, message string) {
	r.note(fmt.Sprintf("report %v %s", healthy, message))
}
func (r *told) Ready()                { r.ready.Do(func() { r.note("ready") }) }
func (r *told) Depart(message string) { r.note("depart " + message) }
func (r *told) Leave()                { r.note("leave") }

func (r *told) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *told) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// TestWhatAMachineSaysOfItsHealth: the Registrar is told of each report, in order, also of one that
// is the first request of a stream, and that the proxy has its listeners. No report is answered,
// and the stream goes on.
func TestWhatAMachineSaysOfItsHealth(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		registrar := &told{}
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.Registrar = registrar })
		settledAt := s.Apply(service("a", 8080, "10.1.0.1"))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Follow: true})
		c.Report(codes.OK, "")
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
		settled(t, s, settledAt)
		c.Report(codes.Internal, "503")
		c.Report(codes.OK, "")
		c.Report(codes.Canceled, "stopping")
		want := []string{"join client ", "report true ", "ready", "report false 503", "report true ", "depart stopping"}
		xdstest.Eventually(t, "all reports", func() bool { return len(registrar.all()) >= len(want) })
		if got := registrar.all(); !slices.Equal(got, want) {
			t.Errorf("the registrar is told %q, want %q", got, want)
		}
		if got := c.Answers("type.googleapis.com/istio.v1.HealthInformation"); len(got) != 0 {
			t.Errorf("%d reports were answered", len(got))
		}
		settled(t, s, s.Apply(service("a", 8080, "10.1.0.2")))
		c.Close()
		xdstest.Eventually(t, "the end of the stream", func() bool { return slices.Equal(registrar.all(), append(want, "leave")) })
	})
}

// TestWhatAnAgentSaysOfItsMachine: the status of a proxy has what its agent has said last. No
// request is answered, and one that is too large says nothing. The end of the certificate is that
// which the agent says.
func TestWhatAnAgentSaysOfItsMachine(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		shown, renewed := time.Now().Add(time.Hour).UTC().Truncate(time.Second), time.Now().Add(24*time.Hour).UTC().Truncate(time.Second)
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
			o.Peer = func(context.Context) (admission.Peer, error) {
				return admission.Peer{Identity: shopWeb, Until: shown}, nil
			}
		})
		settledAt := s.Apply(service("a", 8080, "10.1.0.1"))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Follow: true})
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
		settled(t, s, settledAt)
		if p := s.XDS.Proxies(); len(p) != 1 || p[0].Machine != nil || !p[0].CertificateEnds.Equal(shown) {
			t.Fatalf("without an agent: %+v", p)
		}
		says := func(f facts.Facts) { c.Say(resource.FactsType, f.Metadata()) }
		shows := func(f facts.Facts) func() bool {
			return func() bool {
				p := s.XDS.Proxies()
				return len(p) == 1 && p[0].Machine != nil && *p[0].Machine == f
			}
		}
		says(facts.Facts{Agent: "1", CertificateEnds: shown})
		xdstest.Eventually(t, "the facts", shows(facts.Facts{Agent: "1", CertificateEnds: shown}))
		last := facts.Facts{Agent: "1", CertificateEnds: renewed, Capture: "absent"}
		says(last)
		xdstest.Eventually(t, "the facts that have changed", shows(last))
		if p := s.XDS.Proxies(); !p[0].CertificateEnds.Equal(renewed) {
			t.Errorf("the certificate ends %v, and the agent says %v", p[0].CertificateEnds, renewed)
		}
		large := facts.Facts{Agent: "2"}.Metadata()
		large.Fields["MORE"] = structpb.NewStringValue(strings.Repeat("m", 9<<10))
		c.Say(resource.FactsType, large)
		settled(t, s, s.Apply(service("a", 8080, "10.1.0.2")))
		if !shows(last)() {
			t.Errorf("a request that is too large says something: %+v", s.XDS.Proxies()[0].Machine)
		}
		if got := c.Answers(resource.FactsType); len(got) != 0 {
			t.Errorf("%d requests were answered", len(got))
		}
	})
}

// TestWhatAMachineIsToldOfItsRegistration: an agent that asks is told what has become of the
// registration, at once and whenever that changes; one that has it already is told nothing, and one
// that asks for no registration any more loses it. Who does not ask is told nothing.
func TestWhatAMachineIsToldOfItsRegistration(t *testing.T) {
	t.Parallel()
	drained := facts.Standing{State: facts.Registered, Entry: "workloadentry/shop/web-10.0.0.1", Drained: "a disk"}
	refused := facts.Standing{State: facts.Refused, Entry: drained.Entry, Reason: "it is removed"}
	registrar := &told{}
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.Registrar = registrar })
	s.Apply(service("a", 8080, "10.1.0.1"))
	grouped := node("10.0.0.1")
	grouped.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"AUTO_REGISTER_GROUP": structpb.NewStringValue("web")}}
	dial := func(o xdstest.ClientOptions) *xdstest.Client {
		o.Variant, o.Follow = protocol.Delta, true
		c := xdstest.Dial(t, s.Address, o)
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
		return c
	}
	quiet := func(c *xdstest.Client) { // what comes after the answer that it awaits
		t.Helper()
		c.Subscribe(xdstest.ListenerType)
		c.AwaitAnswer(xdstest.ListenerType, 0)
	}
	silent := dial(xdstest.ClientOptions{Node: grouped})
	registrar.decide(drained)
	quiet(silent)
	if got := silent.Answers(resource.RegistrationType); len(got) != 0 {
		t.Errorf("who does not ask is told %v", got)
	}
	silent.Close()
	registrar.forget()

	c := dial(xdstest.ClientOptions{Node: grouped})
	c.Subscribe(resource.RegistrationType)
	quiet(c)
	if got := c.Answers(resource.RegistrationType); len(got) != 0 {
		t.Errorf("before anything is decided: %v", got)
	}
	for i, want := range []facts.Standing{drained, refused} {
		registrar.decide(want)
		c.AwaitAnswer(resource.RegistrationType, i)
		body := &structpb.Struct{}
		held := c.Held(resource.RegistrationType)[resource.RegistrationName]
		if err := held.Body.UnmarshalTo(body); err != nil {
			t.Fatal(err)
		}
		if got := facts.StandingOf(body); got != want {
			t.Errorf("it is told %+v, want %+v", got, want)
		}
		registrar.decide(want) // the same once more is no news
	}
	version := c.Held(resource.RegistrationType)[resource.RegistrationName].Version
	c.Close()
	initial := map[string]map[string]string{resource.RegistrationType: {resource.RegistrationName: version}}
	again := dial(xdstest.ClientOptions{Node: grouped, Initial: initial})
	again.Subscribe(resource.RegistrationType)
	quiet(again)
	if got := again.Answers(resource.RegistrationType); len(got) != 0 {
		t.Errorf("who has it is told %v", got)
	}
	again.Close()
	registrar.forget()
	without := dial(xdstest.ClientOptions{Node: node("10.0.0.1"), Initial: initial})
	without.Subscribe(resource.RegistrationType)
	quiet(without)
	if got := without.Answers(resource.RegistrationType); len(got) != 0 {
		t.Errorf("before anything is decided, without a group: %v", got)
	}
	registrar.decide(facts.Standing{})
	if got := without.AwaitAnswer(resource.RegistrationType, 0); len(got.Removed) != 1 {
		t.Errorf("without a group: %v", got)
	}
}

// TestPoliciesHoldBeforeTheEntry: a policy that selects the machines of a group by a label is in the
// first listeners of a machine that has no entry yet.
func TestPoliciesHoldBeforeTheEntry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		metadata map[string]any
		holds    bool
	}{
		"of the group":    {map[string]any{"AUTO_REGISTER_GROUP": "web"}, true},
		"of another":      {map[string]any{"AUTO_REGISTER_GROUP": "db"}, false},
		"that names none": {map[string]any{}, false},
	} {
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.Registrar = &told{} })
		revision := s.Apply(service("a", 8080, "10.1.0.1"),
			"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: web, namespace: shop}\nspec: {selector: {matchLabels: {app: web}}}\n")
		xdstest.Eventually(t, "the policy is published", func() bool { return s.XDS.Context().Revision() >= revision })
		c.metadata["INTERCEPTION_MODE"] = "REDIRECT"
		metadata, err := structpb.NewStruct(c.metadata)
		if err != nil {
			t.Fatal(err)
		}
		machine := node("10.0.0.1")
		machine.Metadata = metadata
		client := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: machine, Variant: protocol.Delta, Follow: true})
		client.Subscribe(xdstest.ClusterType)
		client.Subscribe(xdstest.ListenerType)
		client.AwaitAnswer(xdstest.ListenerType, 0)
		const allow = "portolan.authorization.http.allow"
		client.Subscribe(resource.ExtensionType, allow)
		client.AwaitAnswer(resource.ExtensionType, 0)
		slot := client.Held(resource.ExtensionType)[allow]
		if got := strings.Contains(slot.Body.String(), "policy[web]"); got != c.holds {
			t.Errorf("a machine %s: it has the policy: %v, %v", name, got, slot.Body)
		}
		client.Close()
	}
}
