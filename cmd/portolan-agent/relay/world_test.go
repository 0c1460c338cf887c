package relay

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// worldServer is a model of a server that has one stream, in state of the world.
type worldServer struct {
	desired content
	asked   bool
	names   []string
	version string // what the client has, as far as it has said
	sent    string // the last nonce
	nonce   int
	pending bool
}

// of returns what a client that asks for names should have, and its version.
func (c content) of(names []string) (content, string) {
	out := content{}
	for name, version := range c {
		if slices.Contains(names, name) {
			out[name] = version
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(out)) {
		b.WriteString(name + "=" + out[name] + ";")
	}
	return out, "w" + b.String()
}

func (s *worldServer) request(t *rapid.T, r *discoveryv3.DiscoveryRequest) {
	if !s.asked {
		if r.GetResponseNonce() != "" {
			t.Fatalf("a first request has the nonce %q", r.GetResponseNonce())
		}
		if len(r.GetResourceNames()) == 0 {
			t.Fatal("a first request asks for all")
		}
		s.asked, s.version = true, r.GetVersionInfo()
	} else if r.GetResponseNonce() != s.sent { // stale
		return
	} else if r.GetErrorDetail() != nil {
		s.version = "?"
	} else if s.sent != "" && s.pending {
		s.version = r.GetVersionInfo()
	}
	s.pending = false
	s.names = r.GetResourceNames()
}

func (s *worldServer) next() *discoveryv3.DiscoveryResponse {
	_, version := s.desired.of(s.names)
	if !s.asked || s.pending || s.version == version {
		return nil
	}
	some, _ := s.desired.of(s.names)
	s.nonce++
	s.sent, s.pending = strconv.Itoa(s.nonce), true
	out := &discoveryv3.DiscoveryResponse{TypeUrl: hostType, VersionInfo: version, Nonce: s.sent}
	for _, name := range slices.Sorted(maps.Keys(some)) {
		out.Resources = append(out.Resources, &anypb.Any{Value: []byte(name + "=" + some[name])})
	}
	return out
}

// worldClient is a model of a client.
type worldClient struct {
	begun          bool
	names          []string
	has            []string
	version, nonce string
	queue          []*discoveryv3.DiscoveryResponse
}

func (c *worldClient) request() *discoveryv3.DiscoveryRequest {
	out := &discoveryv3.DiscoveryRequest{TypeUrl: hostType, ResourceNames: slices.Clone(c.names), VersionInfo: c.version, ResponseNonce: c.nonce}
	if !c.begun {
		c.begun, out.Node = true, &corev3.Node{Id: "n"}
	}
	return out
}

func (c *worldClient) answer(refuse bool) *discoveryv3.DiscoveryRequest {
	r := c.queue[0]
	c.queue, c.nonce = c.queue[1:], r.GetNonce()
	if !refuse {
		c.version, c.has = r.GetVersionInfo(), nil
		for _, one := range r.GetResources() {
			c.has = append(c.has, string(one.GetValue()))
		}
	}
	out := c.request()
	if refuse {
		out.ErrorDetail = &statuspb.Status{Message: "no"}
	}
	return out
}

// TestWorldEndsAsWithTheLastUpstream is the same for clients in state of the world.
func TestWorldEndsAsWithTheLastUpstream(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		desired := func(label string) content {
			out := content{}
			for _, name := range names {
				if v := rapid.IntRange(0, 2).Draw(t, label+name); v > 0 {
					out[name] = "v" + strconv.Itoa(v)
				}
			}
			return out
		}
		b := newWorldBook(nil, nil)
		var server *worldServer
		client := &worldClient{}
		ask := func(r *discoveryv3.DiscoveryRequest) {
			if out, ok := b.fromClient(r); ok {
				server.request(t, out)
			}
		}
		receive := func() bool {
			if server == nil {
				return false
			}
			r := server.next()
			if r == nil {
				return false
			}
			client.queue = append(client.queue, b.fromServer(r))
			return true
		}
		attach := func(with content) {
			if server != nil {
				b.detach()
			}
			server = &worldServer{desired: with}
			for _, r := range b.attach() {
				server.request(t, r)
			}
		}
		client.names = []string{"a"}
		ask(client.request())
		for i := range rapid.IntRange(20, 80).Draw(t, "steps") {
			switch rapid.SampledFrom([]int{0, 9, 9, 1, 2, 3, 3, 3, 3, 4, 4, 4, 4, 6}).Draw(t, "step") {
			case 0:
				attach(desired(fmt.Sprint("desired", i)))
			case 9: // another server of the same mesh
				if server != nil {
					attach(server.desired)
				}
			case 1:
				if server != nil {
					b.detach()
					server = nil
				}
			case 2:
				if server != nil {
					server.desired = desired(fmt.Sprint("desired", i))
				}
			case 3:
				receive()
			case 4:
				if len(client.queue) > 0 {
					ask(client.answer(rapid.IntRange(0, 4).Draw(t, "refuses") == 0))
				}
			case 6:
				client.names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "names")
				ask(client.request())
			}
		}
		last := desired("last")
		if server != nil && rapid.Bool().Draw(t, "the same") {
			last = server.desired
		}
		attach(last)
		for receive() || len(client.queue) > 0 {
			for len(client.queue) > 0 {
				ask(client.answer(false))
			}
		}
		want, version := server.desired.of(client.names)
		var bodies []string
		for _, name := range slices.Sorted(maps.Keys(want)) {
			bodies = append(bodies, name+"="+want[name])
		}
		if diff := cmp.Diff(bodies, client.has); diff != "" || client.version != version && len(bodies) > 0 {
			t.Fatalf("version %s, want %s; -what the last upstream gives +what the client has:\n%s", client.version, version, diff)
		}
	})
}
