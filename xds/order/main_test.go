package order_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/order"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// The types of the tests, by names as short as those that users see.
const (
	cds  = "CDS"
	eds  = "EDS"
	lds  = "LDS"
	rds  = "RDS"
	vhds = "VHDS"
)

var limits = order.Limits{Ready: 5 * time.Second, Resolve: 200 * time.Millisecond, Ask: 100 * time.Millisecond, Withdraw: 10 * time.Second}

func types() []order.Type {
	empty := func(name string) (*resource.Resource, error) { return resource.New(name, wrapperspb.String("")) }
	shared := stream.NewShared()
	return []order.Type{
		{Type: stream.Type{URL: cds, Full: true, Shared: shared}, Target: true},
		{Type: stream.Type{URL: eds, Empty: empty, Shared: shared}, Parent: cds, CoverParent: true},
		{Type: stream.Type{URL: lds, Full: true, Shared: shared}},
		{Type: stream.Type{URL: rds, Empty: empty, Shared: shared}, Parent: lds},
		{Type: stream.Type{URL: vhds, Full: true, Scoped: true, Shared: shared}, Parent: rds},
	}
}

// announcing are the types of a client that knows of clusters only from its routes.
func announcing() []order.Type {
	out := types()
	for i := range out {
		switch out[i].URL {
		case cds:
			out[i].Empty = func(name string) (*resource.Resource, error) {
				return resource.New(name, wrapperspb.String(""), name)
			}
		case rds:
			out[i].Announce = announce
		case vhds:
			out[i].Optional = true
		}
	}
	return out
}

// announce names clusters in a resource that leads no traffic there.
func announce(has *resource.Resource, clusters []string) (*resource.Resource, error) {
	var text wrapperspb.StringValue
	if err := proto.Unmarshal(has.Body.Value, &text); err != nil {
		return nil, err
	}
	out, err := resource.New(has.Name, wrapperspb.String(text.Value+" ~"+strings.Join(clusters, " ~")))
	if err == nil {
		out.Refs = append(slices.Clone(has.Refs), clusters...)
	}
	return out, err
}

// made is a resource of a test, from its name and what it is made of: words, of
// which ">name" is a child, "@name" a reference, "~name" one without traffic and
// "dns" a cluster that resolves.
func made(t interface{ Fatal(...any) }, name, content string) *resource.Resource {
	var children, refs []string
	for _, word := range strings.Fields(content) {
		switch word[0] {
		case '>':
			children = append(children, word[1:])
		case '@', '~':
			refs = append(refs, word[1:])
		}
	}
	r, err := resource.New(name, wrapperspb.String(content), children...)
	if err != nil {
		t.Fatal(err)
	}
	r.Refs, r.Resolves = refs, strings.Contains(content, "dns")
	return r
}

// sets are those of all types.
type sets map[string]resource.Set

// world makes the sets of a test from "TYPE name: content" lines.
func world(t interface{ Fatal(...any) }, lines ...string) sets {
	out := sets{}
	for _, line := range lines {
		head, content, _ := strings.Cut(line, ":")
		typ, name, _ := strings.Cut(head, " ")
		r := made(t, name, content)
		if parent, ok := out[cds].Get(name); ok && typ == eds {
			r = r.Under(parent.Version)
		}
		out[typ] = out[typ].Set(name, r)
	}
	return out
}

func (s sets) of(typeURL string) resource.Set { return s[typeURL] }

// play drives a Flow by hand.
type play struct {
	t       *testing.T
	variant stream.Variant
	flow    *order.Flow
	now     time.Time
	nonces  map[string]string          // of the last response, by type
	asked   map[string]map[string]bool // names asked for, by type
	last    map[string]*stream.Response
}

// inVariants runs a test in each variant.
func inVariants(t *testing.T, test func(t *testing.T, p *play)) {
	t.Helper()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newPlay(t, v))
		})
	}
}

func newPlay(t *testing.T, v stream.Variant) *play { return newPlayOf(t, v, types()) }

func newPlayOf(t *testing.T, v stream.Variant, types []order.Type) *play {
	return &play{
		t: t, variant: v, flow: order.New(types, v, limits), now: time.Unix(1000, 0),
		nonces: map[string]string{}, asked: map[string]map[string]bool{}, last: map[string]*stream.Response{},
	}
}

// offer has the client have what the lines say.
func (p *play) offer(lines ...string) { p.flow.Offer(world(p.t, lines...).of, 1) }

// ask asks for names of a type, or without names for all.
func (p *play) ask(typeURL string, names ...string) {
	if p.asked[typeURL] == nil {
		p.asked[typeURL] = map[string]bool{}
	}
	for _, name := range names {
		p.asked[typeURL][name] = true
	}
	p.flow.Request(typeURL, stream.Request{Subscribe: nameset.Of(names...), Names: nameset.Of(p.names(typeURL)...), Nonce: p.nonces[typeURL]}, p.now)
}

// leave gives names of a type up.
func (p *play) leave(typeURL string, names ...string) {
	for _, name := range names {
		delete(p.asked[typeURL], name)
	}
	p.flow.Request(typeURL, stream.Request{Unsubscribe: nameset.Of(names...), Names: nameset.Of(p.names(typeURL)...), Nonce: p.nonces[typeURL]}, p.now)
}

func (p *play) names(typeURL string) []string { return slices.Sorted(maps.Keys(p.asked[typeURL])) }

// ack takes the last response of types, nack refuses it.
func (p *play) ack(typeURLs ...string)  { p.answer(false, typeURLs) }
func (p *play) nack(typeURLs ...string) { p.answer(true, typeURLs) }

func (p *play) answer(rejected bool, typeURLs []string) {
	p.t.Helper()
	for _, typeURL := range typeURLs {
		a := p.flow.Request(typeURL, stream.Request{
			Nonce: p.nonces[typeURL], Names: nameset.Of(p.names(typeURL)...), Rejected: rejected, Message: "no",
		}, p.now)
		if a.Acked == nil && a.Rejected == nil {
			p.t.Errorf("nothing of %s was under way", typeURL)
		}
	}
}

// sends takes what goes out now and holds it against what is expected: for each
// response its type, "+name" for each resource that the client lacks, "-name" for
// each that it is to give up. In state of the world "=" follows with the content
// of the whole of a type.
func (p *play) sends(what string, want ...string) {
	p.t.Helper()
	var got []string
	for typeURL, r := range p.flow.Responses(p.now) {
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

// passes lets time pass, and expects the flow to ask for it or not.
func (p *play) passes(d time.Duration) {
	p.t.Helper()
	if at := p.flow.Wake(); at.IsZero() || at.After(p.now.Add(d)) {
		p.t.Errorf("it would not wake within %s: %v", d, at)
	}
	p.now = p.now.Add(d)
}

// settled has a client take a world wholly that asks for all types, and for
// endpoints and routes by name.
func (p *play) settled(lines ...string) {
	p.t.Helper()
	p.offer(lines...)
	w := world(p.t, lines...)
	for _, typeURL := range []string{cds, eds, lds, rds, vhds} {
		var names []string
		if typeURL == eds || typeURL == rds {
			if names = slices.Collect(w[typeURL].Keys()); len(names) == 0 {
				names = []string{"none"}
			}
		}
		if typeURL != vhds || p.variant == stream.Delta {
			p.ask(typeURL, names...)
		}
	}
	for sent := true; sent; {
		sent = false
		for typeURL, r := range p.flow.Responses(p.now) {
			p.nonces[typeURL], sent = r.Nonce, true
		}
		for typeURL, s := range p.flow.Sessions() {
			if s.InFlight() {
				p.ack(typeURL)
			}
		}
		if at := p.flow.Wake(); !sent && !at.IsZero() {
			p.now, sent = at, true
		}
	}
	for typeURL, s := range p.flow.Sessions() {
		if s.Pending() {
			p.t.Fatalf("%s is not settled", typeURL)
		}
	}
}
