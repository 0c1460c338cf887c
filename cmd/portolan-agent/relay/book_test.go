package relay

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

const (
	clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	hostType    = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// content is a set of resources: name to version.
type content map[string]string

func (c content) resource(name string) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: c[name], Resource: &anypb.Any{TypeUrl: "t", Value: []byte(name + "=" + c[name])}}
}

// deltaServer is a model of a server that has one stream, of the delta variant.
type deltaServer struct {
	desired content
	all     bool
	asked   bool
	names   map[string]bool
	client  content // what the server knows of the client
	nonce   int
	flight  map[string]*discoveryv3.DeltaDiscoveryResponse
}

func newDeltaServer(desired content) *deltaServer {
	return &deltaServer{desired: desired, names: map[string]bool{}, client: content{}, flight: map[string]*discoveryv3.DeltaDiscoveryResponse{}}
}

func (s *deltaServer) wants(name string) bool { return s.all || s.names["*"] || s.names[name] }

func (s *deltaServer) request(t *rapid.T, r *discoveryv3.DeltaDiscoveryRequest) {
	if !s.asked {
		s.asked, s.all = true, len(r.GetResourceNamesSubscribe()) == 0
		s.client = maps.Clone(content(r.GetInitialResourceVersions()))
		if s.client == nil {
			s.client = content{}
		}
		if r.GetResponseNonce() != "" {
			t.Fatalf("a first request has the nonce %q", r.GetResponseNonce())
		}
	} else if len(r.GetInitialResourceVersions()) > 0 {
		t.Fatal("a later request states versions")
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		if s.names[name] = true; name != "*" {
			if _, ok := s.client[name]; ok && r.GetResponseNonce() != "" {
				delete(s.client, name)
			}
		}
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		if delete(s.names, name); name == "*" {
			s.all = false
		}
	}
	maps.DeleteFunc(s.client, func(name, _ string) bool { return !s.wants(name) })
	if nonce := r.GetResponseNonce(); nonce != "" {
		response, ok := s.flight[nonce]
		if !ok {
			t.Fatalf("an answer to %q, which was not sent", nonce)
		}
		delete(s.flight, nonce)
		if r.GetErrorDetail() != nil {
			for _, one := range response.GetResources() { // it is sent again, since the form is unknown
				s.client[one.GetName()] = "?"
			}
			for _, name := range response.GetRemovedResources() {
				s.client[name] = "?"
			}
		}
	}
}

// next returns what the client lacks, nil for nothing. It counts as had until it is refused.
func (s *deltaServer) next() *discoveryv3.DeltaDiscoveryResponse {
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType}
	for _, name := range slices.Sorted(maps.Keys(s.desired)) {
		if s.wants(name) && s.client[name] != s.desired[name] {
			out.Resources = append(out.Resources, s.desired.resource(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.client)) {
		if _, ok := s.desired[name]; !ok {
			out.RemovedResources = append(out.RemovedResources, name)
		}
	}
	if !s.asked || len(out.Resources)+len(out.RemovedResources) == 0 {
		return nil
	}
	for _, one := range out.Resources {
		s.client[one.GetName()] = one.GetVersion()
	}
	for _, name := range out.RemovedResources {
		delete(s.client, name)
	}
	s.nonce++
	out.Nonce = strconv.Itoa(s.nonce)
	s.flight[out.Nonce] = out
	return out
}

// deltaClient is a model of a client.
type deltaClient struct {
	all   bool
	begun bool
	names map[string]bool
	has   content
	queue []*discoveryv3.DeltaDiscoveryResponse // received and not answered
}

func (c *deltaClient) wants(name string) bool { return c.all || c.names["*"] || c.names[name] }

func (c *deltaClient) answer(refuse bool) *discoveryv3.DeltaDiscoveryRequest {
	r := c.queue[0]
	c.queue = c.queue[1:]
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType, ResponseNonce: r.GetNonce()}
	if refuse {
		out.ErrorDetail = &statuspb.Status{Message: "no"}
		return out
	}
	for _, one := range r.GetResources() {
		if c.wants(one.GetName()) {
			c.has[one.GetName()] = one.GetVersion()
		}
	}
	for _, name := range r.GetRemovedResources() {
		delete(c.has, name)
	}
	return out
}

// TestDeltaEndsAsWithTheLastUpstream: whatever becomes of upstreams, and whatever the client asks
// for, accepts and refuses: it ends with what the last upstream has for it, and with nothing else.
func TestDeltaEndsAsWithTheLastUpstream(t *testing.T) {
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
		b := newDeltaBook(nil, nil)
		var server *deltaServer
		client := &deltaClient{names: map[string]bool{}, has: content{}}
		toServer := func(r *discoveryv3.DeltaDiscoveryRequest, ok bool) {
			if ok {
				server.request(t, r)
			}
		}
		ask := func(r *discoveryv3.DeltaDiscoveryRequest) {
			r.TypeUrl = clusterType
			if !client.begun {
				client.begun, client.all = true, len(r.GetResourceNamesSubscribe()) == 0
				for _, name := range r.GetResourceNamesSubscribe() {
					client.names[name] = true
				}
				r.Node = &corev3.Node{Id: "n"}
			}
			toServer(b.fromClient(r))
		}
		seen := map[string]bool{}
		receive := func() bool {
			if server == nil {
				return false
			}
			r := server.next()
			if r == nil {
				return false
			}
			own := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeUrl, Nonce: r.Nonce, Resources: r.Resources, RemovedResources: r.RemovedResources}
			got := b.fromServer(own)
			if seen[got.GetNonce()] {
				t.Fatalf("the nonce %q comes twice", got.GetNonce())
			}
			seen[got.GetNonce()] = true
			client.queue = append(client.queue, got)
			return true
		}
		attach := func(with content) {
			if server != nil {
				b.detach()
			}
			server = newDeltaServer(with)
			for _, r := range b.attach() {
				if len(r.GetResourceNamesSubscribe()) == 0 && !client.all {
					t.Fatal("a client that asks for nothing is restated as one that asks for all")
				}
				toServer(r, true)
			}
		}
		ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b"}, {"*"}}).Draw(t, "first")})
		for i := range rapid.IntRange(20, 80).Draw(t, "steps") {
			switch rapid.SampledFrom([]int{0, 9, 9, 1, 2, 3, 3, 3, 3, 5, 5, 5, 5, 7, 8}).Draw(t, "step") {
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
			case 5:
				if len(client.queue) > 0 {
					r := client.answer(rapid.IntRange(0, 4).Draw(t, "refuses") == 0)
					if rapid.IntRange(0, 2).Draw(t, "asks for more") == 0 {
						name := rapid.SampledFrom(names).Draw(t, "more")
						client.names[name], r.ResourceNamesSubscribe = true, []string{name}
					}
					ask(r)
				}
			case 7:
				name := rapid.SampledFrom(append(names, "*")).Draw(t, "name")
				client.names[name] = true
				ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{name}})
			case 8:
				name := rapid.SampledFrom(append(names, "*")).Draw(t, "gives up")
				if delete(client.names, name); name == "*" {
					client.all = false
				}
				maps.DeleteFunc(client.has, func(name, _ string) bool { return !client.wants(name) })
				ask(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{name}})
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
		want := content{}
		for name, version := range server.desired {
			if client.wants(name) {
				want[name] = version
			}
		}
		if diff := cmp.Diff(want, client.has); diff != "" {
			t.Fatalf("-what the last upstream gives +what the client has:\n%s", diff)
		}
		known := content{}
		for _, of := range b.state() {
			for _, one := range of.GetResources() {
				if known[one.GetName()] = one.GetVersion(); string(one.GetResource().GetValue()) != one.GetName()+"="+one.GetVersion() {
					t.Fatalf("the kept body of %s is %q", one.GetName(), one.GetResource().GetValue())
				}
			}
		}
		if diff := cmp.Diff(want, known); diff != "" {
			t.Fatalf("-what the client has +what is kept:\n%s", diff)
		}
	})
}
