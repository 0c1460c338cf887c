package order_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// proxy is a model of an Envoy: what it holds after what it was told, in the
// order in which it was sent. It fails the test when it comes to hold something
// that leads to a cluster which it does not have, or has without its endpoints.
type proxy struct {
	t       *rapid.T
	variant stream.Variant
	flow    *twins
	now     time.Time
	// eager has it acknowledge clusters before they are warm.
	eager bool
	// drains has it ask for the routes of a listener that is gone until that is drained.
	drains bool
	holds  map[string]map[string]*resource.Resource // by type
	asked  map[string]map[string]bool
	// versions are those that it would state: of virtual hosts it remembers also what
	// it dropped.
	versions map[string]map[string]string
	hosts    map[string]map[string]*resource.Resource // that it uses, by routes
	warming  map[string]bool
	resolved map[string]time.Time
	wire     []sent            // not yet received
	unsaid   map[string]string // nonces not yet acknowledged, by type
	nonces   map[string]string
	refusing map[string]bool // it refuses the last response, by type
}

type sent struct {
	typeURL  string
	response *stream.Response
}

func newProxy(t *rapid.T, v stream.Variant) *proxy {
	p := &proxy{
		t: t, variant: v, now: time.Unix(1000, 0), eager: rapid.Bool().Draw(t, "eager"), drains: rapid.Bool().Draw(t, "drains"),
		holds: map[string]map[string]*resource.Resource{}, asked: map[string]map[string]bool{},
		versions: map[string]map[string]string{}, hosts: map[string]map[string]*resource.Resource{},
		warming: map[string]bool{}, resolved: map[string]time.Time{},
	}
	for _, typ := range types() {
		p.holds[typ.URL], p.asked[typ.URL] = map[string]*resource.Resource{}, map[string]bool{}
		p.versions[typ.URL] = map[string]string{}
	}
	return p
}

// connect opens a stream, on which the proxy states what it has.
func (p *proxy) connect(offered sets) {
	p.flow = newTwins(p.t, p.variant)
	p.now = p.now.Add(limits.Resolve) // what it has it has resolved by then
	p.wire, p.unsaid, p.nonces, p.refusing = nil, map[string]string{}, map[string]string{}, map[string]bool{}
	p.flow.Offer(offered.of, 1)
	first := []string{cds, eds, lds, rds, vhds}
	if rapid.Bool().Draw(p.t, "endpoints first") {
		first = []string{eds, cds, lds, vhds, rds}
	}
	for _, typeURL := range first {
		named := typeURL == eds || typeURL == rds
		if typeURL == vhds && (p.variant != stream.Delta || len(p.versions[rds]) == 0) || named && len(p.asked[typeURL]) == 0 {
			continue
		}
		q := stream.Request{Names: nameset.Of(p.names(typeURL)...), Subscribe: nameset.Of(p.names(typeURL)...), Initial: stream.VersionsIn(p.versions[typeURL])}
		if typeURL == vhds && len(q.Initial) > 0 {
			q.Subscribe = nameset.Of("*")
		}
		p.now = p.now.Add(rapid.SampledFrom([]time.Duration{0, limits.Ask / 4}).Draw(p.t, "moment"))
		p.t.Logf("client: asks for %s, states %v", typeURL, q.Initial)
		p.flow.Request(typeURL, q, p.now)
		if rapid.Bool().Draw(p.t, "flushed") {
			p.flush()
		}
	}
}

func (p *proxy) names(typeURL string) []string { return slices.Sorted(maps.Keys(p.asked[typeURL])) }

// flush has the server send what it may.
func (p *proxy) flush() {
	for typeURL, r := range p.flow.Responses(p.now) {
		p.t.Logf("server: %s +%v -%v", typeURL, names(r.Changed), slices.Sorted(maps.Keys(r.Withdrawn)))
		p.wire = append(p.wire, sent{typeURL, r})
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
	p.refusing[s.typeURL] = slices.ContainsFunc(s.response.Resources, func(r *resource.Resource) bool {
		return strings.Contains(content(r), "bad")
	})
	p.t.Logf("client: has %s, refuses it: %v", s.typeURL, p.refusing[s.typeURL])
	if !p.refusing[s.typeURL] {
		p.apply(s.typeURL, s.response)
	}
	p.check(s)
	return true
}

func (p *proxy) apply(typeURL string, r *stream.Response) {
	held := p.holds[typeURL]
	if p.variant == stream.StateOfTheWorld && (typeURL == cds || typeURL == lds) {
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
		named := typeURL == eds || typeURL == rds
		if named && !p.asked[typeURL][res.Name] {
			continue // given up meanwhile
		}
		p.versions[typeURL][res.Name] = res.Version
		old := held[res.Name]
		held[res.Name] = res
		switch typeURL {
		case cds:
			if old == nil {
				p.warming[res.Name] = len(res.Children) > 0
				if res.Resolves {
					p.resolved[res.Name] = p.now.Add(limits.Resolve)
				}
			}
		case eds:
			delete(p.warming, res.Name)
		case vhds:
			p.host(res)
		}
	}
	if typeURL == cds || typeURL == lds {
		p.followChildren(typeURL)
	}
	if typeURL == vhds {
		p.checkDomains()
	}
	if typeURL == rds && p.variant == stream.Delta && len(p.nonces[vhds]) == 0 && !p.flow.Session(vhds).Started() {
		p.flow.Request(vhds, stream.Request{}, p.now) // a wildcard, with the first routes that it has
	}
}

// host takes a virtual host into use, unless it knows no such routes, or these
// name no virtual hosts.
func (p *proxy) host(r *resource.Resource) {
	scope := stream.ScopeOf(r.Name)
	if routes := p.holds[rds][scope]; routes == nil || !strings.Contains(content(routes), "vhds") {
		return
	}
	if p.hosts[scope] == nil {
		p.hosts[scope] = map[string]*resource.Resource{}
	}
	p.hosts[scope][r.Name] = r
}

// drop gives a resource up.
func (p *proxy) drop(typeURL, name string) {
	if typeURL == rds { // an Envoy has its routes until nothing names them
		return
	}
	delete(p.versions[typeURL], name)
	delete(p.holds[typeURL], name)
	switch typeURL {
	case cds:
		delete(p.warming, name)
		delete(p.resolved, name)
	case vhds:
		scope := stream.ScopeOf(name)
		if routes := p.holds[rds][scope]; routes != nil && strings.Contains(content(routes), "vhds") {
			delete(p.hosts[scope], name)
		}
	}
}

// followChildren asks for the children of what it holds, and gives others up.
func (p *proxy) followChildren(typeURL string) {
	child := map[string]string{cds: eds, lds: rds}[typeURL]
	wanted := p.named(typeURL)
	if typeURL == lds && p.drains {
		maps.Copy(wanted, p.asked[child])
	}
	var more, fewer []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !p.asked[child][name] {
			more = append(more, name)
		}
	}
	for _, name := range p.names(child) {
		if !wanted[name] {
			fewer = append(fewer, name)
			delete(p.holds[child], name)
			delete(p.versions[child], name)
			delete(p.hosts, name)
		}
	}
	p.asked[child] = wanted
	if len(more)+len(fewer) > 0 {
		p.flow.Request(child, stream.Request{
			Subscribe: nameset.Of(more...), Unsubscribe: nameset.Of(fewer...), Names: nameset.Of(p.names(child)...), Nonce: p.answering(child),
		}, p.now)
	}
}

// named are the children of the resources that it holds of a type.
func (p *proxy) named(typeURL string) map[string]bool {
	out := map[string]bool{}
	for _, r := range p.holds[typeURL] {
		for _, name := range r.Children {
			out[name] = true
		}
	}
	return out
}

// drained has it give up the routes of all listeners that are gone.
func (p *proxy) drained() {
	drains := p.drains
	p.drains = false
	p.followChildren(lds)
	p.drains = drains
}

// answering is the nonce of a change of subscriptions: in state of the world it
// acknowledges the last response.
func (p *proxy) answering(typeURL string) string {
	if p.variant == stream.Delta {
		return ""
	}
	if p.refusing[typeURL] {
		p.acknowledge(typeURL)
	}
	delete(p.unsaid, typeURL)
	return p.nonces[typeURL]
}

// acknowledge says how it took what it received of a type.
func (p *proxy) acknowledge(typeURL string) bool {
	nonce, ok := p.unsaid[typeURL]
	if !ok || typeURL == cds && !p.eager && !p.refusing[cds] && slices.Contains(slices.Collect(maps.Values(p.warming)), true) {
		return false
	}
	delete(p.unsaid, typeURL)
	p.t.Logf("client: acknowledges %s", typeURL)
	p.flow.Request(typeURL, stream.Request{Nonce: nonce, Names: nameset.Of(p.names(typeURL)...), Rejected: p.refusing[typeURL]}, p.now)
	return true
}

// check fails where something that the proxy uses leads to a cluster which it
// cannot use.
func (p *proxy) check(after sent) {
	lead := func(r *resource.Resource) {
		for cluster := range r.EachRef {
			if p.holds[cds][cluster] == nil || p.warming[cluster] || p.now.Before(p.resolved[cluster]) {
				p.t.Fatalf("after %s +%v -%v: %s (%s) leads to %s", after.typeURL, names(after.response.Changed),
					slices.Sorted(maps.Keys(after.response.Withdrawn)), r.Name, content(r), cluster)
			}
		}
	}
	for _, r := range p.holds[lds] {
		lead(r)
	}
	for routes := range p.named(lds) {
		if r := p.holds[rds][routes]; r != nil {
			lead(r)
		}
		for _, r := range p.hosts[routes] {
			lead(r)
		}
	}
}

// checkDomains fails where two virtual hosts of the same routes have a domain: an
// Envoy would refuse them.
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

// mesh is what the server has at one time: any routes lead to clusters that are
// there.
type mesh struct{ lines map[string]string } // content by "TYPE name"

// change draws the next of a mesh, of which several things change at once.
func (m *mesh) change(t *rapid.T, v stream.Variant) {
	one := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	for range rapid.IntRange(1, 3).Draw(t, "clusters") {
		i := one("cluster", 5)
		name := fmt.Sprintf("c%d", i)
		kind := map[int]string{3: "", 4: "dns"}[i]
		if i < 3 {
			kind = ">" + name
		}
		if one("there", 3) == 0 {
			delete(m.lines, "CDS "+name)
			delete(m.lines, "EDS "+name)
			continue
		}
		m.lines["CDS "+name] = fmt.Sprint(kind, " v", one("version", 2))
		if i < 3 {
			m.lines["EDS "+name] = fmt.Sprint("v", one("endpoints", 3))
		}
	}
	var clusters []string
	for _, line := range slices.Sorted(maps.Keys(m.lines)) {
		if name, ok := strings.CutPrefix(line, "CDS "); ok {
			clusters = append(clusters, name)
		}
	}
	leads := func(label string) string {
		if len(clusters) == 0 || one(label, 6) == 0 {
			return " -"
		}
		return " @" + rapid.SampledFrom(clusters).Draw(t, label)
	}
	for r := range 2 {
		if one("table", 3) == 0 {
			m.routes(t, v, fmt.Sprintf("r%d", r), leads, one)
		}
	}
	for l := range 3 {
		name := fmt.Sprintf("LDS l%d", l)
		switch one("listener", 5) {
		case 0:
			delete(m.lines, name)
		case 1:
			m.lines[name] = fmt.Sprint("tcp", leads("tcp"))
		case 2:
			m.lines[name] = fmt.Sprint(">r", one("routes", 2), leads("also"))
		}
	}
	for r := range 2 {
		name := fmt.Sprintf("r%d", r)
		if one("all of a table", 6) == 0 {
			m.unlisten(name)
		}
		switch _, there := m.lines["RDS "+name]; {
		case m.listens(name) && !there:
			m.routes(t, v, name, leads, one)
		case !m.listens(name) && one("table goes", 2) == 0:
			m.tableGoes(name)
		}
	}
	m.repair(leads)
	if one("mend", 2) == 0 {
		m.mend()
	}
	if one("spoil", 5) == 0 && len(m.lines) > 0 {
		m.lines[rapid.SampledFrom(slices.Sorted(maps.Keys(m.lines))).Draw(t, "spoilt")] += " bad"
	}
}

// mend has the client refuse nothing any more.
func (m *mesh) mend() {
	for name, content := range m.lines {
		m.lines[name] = strings.ReplaceAll(content, " bad", "")
	}
}

// routes draws a table, in delta as virtual hosts of their own, whose domains
// move between them.
func (m *mesh) routes(t *rapid.T, v stream.Variant, name string, leads func(string) string, one func(string, int) int) {
	if v != stream.Delta {
		m.lines["RDS "+name] = fmt.Sprint("whole", leads("route"), leads("route"))
		return
	}
	domains := rapid.Permutation([]string{"x", "y", "z"}).Draw(t, "domains")
	some := ""
	for h, domain := range domains {
		host := fmt.Sprintf("VHDS %s/h%d", name, h)
		if delete(m.lines, host); one("host", 3) > 0 {
			m.lines[host], some = domain+leads("host"), " vhds"
		}
	}
	m.lines["RDS "+name] = fmt.Sprint("v", one("options", 2), some)
}

// listens says whether a listener names routes.
func (m *mesh) listens(routes string) bool {
	for name, content := range m.lines {
		if strings.HasPrefix(name, "LDS ") && slices.Contains(strings.Fields(content), ">"+routes) {
			return true
		}
	}
	return false
}

// unlisten removes the listeners that name routes.
func (m *mesh) unlisten(routes string) {
	maps.DeleteFunc(m.lines, func(line, content string) bool {
		return strings.HasPrefix(line, "LDS ") && slices.Contains(strings.Fields(content), ">"+routes)
	})
}

// tableGoes removes routes with their virtual hosts.
func (m *mesh) tableGoes(name string) {
	maps.DeleteFunc(m.lines, func(line, _ string) bool {
		return line == "RDS "+name || strings.HasPrefix(line, "VHDS "+name+"/")
	})
}

// repair has all lead to clusters that are there.
func (m *mesh) repair(leads func(string) string) {
	for _, line := range slices.Sorted(maps.Keys(m.lines)) {
		words := strings.Fields(m.lines[line])
		for i, word := range words {
			if cluster, ok := strings.CutPrefix(word, "@"); ok && m.lines["CDS "+cluster] == "" {
				words[i] = strings.TrimSpace(leads("instead"))
			}
		}
		m.lines[line] = strings.Join(words, " ") + " "
	}
}

func (m *mesh) sets(t *rapid.T) sets {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.lines)) {
		lines = append(lines, name+": "+m.lines[name])
	}
	return world(t, lines...)
}

// TestNothingLeadsNowhere: whatever changes, however slow the client answers and
// whatever it refuses, what it holds leads to clusters that it can use; and in the
// end it holds what it should.
func TestNothingLeadsNowhere(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { live(t, v) })
		})
	}
}

func live(t *rapid.T, v stream.Variant) {
	m, p := &mesh{lines: map[string]string{}}, newProxy(t, v)
	m.change(t, v)
	offered := m.sets(t)
	p.connect(offered)
	steps := []string{"change", "receive", "receive", "receive", "ack", "ack", "ack", "ack", "flush", "flush", "wait", "drained"}
	if v == stream.Delta {
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
			p.flow.Offer(offered.of, int64(i)+2)
		case "receive":
			p.receive()
		case "ack":
			p.acknowledge(rapid.SampledFrom([]string{cds, eds, lds, rds, vhds}).Draw(t, "type"))
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
	m.mend()
	offered = m.sets(t)
	p.flow.Offer(offered.of, 1000)
	p.settle()
	p.converged(offered)
}

// settle has both sides go on until there is nothing left to say.
func (p *proxy) settle() {
	for range 1000 {
		p.flush()
		some := p.receive()
		for _, typeURL := range []string{cds, eds, lds, rds, vhds} {
			some = p.acknowledge(typeURL) || some
		}
		if at := p.flow.Wake(); !some && !at.IsZero() {
			p.now, some = at, true
		}
		if !some {
			return
		}
	}
	p.t.Fatal("it never settles")
}

// converged fails where the proxy does not have what it should.
func (p *proxy) converged(offered sets) {
	want := map[string]string{}
	for name, r := range offered[cds].All() {
		want["CDS "+name] = r.Version
		for _, child := range r.Children {
			want["EDS "+child] = offered[eds].Value(child).Version
		}
	}
	for name, r := range offered[lds].All() {
		want["LDS "+name] = r.Version
		for _, child := range r.Children {
			if routes := offered[rds].Value(child); routes != nil {
				want["RDS "+child] = routes.Version
				for host, r := range offered[vhds].Prefix(child + "/") {
					want["VHDS "+host] = r.Version
				}
			}
		}
	}
	got := map[string]string{}
	used := p.named(lds) // what belongs to listeners that drain may be anything
	for _, typeURL := range []string{cds, eds, lds, rds} {
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
	for typeURL, s := range p.flow.Sessions() {
		if additions, withdrawals := p.flow.Waiting(typeURL); s.Pending() || additions+withdrawals > 0 {
			p.t.Fatalf("%s is not settled: %d and %d wait", typeURL, additions, withdrawals)
		}
	}
	if late := p.flow.Late(); len(late) > 0 {
		p.t.Fatalf("sent too early: %v", late)
	}
}
