package relay

import (
	"maps"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// A Follower takes what has changed of the resources of one type: those that came or changed, and
// the names of those that went. Calls come one at a time. It must not change the resources.
type Follower func(set []*discoveryv3.Resource, removed []string)

// followers ask for types on behalf of the agent itself, on the streams of its own proxy and of the
// gRPC programs of the machine. Of several streams on which a type is followed, the newest counts.
type followers struct {
	take map[string]Follower
	// single are the types that are followed on streams in state of the world, with the name of
	// their one resource: there resources have no names.
	single map[string]string

	mu      sync.Mutex
	has     view // what the followers were told
	streams []*following
}

// view are resources by type and name.
type view map[string]map[string]*discoveryv3.Resource

// following is the part of the followers in one stream, of the delta variant.
type following struct {
	of  *followers
	has view // what the stream's servers have sent, of the types that are followed there
}

// followingWorld is that of a stream in state of the world.
type followingWorld struct{ *following }

func newFollowers(take map[string]Follower, single map[string]string) *followers {
	f := &followers{take: take, single: single, has: view{}}
	for url := range take {
		f.has[url] = map[string]*discoveryv3.Resource{}
	}
	return f
}

// begin tells the followers what was kept, by type, of streams of each variant.
func (f *followers) begin(delta, world map[string]*discoveryv3.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, url := range slices.Sorted(maps.Keys(f.take)) {
		kept := delta[url].GetResources()
		if bodies := world[url].GetResources(); len(kept) == 0 && f.single[url] != "" && len(bodies) > 0 {
			kept = []*discoveryv3.Resource{f.named(url, world[url].GetSystemVersionInfo(), bodies[0].GetResource())}
		}
		f.tell(url, kept, nil)
	}
}

// named returns the one resource of a type.
func (f *followers) named(url, version string, body *anypb.Any) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: f.single[url], Version: version, Resource: body}
}

// join begins with a stream of the delta variant, on which the followers go on from what they have.
func (f *followers) join() *following {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &following{of: f, has: view{}}
	for url, resources := range f.has {
		s.has[url] = maps.Clone(resources)
	}
	f.streams = append(f.streams, s)
	return s
}

// joinWorld begins with a stream in state of the world, as join does.
func (f *followers) joinWorld() followingWorld {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &following{of: f, has: view{}}
	for url := range f.single {
		s.has[url] = maps.Clone(f.has[url])
	}
	f.streams = append(f.streams, s)
	return followingWorld{s}
}

// newest returns the stream that counts for a type, nil for none. The caller holds mu.
func (f *followers) newest(url string) *following {
	for _, s := range slices.Backward(f.streams) {
		if _, ok := s.has[url]; ok {
			return s
		}
	}
	return nil
}

// requests returns the first requests of the followed types.
func (s *following) requests() []*discoveryv3.DeltaDiscoveryRequest {
	var out []*discoveryv3.DeltaDiscoveryRequest
	for _, url := range slices.Sorted(maps.Keys(s.has)) {
		versions := map[string]string{}
		for name, r := range s.has[url] {
			versions[name] = r.GetVersion()
		}
		out = append(out, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{wildcard}, InitialResourceVersions: versions})
	}
	return out
}

// response takes a response, and returns the request that acknowledges it; false if it is not for
// the followers.
func (s *following) response(r *discoveryv3.DeltaDiscoveryResponse) (*discoveryv3.DeltaDiscoveryRequest, bool) {
	if !s.take(r.GetTypeUrl(), r.GetResources(), r.GetRemovedResources()) {
		return nil, false
	}
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}, true
}

// take takes what has changed of a type; false if the type is not followed on the stream.
func (s *following) take(url string, set []*discoveryv3.Resource, removed []string) bool {
	resources, ok := s.has[url]
	if !ok {
		return false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for _, one := range set {
		resources[one.GetName()] = one
	}
	for _, name := range removed {
		delete(resources, name)
	}
	if s.of.newest(url) == s {
		s.of.tell(url, set, removed)
	}
	return true
}

// requests returns the first requests of the followed types.
func (s followingWorld) requests() []*discoveryv3.DiscoveryRequest {
	var out []*discoveryv3.DiscoveryRequest
	for _, url := range slices.Sorted(maps.Keys(s.has)) {
		out = append(out, &discoveryv3.DiscoveryRequest{TypeUrl: url})
	}
	return out
}

// response does what that of following does. A response has all that there is.
func (s followingWorld) response(r *discoveryv3.DiscoveryResponse) (*discoveryv3.DiscoveryRequest, bool) {
	url := r.GetTypeUrl()
	var set []*discoveryv3.Resource
	var removed []string
	if bodies := r.GetResources(); len(bodies) > 0 {
		set = append(set, s.of.named(url, r.GetVersionInfo(), bodies[0]))
	} else {
		removed = append(removed, s.of.single[url])
	}
	if !s.take(url, set, removed) {
		return nil, false
	}
	return &discoveryv3.DiscoveryRequest{TypeUrl: url, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}, true
}

// leave ends with a stream. If another one counts then, the followers go over to what that has.
func (s *following) leave() {
	f := s.of
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams = slices.DeleteFunc(f.streams, func(one *following) bool { return one == s })
	for _, url := range slices.Sorted(maps.Keys(f.take)) {
		next := f.newest(url)
		if next == nil {
			continue
		}
		var set []*discoveryv3.Resource
		var removed []string
		for _, name := range slices.Sorted(maps.Keys(next.has[url])) {
			if one := next.has[url][name]; f.has[url][name] != one {
				set = append(set, one)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.has[url])) {
			if next.has[url][name] == nil {
				removed = append(removed, name)
			}
		}
		f.tell(url, set, removed)
	}
}

// tell tells a follower, if there is anything to tell.
func (f *followers) tell(url string, set []*discoveryv3.Resource, removed []string) {
	if len(set)+len(removed) == 0 {
		return
	}
	for _, one := range set {
		f.has[url][one.GetName()] = one
	}
	for _, name := range removed {
		delete(f.has[url], name)
	}
	f.take[url](set, removed)
}
