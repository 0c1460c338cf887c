package protocol_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TestAnyClientConverges drives subscriptions through random histories: changes,
// requests, Allows, scopes, resends, late answers, and NACKs. At a NACK the client may
// have taken nothing or a part, and its message may mention any names. What the
// subscription says of its client must be true at any time. In the end the client has
// what it should, and refuses only what is bad.
func TestAnyClientConverges(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	hosts := protocol.Type{URL: "hosts", Full: true, Scoped: true, Shared: protocol.NewShared()}
	kinds := protocol.Type{URL: "kinds", Full: true, AlwaysAnswered: true, Shared: protocol.NewShared()}
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		for _, typ := range []protocol.Type{clusters, endpoints, secrets, filters, hosts, kinds} {
			if typ.Scoped && v == protocol.StateOfTheWorld {
				continue
			}
			t.Run(fmt.Sprintf("%s %s", v, typ.URL), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					m := &model{t: t, typ: typ, variant: v, scopes: map[string]bool{}, wanted: map[string]bool{}, bad: map[string]string{}}
					m.run()
				})
			})
		}
	}
}

// model is a client, and a server around its subscription.
type model struct {
	t       *rapid.T
	typ     protocol.Type
	variant protocol.Variant
	s       *protocol.Subscription

	offered  resource.Set
	revision int64
	scopes   map[string]bool // open scopes

	wildcard bool
	wanted   map[string]bool
	holds    map[string]string
	again    map[string]bool // names to be sent again
	flight   *protocol.Response
	nonce    string
	version  string
	bad      map[string]string // versions that it refused
	parts    bool              // it may take a part of a response that it refuses
}

var modelNames = []string{"r/a", "r/b", "q/a", "q/b", "q/c", "q/d", "q/e"}

func (m *model) run() {
	m.holds, m.again = map[string]string{}, map[string]bool{}
	m.wildcard = m.typ.Full
	m.parts = rapid.Bool().Draw(m.t, "parts")
	m.connect()
	steps := []func(){
		m.set, m.set, m.set, m.remove, m.subscribe, m.send, m.send, m.answer, m.answer, m.resend, m.scope, m.reconnect,
	}
	for range rapid.IntRange(1, 40).Draw(m.t, "steps") {
		steps[rapid.IntRange(0, len(steps)-1).Draw(m.t, "step")]()
		m.check()
	}
	m.finish()
}

func (m *model) pick(what string) string { return rapid.SampledFrom(modelNames).Draw(m.t, what) }

func (m *model) some(what string) map[string]bool {
	out := map[string]bool{}
	for _, name := range rapid.SliceOf(rapid.SampledFrom(modelNames)).Draw(m.t, what) {
		out[name] = true
	}
	return out
}

func (m *model) wants(name string) bool { return m.wildcard || m.wanted[name] }

func (m *model) open(name string) bool { return !m.typ.Scoped || m.scopes[protocol.ScopeOf(name)] }

func (m *model) names() []string {
	out := slices.Sorted(maps.Keys(m.wanted))
	if m.wildcard && len(out) > 0 {
		out = append(out, "*")
	}
	return out
}

func (m *model) offer() {
	m.revision++
	m.s.SetDesired(m.offered, m.revision)
}

func (m *model) set() {
	name, content := m.pick("set"), rapid.SampledFrom([]string{"1", "2", "bad"}).Draw(m.t, "content")
	m.offered = m.offered.Set(name, res(m.t, name, content))
	m.offer()
}

func (m *model) remove() {
	name := m.pick("remove")
	m.offered = m.offered.Delete(name)
	delete(m.again, name)
	m.offer()
}

// connect opens a stream on which the client states what it has.
func (m *model) connect() {
	table := []*nameset.Table{nil, nameset.NewTable()}[rapid.IntRange(0, 1).Draw(m.t, "table")]
	typ := m.typ
	typ.Names = table
	m.s = protocol.New(typ, m.variant)
	m.flight, m.nonce = nil, ""
	clear(m.again)
	clear(m.scopes)
	m.offer()
	m.s.Request(protocol.Request{Names: protocoltest.NameSet(m.names()...), Subscribe: protocoltest.NameSet(m.names()...), Initial: protocoltest.Versions(m.holds), Version: m.version})
	if st := m.s.Status(); typ.AlwaysAnswered && m.wildcard && st.State == protocol.Synced {
		m.t.Fatal("nothing is due to a client that waits for an answer")
	}
}

func (m *model) reconnect() {
	if rapid.IntRange(0, 3).Draw(m.t, "reconnect") == 0 {
		m.connect()
	}
}

func (m *model) subscribe() {
	if m.variant == protocol.StateOfTheWorld && (m.flight != nil || m.typ.Full) {
		return // it would be part of the answer
	}
	name := m.pick("subscribe")
	q := protocol.Request{Nonce: m.nonce}
	switch {
	case !m.wanted[name]:
		m.wanted[name] = true
		q.Subscribe = protocoltest.NameSet(name)
	case len(m.wanted) > 1 || m.wildcard:
		delete(m.wanted, name)
		delete(m.again, name)
		if !m.wildcard {
			delete(m.holds, name)
		}
		q.Unsubscribe = protocoltest.NameSet(name)
	}
	if m.variant == protocol.Delta {
		q.Nonce = ""
	}
	q.Names = protocoltest.NameSet(m.names()...)
	m.s.Request(q)
}

// resend resends a name, as a server does that sends its parent.
func (m *model) resend() {
	name := m.pick("resend")
	if _, exists := m.offered.Get(name); exists && m.wants(name) && m.open(name) {
		m.again[name] = true
	}
	m.s.Resend(name)
}

// scope opens or closes a scope. If the scope is new to the client, the client has
// nothing in it.
func (m *model) scope() {
	if !m.typ.Scoped {
		return
	}
	scope := rapid.SampledFrom([]string{"r", "q"}).Draw(m.t, "scope")
	switch rapid.IntRange(0, 3).Draw(m.t, "how") {
	case 0:
		m.s.CloseScope(scope)
		delete(m.scopes, scope)
		maps.DeleteFunc(m.again, func(name string, _ bool) bool { return !m.open(name) })
	case 1:
		m.s.OpenScope(scope, true)
		m.scopes[scope] = true
		maps.DeleteFunc(m.holds, func(name, _ string) bool { return protocol.ScopeOf(name) == scope })
	default:
		m.s.OpenScope(scope, false)
		m.scopes[scope] = true
	}
}

// send sends the next response, as far as a random Allow permits.
func (m *model) send() {
	add, remove := m.some("add"), m.some("remove")
	allow := protocol.Allow{Add: func(name string) bool { return add[name] }, Remove: func(name string) bool { return remove[name] }}
	allow.Together = rapid.Bool().Draw(m.t, "together")
	if rapid.Bool().Draw(m.t, "all") {
		allow = protocoltest.Everything()
	}
	r, ok := m.s.Next(allow)
	if !ok {
		return
	}
	if m.flight != nil {
		m.t.Fatal("two responses are under way")
	}
	for _, x := range r.Changed {
		if _, exists := m.offered.Get(x.Name); exists && allow.Add != nil && !add[x.Name] {
			m.t.Fatalf("%s is sent, which is not allowed", x.Name)
		}
	}
	for name := range r.Withdrawn {
		if !allow.Remove(name) && m.variant == protocol.Delta {
			m.t.Fatalf("%s is withdrawn, which is not allowed", name)
		}
	}
	m.flight, m.nonce = r, r.Nonce
	m.t.Logf("sent %v removed %v", names(r, true), r.Removed)
	for _, x := range r.Resources {
		delete(m.again, x.Name)
	}
}

// answer acknowledges the response in flight, or refuses it. A client that refuses it may
// have taken a part even so.
func (m *model) answer() {
	r := m.flight
	if r == nil {
		return
	}
	m.flight = nil
	q := protocol.Request{Nonce: r.Nonce, Names: protocoltest.NameSet(m.names()...)}
	taken := map[string]bool{}
	for _, x := range r.Resources {
		taken[x.Name] = true
		if x.Version == res(m.t, x.Name, "bad").Version {
			q.Rejected = true
			m.bad[x.Name] = x.Version
		}
	}
	if q.Rejected {
		q.Message = strings.Join(slices.Sorted(maps.Keys(m.some("words"))), " ")
		taken = map[string]bool{}
		if m.parts {
			taken = m.some("taken of what is refused")
		}
	} else {
		m.version = r.Version
	}
	m.take(r, taken, q.Rejected)
	q.Version = m.version
	m.t.Logf("answers, refuses %v taken %v", q.Rejected, taken)
	m.s.Request(q)
}

func (m *model) take(r *protocol.Response, taken map[string]bool, rejected bool) {
	if m.variant == protocol.StateOfTheWorld && m.typ.Full && (!rejected || m.parts) {
		maps.DeleteFunc(m.holds, func(name, _ string) bool {
			return !slices.ContainsFunc(r.Resources, func(x *resource.Resource) bool { return x.Name == name })
		})
	}
	for _, x := range r.Resources {
		if taken[x.Name] && m.wants(x.Name) && x.Version != m.bad[x.Name] {
			m.holds[x.Name] = x.Version
		}
	}
	for _, name := range r.Removed {
		if !rejected || taken[name] {
			delete(m.holds, name)
		}
	}
}

// check compares what the subscription says with what the client has.
func (m *model) check() {
	for _, name := range modelNames {
		if m.s.InSync(name) && m.holds[name] != m.s.Desired(name).Version {
			m.t.Fatalf("%s is said to be held as %q, and is as %q", name, m.s.Desired(name).Version, m.holds[name])
		}
		_, held := m.holds[name]
		unseen := m.typ.Scoped && !m.scopes[protocol.ScopeOf(name)]
		if due, isNew := m.s.Due(name); due && !isNew && !held && m.variant == protocol.Delta && !unseen && len(m.bad) == 0 {
			m.t.Fatalf("%s is said to be known to the client, and is not", name)
		}
	}
	if st := m.s.Status(); st.State == protocol.Synced && len(m.again) > 0 {
		m.t.Fatalf("synced, while %v are to be sent again", m.again)
	}
}

// finish makes some refused resources good, sends everything, and checks what the client
// has.
func (m *model) finish() {
	m.answer()
	mended := m.some("mended")
	for _, name := range modelNames {
		if r, ok := m.offered.Get(name); ok && mended[name] && r.Version == res(m.t, name, "bad").Version {
			m.offered = m.offered.Set(name, res(m.t, name, "good"))
		}
	}
	m.offer()
	for _, scope := range []string{"r", "q"} {
		if m.typ.Scoped {
			m.s.OpenScope(scope, false)
			m.scopes[scope] = true
		}
	}
	for n := 0; ; n++ {
		m.answer()
		r, ok := m.s.Next(protocoltest.Everything())
		if !ok {
			break
		}
		if n > 5*len(modelNames) {
			m.t.Fatalf("%d responses, and there is another: %v", n, names(r, ok))
		}
		m.flight, m.nonce = r, r.Nonce
		for _, x := range r.Resources {
			m.t.Logf("sent at the end %s %s", x.Name, x.Version)
			delete(m.again, x.Name)
		}
	}
	want := map[string]string{}
	var guilty []string
	for _, name := range modelNames {
		r, known := m.offered.Get(name)
		switch {
		case !m.wants(name):
			delete(m.holds, name)
		case known && r.Version == res(m.t, name, "bad").Version:
			guilty = append(guilty, name)
			delete(m.holds, name)
			delete(m.again, name) // unless it took a form before
		case known:
			want[name] = r.Version
		case m.typ.Empty != nil && m.holds[name] != "":
			e, _ := empty(name)
			want[name] = e.Version
		case m.variant == protocol.StateOfTheWorld && !m.typ.Full:
			delete(m.holds, name) // the server cannot tell it that the name is gone
		}
	}
	if d := cmp.Diff(want, m.holds); d != "" {
		m.t.Fatalf("the client (-want +got):\n%s", d)
	}
	if len(m.again) > 0 {
		m.t.Fatalf("%v were to be sent again", m.again)
	}
	slices.Sort(guilty)
	if got := refused(m.s); !slices.Equal(got, guilty) {
		m.t.Fatalf("refused are %v, bad are %v", got, guilty)
	}
	state := protocol.Synced
	if len(guilty) > 0 {
		state = protocol.Rejected
	}
	if st := m.s.Status(); st.State != state || (st.LastNACK != nil) != (state == protocol.Rejected) {
		m.t.Fatalf("state %+v, want %s, due %v", st, state, strings.Join(slices.Collect(m.s.DueNames()), " "))
	}
}
