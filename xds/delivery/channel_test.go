package delivery_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// channel is a model of a gRPC channel. It requests the clusters that its routes name,
// and their endpoints, and uses routes once it has these. The test fails if calls go to a
// cluster that the routes before did not name, since the Go library fails such calls, or
// to a cluster that was removed.
type channel struct {
	t         *rapid.T
	sequencer *delivery.Sequencer
	now       time.Time

	next, uses *resource.Resource                       // routes
	holds      map[string]map[string]*resource.Resource // by type
	asked      map[string][]string
	wire       []sent
	nonces     map[string]string
	unsaid     map[string]bool     // responses that it has not acknowledged, by type
	refusing   map[string][]string // what it refuses of the last response, by type; it takes the rest
	// errors has, by type, the resources that it refused and of which it has no form. It
	// goes on without them.
	errors map[string]map[string]bool
	// parts are clusters that it took from a response that it refused. The server does
	// not know that, and may remove them with others.
	parts map[string]bool
}

func newChannel(t *rapid.T) *channel {
	return &channel{
		t: t, sequencer: delivery.New(announcing(), protocol.StateOfTheWorld, limits), now: time.Unix(1000, 0),
		holds: map[string]map[string]*resource.Resource{cds: {}, eds: {}, rds: {}}, asked: map[string][]string{},
		nonces: map[string]string{}, unsaid: map[string]bool{}, refusing: map[string][]string{}, parts: map[string]bool{}, errors: map[string]map[string]bool{cds: {}, eds: {}, rds: {}},
	}
}

func (c *channel) offer(m sets, revision int64) { c.sequencer.SetDesired(m.of, revision) }

func (c *channel) flush() {
	for typeURL, r := range c.sequencer.Responses(c.now) {
		c.t.Logf("server: %s +%v -%v", typeURL, names(r.Changed), slices.Sorted(maps.Keys(r.Withdrawn)))
		c.wire = append(c.wire, sent{typeURL: typeURL, response: r})
	}
}

// ask requests names of a type, if they differ from the last ones.
func (c *channel) ask(typeURL string, want map[string]bool) {
	names := slices.Sorted(maps.Keys(want))
	if slices.Equal(names, c.asked[typeURL]) {
		return
	}
	c.asked[typeURL] = names
	maps.DeleteFunc(c.holds[typeURL], func(name string, _ *resource.Resource) bool { return !want[name] })
	c.t.Logf("client: asks for %s %v", typeURL, names)
	c.say(typeURL)
}

// say answers the last response of a type, with the names that the channel requests.
func (c *channel) say(typeURL string) {
	q := protocol.Request{Names: protocoltest.NameSet(c.asked[typeURL]...), Nonce: c.nonces[typeURL]}
	if c.unsaid[typeURL] && len(c.refusing[typeURL]) > 0 {
		q.Rejected, q.Message = true, strings.Join(c.refusing[typeURL], " ")
	}
	delete(c.unsaid, typeURL)
	c.sequencer.Request(typeURL, q, c.now)
}

// acknowledge answers the last response of a type; false if it has no answer due.
func (c *channel) acknowledge(typeURL string) bool {
	if !c.unsaid[typeURL] {
		return false
	}
	c.t.Logf("client: answers %s", typeURL)
	c.say(typeURL)
	return true
}

func (c *channel) receive() bool {
	if len(c.wire) == 0 {
		return false
	}
	s := c.wire[0]
	c.wire = c.wire[1:]
	c.nonces[s.typeURL], c.unsaid[s.typeURL], c.refusing[s.typeURL] = s.response.Nonce, true, nil
	for _, r := range s.response.Resources {
		switch {
		case strings.Contains(content(r), "bad"):
			c.refusing[s.typeURL] = append(c.refusing[s.typeURL], r.Name)
			c.errors[s.typeURL][r.Name] = c.holds[s.typeURL][r.Name] == nil
		case slices.Contains(c.asked[s.typeURL], r.Name):
			if had := c.holds[cds][r.Name]; s.typeURL == cds && had != nil && content(had) != "" && content(r) == "" && c.calls(c.uses)[r.Name] && !c.parts[r.Name] {
				c.t.Fatalf("calls go to %s, which was taken away", r.Name)
			}
			c.holds[s.typeURL][r.Name] = r
			delete(c.errors[s.typeURL], r.Name)
		}
	}
	for _, r := range s.response.Resources {
		if s.typeURL == cds && slices.Contains(c.asked[cds], r.Name) {
			c.parts[r.Name] = len(c.refusing[cds]) > 0 && (c.parts[r.Name] || slices.Contains(s.response.Changed, r))
		}
	}
	if r := c.holds[rds]["r"]; s.typeURL == rds && r != nil {
		c.next = r
	}
	c.t.Logf("client: has %s, refuses it: %v", s.typeURL, c.refusing[s.typeURL])
	c.proceed()
	return true
}

// proceed requests what the next routes lack, or uses them.
func (c *channel) proceed() {
	if c.next == nil {
		return
	}
	clusters := map[string]bool{}
	for _, routes := range []*resource.Resource{c.uses, c.next} {
		if routes != nil {
			for ref := range routes.EachRef {
				clusters[ref] = true
			}
		}
	}
	endpoints := map[string]bool{}
	c.ask(cds, clusters)
	for _, r := range c.holds[cds] {
		for child := range protocoltest.Children(r) {
			endpoints[child] = true
		}
	}
	c.ask(eds, endpoints)
	if c.next != c.uses && c.complete() {
		c.use()
	}
}

// complete says whether the channel has everything that the next routes need.
func (c *channel) complete() bool {
	for ref := range c.next.EachRef {
		r := c.holds[cds][ref]
		switch {
		case r == nil && c.errors[cds][ref]:
			continue
		case r == nil:
			return false
		}
		for child := range protocoltest.Children(r) {
			if c.holds[eds][child] == nil && !c.errors[eds][child] {
				return false
			}
		}
	}
	return true
}

// use begins to use the next routes.
func (c *channel) use() {
	c.t.Logf("client: uses %s", content(c.next))
	if c.uses != nil {
		for ref := range c.calls(c.next) {
			if !c.uses.Refers(ref) && content(c.holds[cds][ref]) != "" {
				c.t.Fatalf("calls go to %s, of which %q says nothing", ref, content(c.uses))
			}
		}
	}
	c.uses = c.next
	c.proceed()
}

// calls returns the clusters that calls go to.
func (c *channel) calls(routes *resource.Resource) map[string]bool {
	out := map[string]bool{}
	if routes != nil {
		for _, word := range strings.Fields(content(routes)) {
			if cluster, ok := strings.CutPrefix(word, "@"); ok {
				out[cluster] = true
			}
		}
	}
	return out
}

// lines draws a mesh in which all routes name clusters that exist.
func lines(t *rapid.T, bad bool) []string {
	var out, there []string
	for i := range 4 {
		if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
			name := fmt.Sprintf("c%d", i)
			there = append(there, name)
			out = append(out, fmt.Sprintf("CDS %s: >%s v%d%s", name, name, rapid.IntRange(0, 1).Draw(t, "version"), spoilt(t, bad)),
				fmt.Sprintf("EDS %s: v%d%s", name, rapid.IntRange(0, 1).Draw(t, "endpoints"), spoilt(t, bad)))
		}
	}
	routes := "RDS r: -"
	if len(there) > 0 {
		for range rapid.IntRange(1, 2).Draw(t, "routes") {
			routes += " @" + rapid.SampledFrom(there).Draw(t, "to")
		}
	}
	return append(out, routes+spoilt(t, bad))
}

// spoilt returns, now and then, the word that makes the client refuse a resource.
func spoilt(t *rapid.T, some bool) string {
	if some && rapid.IntRange(0, 4).Draw(t, "bad") == 0 {
		return " bad"
	}
	return ""
}

// TestNoCallGoesToAnUnknownCluster, whatever changes and however slowly the client
// answers. In the end it uses the routes that it should.
func TestNoCallGoesToAnUnknownCluster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newChannel(t)
		c.offer(world(t, lines(t, false)...), 1)
		c.ask(rds, map[string]bool{"r": true})
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch step := rapid.SampledFrom([]string{"change", "receive", "receive", "answer", "answer", "flush", "wait"}).Draw(t, "step"); step {
			case "change":
				changed := lines(t, true)
				t.Logf("server: offers %q", changed)
				c.offer(world(t, changed...), int64(i)+2)
			case "receive":
				c.receive()
			case "answer":
				c.acknowledge(rapid.SampledFrom([]string{cds, eds, rds}).Draw(t, "type"))
			case "flush":
				c.flush()
			case "wait":
				c.now = c.now.Add(50 * time.Millisecond)
			}
		}
		last := world(t, lines(t, false)...)
		c.offer(last, 1000)
		c.settle()
		if got, want := content(c.uses), content(last[rds].Value("r")); got != want {
			t.Fatalf("it uses %q, want %q", got, want)
		}
		for typeURL, s := range c.sequencer.Subscriptions() {
			if s.Pending() {
				t.Fatalf("%s is not settled", typeURL)
			}
		}
		if late := c.sequencer.Late(); len(late) > 0 {
			t.Fatalf("sent too early: %v", late)
		}
	})
}

// settle lets both sides go on until nothing is left to send. No limit passes.
func (c *channel) settle() {
	for range 1000 {
		c.flush()
		some := c.receive()
		for _, typeURL := range []string{cds, eds, rds} {
			some = c.acknowledge(typeURL) || some
		}
		if !some {
			return
		}
	}
	c.t.Fatal("it never settles")
}
