package delivery_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// proxy is a model of an Envoy: it has what responses gave it, in the order in which they
// were sent. The test fails if something that it has sends traffic to a cluster that it
// does not have, or cannot use yet.
type proxy struct {
	t         *rapid.T
	variant   protocol.Variant
	sequencer *twins
	now       time.Time
	// eager says that it acknowledges clusters before they are warm.
	eager bool
	// drains says that it stays subscribed to the routes of a removed listener until that
	// is drained.
	drains bool
	holds  map[string]map[string]*resource.Resource // by type
	asked  map[string]map[string]bool
	// versions are what it would state after a reconnect. It remembers also virtual hosts
	// that it dropped.
	versions map[string]map[string]string
	hosts    map[string]map[string]*resource.Resource // virtual hosts that it uses, by route configuration
	// cold has, by cluster, what the cluster waits for before it is used: "EDS" and the
	// name of endpoints, or "SDS" and the name of a secret.
	cold map[string]map[string]bool
	// before are the secrets that it requested on an earlier stream. coldBefore are
	// clusters that waited for a secret when that stream ended, in a form other than the
	// desired one of now. The server does not know that these are not in use.
	before, coldBefore map[string]bool

	resolved map[string]time.Time
	wire     []sent            // not yet received
	unsaid   map[string]string // nonces not yet acknowledged, by type
	nonces   map[string]string
	refusing map[string]bool // it refuses the last response, by type
	// parts says that it takes some of a response that it refuses: of clusters and
	// listeners all good ones, of other types what comes before the first bad one.
	parts bool
	// refused says that it refused virtual hosts. From then on they come in parts, which
	// may conflict.
	refused bool
	offered sets
	late    bool                       // it refuses resources until all limits have passed
	given   map[string]bool            // clusters for whose endpoints and secrets it does not wait any more
	gaveUp  map[string]bool            // secrets that it refused, and does not wait for any more
	ledBy   map[string]map[string]bool // by resource, the clusters that it refused in part when it was sent
	led     map[string]bool            // clusters that it refused, to which traffic may go after the limit
}

type sent struct {
	typeURL  string
	response *protocol.Response
	refuses  map[string]bool // clusters of which the proxy refused a part when it was sent
}

func newProxy(t *rapid.T, v protocol.Variant) *proxy {
	p := &proxy{
		t: t, variant: v, now: time.Unix(1000, 0), eager: rapid.Bool().Draw(t, "eager"), drains: rapid.Bool().Draw(t, "drains"), parts: rapid.Bool().Draw(t, "parts"),
		holds: map[string]map[string]*resource.Resource{}, asked: map[string]map[string]bool{},
		versions: map[string]map[string]string{}, hosts: map[string]map[string]*resource.Resource{},
		given: map[string]bool{}, gaveUp: map[string]bool{}, ledBy: map[string]map[string]bool{}, led: map[string]bool{}, cold: map[string]map[string]bool{}, coldBefore: map[string]bool{}, resolved: map[string]time.Time{},
	}
	for _, typ := range types() {
		p.holds[typ.URL], p.asked[typ.URL] = map[string]*resource.Resource{}, map[string]bool{}
		p.versions[typ.URL] = map[string]string{}
	}
	return p
}

// connect opens a stream, on which the proxy states what it has.
func (p *proxy) connect(offered sets) {
	p.sequencer = newTwins(p.t, p.variant)
	p.now = p.now.Add(limits.Resolve) // host names are resolved by then
	p.wire, p.unsaid, p.nonces, p.refusing = nil, map[string]string{}, map[string]string{}, map[string]bool{}
	p.refused, p.before = false, maps.Clone(p.asked[sds])
	for cluster, waits := range p.cold {
		r := offered[cds].Value(cluster)
		for at := range waits {
			p.coldBefore[cluster] = p.coldBefore[cluster] || strings.HasPrefix(at, sds) && (r == nil || r.Version != p.versions[cds][cluster])
		}
	}
	p.offer(offered, 1)
	first := []string{cds, eds, lds, rds, vhds, sds}
	if rapid.Bool().Draw(p.t, "endpoints first") {
		first = []string{eds, sds, cds, lds, vhds, rds}
	}
	for _, typeURL := range first {
		named := byName(typeURL)
		if typeURL == vhds && (p.variant != protocol.Delta || len(p.versions[rds]) == 0) || named && len(p.asked[typeURL]) == 0 {
			continue
		}
		q := protocol.Request{Names: protocoltest.NameSet(p.names(typeURL)...), Subscribe: protocoltest.NameSet(p.names(typeURL)...), Initial: protocoltest.Versions(p.versions[typeURL])}
		if typeURL == vhds && len(q.Initial) > 0 {
			q.Subscribe = protocoltest.NameSet("*")
		}
		p.now = p.now.Add(rapid.SampledFrom([]time.Duration{0, limits.Ask / 4}).Draw(p.t, "moment"))
		p.t.Logf("client: asks for %s, states %v", typeURL, q.Initial)
		p.sequencer.Request(typeURL, q, p.now)
		if rapid.Bool().Draw(p.t, "flushed") {
			p.flush()
		}
	}
}

func (p *proxy) offer(offered sets, revision int64) {
	p.offered = offered
	p.sequencer.Offer(offered.of, revision)
}

func (p *proxy) names(typeURL string) []string { return slices.Sorted(maps.Keys(p.asked[typeURL])) }

// flush makes the server send what it may.
func (p *proxy) flush() {
	for typeURL, r := range p.sequencer.Responses(p.now) {
		p.t.Logf("server: %s +%v -%v", typeURL, names(r.Changed), slices.Sorted(maps.Keys(r.Withdrawn)))
		p.wire = append(p.wire, sent{typeURL, r, p.refusedParts()})
	}
}

// receive takes the next response.
func (p *proxy) receive() bool {
	if len(p.wire) == 0 {
		return false
	}
	s := p.wire[0]
	p.wire = p.wire[1:]
	p.nonces[s.typeURL] = s.response.Nonce
	p.unsaid[s.typeURL] = s.response.Nonce
	p.refusing[s.typeURL] = slices.ContainsFunc(s.response.Resources, bad) || s.typeURL == vhds && p.refused && p.clash(s.response)
	p.refused = p.refused || s.typeURL == vhds && p.refusing[vhds]
	if p.refusing[s.typeURL] && (s.typeURL == eds || s.typeURL == sds) {
		for cluster := range p.cold {
			p.given[cluster] = true
		}
		for _, r := range s.response.Resources {
			p.gaveUp[r.Name] = p.gaveUp[r.Name] || s.typeURL == sds && bad(r)
		}
	}
	p.t.Logf("client: has %s, refuses it: %v", s.typeURL, p.refusing[s.typeURL])
	if !p.refusing[s.typeURL] {
		p.apply(s.typeURL, s.response)
	} else if p.parts && s.typeURL != vhds {
		p.applyParts(s.typeURL, s.response)
	}
	p.check(s)
	return true
}

func bad(r *resource.Resource) bool { return strings.Contains(content(r), "bad") }

// clash says whether two virtual hosts would have the same domain after a response.
func (p *proxy) clash(r *protocol.Response) bool {
	next := map[string]*resource.Resource{}
	for _, hosts := range p.hosts {
		maps.Copy(next, hosts)
	}
	for _, name := range r.Removed {
		delete(next, name)
	}
	for _, host := range r.Resources {
		next[host.Name] = host
	}
	taken := map[string]bool{}
	for name, host := range next {
		domain := protocol.ScopeOf(name) + strings.Fields(content(host))[0]
		if taken[domain] {
			return true
		}
		taken[domain] = true
	}
	return false
}

// applyParts takes some of a response that it refuses. The proxy then states a version
// that no response had.
func (p *proxy) applyParts(typeURL string, r *protocol.Response) {
	part := *r
	part.Resources = nil
	for _, one := range r.Resources {
		switch {
		case !bad(one):
			part.Resources = append(part.Resources, one)
			continue
		case byName(typeURL):
			part.Removed = nil
		case p.holds[typeURL][one.Name] != nil: // it keeps its form
			part.Resources = append(part.Resources, p.holds[typeURL][one.Name])
			continue
		default:
			continue
		}
		break
	}
	p.apply(typeURL, &part)
	for _, one := range part.Resources {
		if p.versions[typeURL][one.Name] != "" {
			p.versions[typeURL][one.Name] = "some"
		}
	}
}

func (p *proxy) apply(typeURL string, r *protocol.Response) {
	held := p.holds[typeURL]
	if p.variant == protocol.StateOfTheWorld && (typeURL == cds || typeURL == lds) {
		for name := range held {
			if !slices.ContainsFunc(r.Resources, func(r *resource.Resource) bool { return r.Name == name }) {
				p.drop(typeURL, name)
			}
		}
	}
	for _, name := range r.Removed {
		p.drop(typeURL, name)
	}
	for _, res := range r.Resources {
		named := byName(typeURL)
		if named && !p.asked[typeURL][res.Name] {
			continue // unsubscribed meanwhile
		}
		p.versions[typeURL][res.Name] = res.Version
		old := held[res.Name]
		held[res.Name] = res
		switch typeURL {
		case cds:
			p.warm(res, old == nil)
			if old == nil && res.Resolves() {
				p.resolved[res.Name] = p.now.Add(limits.Resolve)
			}
		case eds, sds:
			delete(p.gaveUp, res.Name)
			for cluster, waits := range p.cold {
				if delete(waits, typeURL+" "+res.Name); len(waits) == 0 {
					p.warmed(cluster)
				}
			}
		case vhds:
			p.host(res)
		}
	}
	if typeURL == cds || typeURL == lds {
		p.followNeeds(typeURL)
	}
	if typeURL == vhds {
		p.checkDomains()
	}
	if typeURL == rds && p.variant == protocol.Delta && len(p.nonces[vhds]) == 0 && !p.sequencer.Subscription(vhds).Started() {
		p.sequencer.Request(vhds, protocol.Request{}, p.now) // a wildcard, with the first routes that it has
	}
}

// warm notes what a cluster waits for, if it is new or not in use: endpoints, which are
// sent after it, and secrets that the proxy does not have already.
func (p *proxy) warm(cluster *resource.Resource, isNew bool) {
	before := p.cold[cluster.Name]
	if !isNew && before == nil {
		return // it goes on with the old one meanwhile
	}
	waits := map[string]bool{}
	for _, need := range cluster.Needs {
		switch at := need.TypeURL + " " + need.Name; need.Kind {
		case resource.Covered:
			waits[at] = isNew || before[at]
		case resource.Once:
			waits[at] = p.holds[sds][need.Name] == nil
			p.given[cluster.Name] = p.given[cluster.Name] || waits[at] && (p.lacks(sds, need.Name) || p.gaveUp[need.Name])
		}
	}
	maps.DeleteFunc(waits, func(_ string, waits bool) bool { return !waits })
	if p.cold[cluster.Name] = waits; len(waits) == 0 {
		p.warmed(cluster.Name)
	}
}

// warmed notes that a cluster is in use, or is removed.
func (p *proxy) warmed(cluster string) {
	delete(p.cold, cluster)
	delete(p.coldBefore, cluster)
}

// host begins to use a virtual host. It ignores one whose route configuration it does not
// have, or whose route configuration announces no virtual hosts.
func (p *proxy) host(r *resource.Resource) {
	scope := protocol.ScopeOf(r.Name)
	if routes := p.holds[rds][scope]; routes == nil || !strings.Contains(content(routes), "vhds") {
		return
	}
	if p.hosts[scope] == nil {
		p.hosts[scope] = map[string]*resource.Resource{}
	}
	p.hosts[scope][r.Name] = r
}

func (p *proxy) drop(typeURL, name string) {
	if typeURL == rds { // an Envoy has its routes until nothing names them
		return
	}
	if typeURL == sds && p.named(sds)[name] { // and its secrets
		if !p.before[name] && !p.parts { // the server does not know what it took of a response that it refused
			p.t.Fatalf("secret %s is taken away from what needs it", name)
		}
		for cluster, waits := range p.cold { // only another server could help
			p.given[cluster] = p.given[cluster] || waits[sds+" "+name]
		}
		return
	}
	delete(p.versions[typeURL], name)
	delete(p.holds[typeURL], name)
	switch typeURL {
	case cds:
		p.warmed(name)
		delete(p.given, name)
		delete(p.resolved, name)
	case vhds:
		scope := protocol.ScopeOf(name)
		if routes := p.holds[rds][scope]; routes != nil && strings.Contains(content(routes), "vhds") {
			delete(p.hosts[scope], name)
		}
	}
}

// followNeeds requests what the resources of a type need, and unsubscribes from the rest.
func (p *proxy) followNeeds(typeURL string) {
	p.followType(map[string]string{cds: eds, lds: rds}[typeURL])
	p.followType(sds)
}

func (p *proxy) followType(needed string) {
	wanted := p.named(needed)
	if needed == rds && p.drains {
		maps.Copy(wanted, p.asked[rds])
	}
	var more, fewer []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !p.asked[needed][name] {
			more = append(more, name)
		}
	}
	for _, name := range p.names(needed) {
		if !wanted[name] {
			fewer = append(fewer, name)
			delete(p.holds[needed], name)
			delete(p.versions[needed], name)
			delete(p.gaveUp, name)
			delete(p.hosts, name)
		}
	}
	p.asked[needed] = wanted
	if len(more)+len(fewer) > 0 {
		p.sequencer.Request(needed, protocol.Request{
			Subscribe: protocoltest.NameSet(more...), Unsubscribe: protocoltest.NameSet(fewer...), Names: protocoltest.NameSet(p.names(needed)...), Nonce: p.answering(needed),
		}, p.now)
	}
}

// named returns the names of a type that its clusters and listeners need.
func (p *proxy) named(needed string) map[string]bool {
	out := map[string]bool{}
	for _, typeURL := range []string{cds, lds} {
		for _, r := range p.holds[typeURL] {
			for _, need := range r.Needs {
				if need.TypeURL == needed && need.Kind != resource.Traffic {
					out[need.Name] = true
				}
			}
		}
	}
	return out
}

// drained makes it unsubscribe from the routes of all removed listeners.
func (p *proxy) drained() {
	drains := p.drains
	p.drains = false
	p.followType(rds)
	p.drains = drains
}

// answering returns the nonce for a change of subscriptions. In state of the world that
// acknowledges the last response.
func (p *proxy) answering(typeURL string) string {
	if p.variant == protocol.Delta {
		return ""
	}
	if p.refusing[typeURL] {
		p.acknowledge(typeURL)
	}
	delete(p.unsaid, typeURL)
	return p.nonces[typeURL]
}

// acknowledge sends the ACK or NACK of the last response of a type; false if none is due,
// or if clusters are not warm yet.
func (p *proxy) acknowledge(typeURL string) bool {
	nonce, ok := p.unsaid[typeURL]
	if !ok || typeURL == cds && !p.eager && !p.refusing[cds] && p.awaits() {
		return false
	}
	delete(p.unsaid, typeURL)
	p.t.Logf("client: acknowledges %s", typeURL)
	p.sequencer.Request(typeURL, protocol.Request{Nonce: nonce, Names: protocoltest.NameSet(p.names(typeURL)...), Rejected: p.refusing[typeURL]}, p.now)
	return true
}

// awaits says whether a cluster is not warm yet. When the proxy refuses endpoints or a
// secret, it does not wait any more for any cluster that is cold then.
func (p *proxy) awaits() bool {
	for cluster := range p.cold {
		if !p.given[cluster] {
			return true
		}
	}
	return false
}

// check fails if something that the proxy uses sends traffic to a cluster that it cannot
// use.
func (p *proxy) check(after sent) {
	for _, r := range after.response.Changed {
		p.ledBy[r.Name] = after.refuses
	}
	lead := func(r *resource.Resource) {
		for cluster := range r.EachRef {
			if p.refusesPart(cluster) || p.led[cluster] || p.ledBy[r.Name][cluster] || p.late && p.offered[cds].Value(cluster) == nil {
				continue // what sends traffic there waits for it, but only until the limit
			}
			if p.holds[cds][cluster] == nil || p.cold[cluster] != nil && !p.coldBefore[cluster] || p.now.Before(p.resolved[cluster]) {
				p.t.Fatalf("after %s +%v -%v: %s (%s) leads to %s", after.typeURL, names(after.response.Changed),
					slices.Sorted(maps.Keys(after.response.Withdrawn)), r.Name, content(r), cluster)
			}
		}
	}
	for _, r := range p.holds[lds] {
		lead(r)
	}
	for routes := range p.named(rds) {
		if r := p.holds[rds][routes]; r != nil {
			lead(r)
		}
		for _, r := range p.hosts[routes] {
			lead(r)
		}
	}
}

// lacks says whether it refuses the desired resource of a name.
func (p *proxy) lacks(typeURL, name string) bool {
	r := p.offered[typeURL].Value(name)
	return r != nil && bad(r)
}

// refusesPart says whether it refuses a desired cluster, or something that the cluster
// needs.
func (p *proxy) refusesPart(cluster string) bool {
	r := p.offered[cds].Value(cluster)
	return p.lacks(cds, cluster) || p.lacks(eds, cluster) ||
		r != nil && slices.ContainsFunc(r.Needs, func(n resource.Need) bool { return n.Kind == resource.Once && p.lacks(sds, n.Name) })
}

// refusedParts returns the clusters of which it refuses a part.
func (p *proxy) refusedParts() map[string]bool {
	out := map[string]bool{}
	for name := range p.offered[cds].Keys() {
		if p.refusesPart(name) {
			out[name] = true
		}
	}
	return out
}

// checkDomains fails if two virtual hosts of one route configuration have the same
// domain. An Envoy would refuse them.
func (p *proxy) checkDomains() {
	for scope, hosts := range p.hosts {
		domains := map[string]string{}
		for name, r := range hosts {
			domain := strings.Fields(content(r))[0]
			if other, taken := domains[domain]; taken {
				p.t.Fatalf("%s: %s and %s both have domain %s", scope, name, other, domain)
			}
			domains[domain] = name
		}
	}
}

func names(resources []*resource.Resource) []string {
	var out []string
	for _, r := range resources {
		out = append(out, r.Name)
	}
	return out
}

func content(r *resource.Resource) string {
	var out wrapperspb.StringValue
	if err := proto.Unmarshal(r.Body.Value, &out); err != nil {
		return err.Error()
	}
	return out.Value
}

// TestNothingLeadsNowhere: whatever changes, however slowly the client answers and
// whatever it refuses, its resources send traffic only to clusters that it can use. In
// the end it has what it should.
func TestNothingLeadsNowhere(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { live(t, v) })
		})
	}
}

func live(t *rapid.T, v protocol.Variant) {
	m, p := &mesh{lines: map[string]string{}}, newProxy(t, v)
	m.change(t, v)
	offered := m.sets(t)
	p.connect(offered)
	steps := []string{"change", "receive", "receive", "receive", "ack", "ack", "ack", "ack", "flush", "flush", "wait", "drained"}
	if v == protocol.Delta {
		steps = append(steps, "reconnect", "away")
	}
	for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch step := rapid.SampledFrom(steps).Draw(t, "step"); step {
		case "away":
			m.change(t, v)
			offered = m.sets(t)
			t.Logf("server: another, offers %v", m.lines)
			p.connect(offered)
		case "change":
			m.change(t, v)
			offered = m.sets(t)
			t.Logf("server: offers %v", m.lines)
			p.offer(offered, int64(i)+2)
		case "receive":
			p.receive()
		case "ack":
			p.acknowledge(rapid.SampledFrom([]string{cds, eds, lds, rds, vhds, sds}).Draw(t, "type"))
		case "flush":
			p.flush()
		case "wait":
			p.now = p.now.Add(50 * time.Millisecond)
		case "drained":
			p.drained()
		case "reconnect":
			p.connect(offered)
		}
	}
	if rapid.Bool().Draw(t, "stays bad") {
		p.late = true
		p.settle()
		p.hasInnocents()
	}
	m.mend()
	offered = m.sets(t)
	p.offer(offered, 1000)
	p.settle()
	p.converged(offered)
}

// hasInnocents fails if the proxy lacks a resource that it would take, or if the server
// has other resources as rejected than the proxy refuses.
func (p *proxy) hasInnocents() {
	expect := func(typeURL, name string) bool {
		r := p.offered[typeURL].Value(name)
		s := p.sequencer.Subscription(typeURL)
		switch held := p.holds[typeURL][name]; {
		case r == nil:
			return false
		case bad(r) != s.Rejects(name):
			p.t.Fatalf("%s %s is bad: %v, and is said to be refused: %v", typeURL, name, bad(r), s.Rejects(name))
		case bad(r):
			return false
		case held == nil || held.Version != r.Version:
			p.t.Fatalf("%s %s is %v, and should be %v", typeURL, name, held, r)
		}
		return true
	}
	expectNeeds := func(r *resource.Resource) {
		for _, need := range r.Needs {
			if need.TypeURL == eds || need.TypeURL == sds {
				expect(need.TypeURL, need.Name)
			}
		}
	}
	for name, r := range p.offered[cds].All() {
		if expect(cds, name) {
			expectNeeds(r)
		}
	}
	for name, r := range p.offered[lds].All() {
		if !expect(lds, name) {
			continue
		}
		expectNeeds(r)
		for child := range protocoltest.Children(r) {
			if expect(rds, child) {
				p.hasHosts(child)
			}
		}
	}
	for _, late := range p.sequencer.Late() {
		if p.offered[cds].Value(late.Missing) != nil && !p.refusesPart(late.Missing) {
			p.t.Fatalf("sent too early: %v", late)
		}
	}
	for name := range p.offered[cds].All() {
		p.led[name] = p.led[name] || p.refusesPart(name)
	}
	for typeURL, s := range p.sequencer.Subscriptions() {
		if s.Searching() {
			p.t.Fatalf("%s: it is still being found what is refused", typeURL)
		}
	}
}

// hasHosts fails if it lacks a virtual host. It skips a scope of which the proxy refuses
// a virtual host: the old form of that may be in conflict with others.
func (p *proxy) hasHosts(scope string) {
	for _, r := range p.offered[vhds].Prefix(scope + "/") {
		if bad(r) {
			return
		}
	}
	for name, r := range p.offered[vhds].Prefix(scope + "/") {
		if held := p.hosts[scope][name]; held == nil || held.Version != r.Version {
			p.t.Fatalf("VHDS %s is %v, and should be %v", name, held, r)
		}
	}
}

// settle lets both sides go on until nothing is left to send.
func (p *proxy) settle() {
	for range 1000 {
		p.flush()
		some := p.receive()
		for _, typeURL := range []string{cds, eds, lds, rds, vhds, sds} {
			some = p.acknowledge(typeURL) || some
		}
		if at := p.sequencer.Wake(); !some && !at.IsZero() {
			p.now, some = at, true
		}
		if !some {
			return
		}
	}
	p.t.Fatal("it never settles")
}

// converged fails if the proxy does not have what it should.
func (p *proxy) converged(offered sets) {
	want := map[string]string{}
	wantSecrets := func(r *resource.Resource) {
		for _, need := range r.Needs {
			if need.Kind == resource.Once {
				want["SDS "+need.Name] = offered[sds].Value(need.Name).Version
			}
		}
	}
	for name, r := range offered[cds].All() {
		want["CDS "+name] = r.Version
		wantSecrets(r)
		for child := range protocoltest.Children(r) {
			want["EDS "+child] = offered[eds].Value(child).Version
		}
	}
	for name, r := range offered[lds].All() {
		want["LDS "+name] = r.Version
		wantSecrets(r)
		for child := range protocoltest.Children(r) {
			if routes := offered[rds].Value(child); routes != nil {
				want["RDS "+child] = routes.Version
				for host, r := range offered[vhds].Prefix(child + "/") {
					want["VHDS "+host] = r.Version
				}
			}
		}
	}
	got := map[string]string{}
	used := p.named(rds) // what belongs to listeners that drain may be anything
	for _, typeURL := range []string{cds, eds, lds, rds, sds} {
		for name, r := range p.holds[typeURL] {
			if content(r) != "" && (typeURL != rds || used[name]) { // empty answers an unknown name
				got[typeURL+" "+name] = r.Version
			}
		}
	}
	for scope, hosts := range p.hosts {
		if p.holds[rds][scope] != nil && used[scope] {
			for name, r := range hosts {
				got["VHDS "+name] = r.Version
			}
		}
	}
	if !maps.Equal(want, got) {
		p.t.Fatalf("it has %v\nwant %v", got, want)
	}
	for typeURL, s := range p.sequencer.Subscriptions() {
		if additions, withdrawals := p.sequencer.Waiting(typeURL); s.Pending() || additions+withdrawals > 0 {
			p.t.Fatalf("%s is not settled: %d and %d wait", typeURL, additions, withdrawals)
		}
	}
	if late := p.sequencer.Late(); len(late) > 0 {
		p.t.Fatalf("sent too early: %v", late)
	}
}
