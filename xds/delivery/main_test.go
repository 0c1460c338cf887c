package delivery_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func TestMain(m *testing.M) {
	longtest.Checks(100, 500)
	os.Exit(m.Run())
}

// The types of the tests, by names as short as those that users see.
const (
	cds  = "CDS"
	eds  = "EDS"
	lds  = "LDS"
	rds  = "RDS"
	vhds = "VHDS"
	sds  = "SDS"
)

var limits = delivery.Limits{Ready: 5 * time.Second, Resolve: 200 * time.Millisecond, Ask: 100 * time.Millisecond, Withdraw: 10 * time.Second}

func types() []delivery.Type {
	empty := func(name string) (*resource.Resource, error) { return resource.New(name, wrapperspb.String("")) }
	shared := protocol.NewShared()
	need := func(typeURL string, kind resource.NeedKind) resource.Need {
		return resource.Need{TypeURL: typeURL, Kind: kind}
	}
	return []delivery.Type{
		{Type: protocol.Type{URL: cds, Full: true, Shared: shared}, Needs: []resource.Need{need(eds, resource.Covered), need(sds, resource.Once), need("", resource.Grace)}},
		{Type: protocol.Type{URL: eds, Empty: empty, Shared: shared}},
		{Type: protocol.Type{URL: lds, Full: true, Shared: shared}, Needs: []resource.Need{need(rds, resource.Warm), need(sds, resource.Once), need(cds, resource.Traffic)}},
		{Type: protocol.Type{URL: rds, Empty: empty, Shared: shared}, Needs: []resource.Need{need(cds, resource.Traffic), need(vhds, resource.Within)}},
		{Type: protocol.Type{URL: vhds, Full: true, Scoped: true, Shared: shared}, Needs: []resource.Need{need(cds, resource.Traffic)}},
		{Type: protocol.Type{URL: sds, Shared: shared}, Turn: turn},
	}
}

// announcing returns the types of a client that learns of clusters only from its routes.
func announcing() []delivery.Type {
	out := types()
	for i := range out {
		switch out[i].URL {
		case cds:
			out[i].Empty = func(name string) (*resource.Resource, error) {
				return resource.New(name, wrapperspb.String(""), resource.Need{TypeURL: eds, Name: name, Kind: resource.Covered})
			}
		case rds:
			out[i].Preannounce = announce
		case vhds, sds:
			out[i].Optional = true
		}
	}
	return out
}

// announce is a Preannounce: it names more clusters in a resource, without traffic to
// them.
func announce(has *resource.Resource, clusters []string) (*resource.Resource, error) {
	var text wrapperspb.StringValue
	if err := proto.Unmarshal(has.Body.Value, &text); err != nil {
		return nil, err
	}
	needs := slices.Clone(has.Needs)
	for _, name := range clusters {
		needs = append(needs, traffic(name))
	}
	return resource.New(has.Name, wrapperspb.String(text.Value+" ~"+strings.Join(clusters, " ~")), needs...)
}

func traffic(cluster string) resource.Need {
	return resource.Need{TypeURL: cds, Name: cluster, Kind: resource.Traffic}
}

// made makes a resource of a test from its name and content. Words in the content say
// what it needs: ">name" an endpoint or route by that name, "$name" a secret, "@name" a
// cluster that it sends traffic to, "~name" a cluster that it only names. "dns" makes it
// a cluster that resolves host names.
func made(t interface{ Fatal(...any) }, typeURL, name, content string) *resource.Resource {
	var needs []resource.Need
	for _, word := range strings.Fields(content) {
		switch {
		case word[0] == '>' && typeURL == cds:
			needs = append(needs, resource.Need{TypeURL: eds, Name: word[1:], Kind: resource.Covered})
		case word[0] == '>':
			needs = append(needs, resource.Need{TypeURL: rds, Name: word[1:], Kind: resource.Warm})
		case word[0] == '$':
			needs = append(needs, resource.Need{TypeURL: sds, Name: word[1:], Kind: resource.Once})
		case word[0] == '@' || word[0] == '~':
			needs = append(needs, traffic(word[1:]))
		}
	}
	if strings.Contains(content, "dns") {
		needs = append(needs, resource.Need{Kind: resource.Grace})
	}
	if typeURL == rds {
		needs = append(needs, resource.Need{TypeURL: vhds, Name: name, Kind: resource.Within})
	}
	r, err := resource.New(name, wrapperspb.String(content), needs...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sets are the desired sets of all types.
type sets map[string]resource.Set

// world makes the sets of a test from "TYPE name: content" lines.
func world(t interface{ Fatal(...any) }, lines ...string) sets {
	out := sets{}
	for _, line := range lines {
		head, content, _ := strings.Cut(line, ":")
		typ, name, _ := strings.Cut(head, " ")
		r := made(t, typ, name, content)
		if parent, ok := out[cds].Get(name); ok && typ == eds {
			r = r.Under(parent.Version)
		}
		out[typ] = out[typ].Set(name, r)
	}
	return out
}

func (s sets) of(typeURL string) resource.Set { return s[typeURL] }

// byName says whether clients request resources of a type by name.
func byName(typeURL string) bool { return typeURL == eds || typeURL == rds || typeURL == sds }

// play drives a Sequencer by hand.
type play struct {
	t         *testing.T
	variant   protocol.Variant
	sequencer *delivery.Sequencer
	now       time.Time
	nonces    map[string]string          // of the last response, by type
	asked     map[string]map[string]bool // requested names, by type
	last      map[string]*protocol.Response
}

func inVariants(t *testing.T, test func(t *testing.T, p *play)) {
	t.Helper()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newPlay(t, v))
		})
	}
}

func newPlay(t *testing.T, v protocol.Variant) *play { return newPlayOf(t, v, types()) }

func newPlayOf(t *testing.T, v protocol.Variant, types []delivery.Type) *play {
	return &play{
		t: t, variant: v, sequencer: delivery.New(types, v, limits), now: time.Unix(1000, 0),
		nonces: map[string]string{}, asked: map[string]map[string]bool{}, last: map[string]*protocol.Response{},
	}
}

// offer sets what the client should have: the resources in the lines.
func (p *play) offer(lines ...string) { p.sequencer.SetDesired(world(p.t, lines...).of, 1) }

// ask requests names of a type; without names, all resources.
func (p *play) ask(typeURL string, names ...string) {
	if p.asked[typeURL] == nil {
		p.asked[typeURL] = map[string]bool{}
	}
	for _, name := range names {
		p.asked[typeURL][name] = true
	}
	p.sequencer.Request(typeURL, protocol.Request{Subscribe: protocoltest.NameSet(names...), Names: protocoltest.NameSet(p.names(typeURL)...), Nonce: p.nonces[typeURL]}, p.now)
}

// leave unsubscribes from names of a type.
func (p *play) leave(typeURL string, names ...string) {
	for _, name := range names {
		delete(p.asked[typeURL], name)
	}
	p.sequencer.Request(typeURL, protocol.Request{Unsubscribe: protocoltest.NameSet(names...), Names: protocoltest.NameSet(p.names(typeURL)...), Nonce: p.nonces[typeURL]}, p.now)
}

func (p *play) names(typeURL string) []string { return slices.Sorted(maps.Keys(p.asked[typeURL])) }

// ack acknowledges the last response of each type, nack rejects it.
func (p *play) ack(typeURLs ...string)  { p.answer(false, typeURLs) }
func (p *play) nack(typeURLs ...string) { p.answer(true, typeURLs) }

func (p *play) answer(rejected bool, typeURLs []string) {
	p.t.Helper()
	for _, typeURL := range typeURLs {
		a := p.sequencer.Request(typeURL, protocol.Request{
			Nonce: p.nonces[typeURL], Names: protocoltest.NameSet(p.names(typeURL)...), Rejected: rejected, Message: "no",
		}, p.now)
		if a.ACK == nil && a.NACK == nil {
			p.t.Errorf("nothing of %s was under way", typeURL)
		}
	}
}

// sends takes the responses that go now, and compares them with what is expected. Each is
// its type, then "+name" for each changed resource, then "-name" for each removed one.
func (p *play) sends(what string, want ...string) {
	p.t.Helper()
	var got []string
	for typeURL, r := range p.sequencer.Responses(p.now) {
		p.nonces[typeURL] = r.Nonce
		p.last[typeURL] = r
		words := []string{typeURL}
		for _, c := range r.Changed {
			words = append(words, "+"+c.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Withdrawn)) {
			words = append(words, "-"+name)
		}
		got = append(got, strings.Join(words, " "))
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("%s: sent %q, want %q", what, got, want)
	}
}

// passes lets time pass. The sequencer must ask to be woken by then.
func (p *play) passes(d time.Duration) {
	p.t.Helper()
	if at := p.sequencer.Wake(); at.IsZero() || at.After(p.now.Add(d)) {
		p.t.Errorf("it would not wake within %s: %v", d, at)
	}
	p.now = p.now.Add(d)
}

// settled makes a client request all types, endpoints, routes and secrets by name, and
// acknowledge everything in the lines.
func (p *play) settled(lines ...string) {
	p.t.Helper()
	p.offer(lines...)
	w := world(p.t, lines...)
	for _, typeURL := range []string{cds, eds, lds, rds, vhds, sds} {
		var names []string
		if byName(typeURL) {
			if names = slices.Collect(w[typeURL].Keys()); len(names) == 0 {
				names = []string{"none"}
			}
		}
		if typeURL != vhds || p.variant == protocol.Delta {
			p.ask(typeURL, names...)
		}
	}
	for sent := true; sent; {
		sent = false
		for typeURL, r := range p.sequencer.Responses(p.now) {
			p.nonces[typeURL], sent = r.Nonce, true
		}
		for typeURL, s := range p.sequencer.Subscriptions() {
			if s.InFlight() {
				p.ack(typeURL)
			}
		}
		if at := p.sequencer.Wake(); !sent && !at.IsZero() {
			p.now, sent = at, true
		}
	}
	for typeURL, s := range p.sequencer.Subscriptions() {
		if s.Pending() {
			p.t.Fatalf("%s is not settled", typeURL)
		}
	}
}
