package relay

import (
	"maps"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A Follower takes what has changed of the resources of one type: those that came or changed, and
// the names of those that went. Calls come one at a time. It must not change the resources.
type Follower func(set []*discoveryv3.Resource, removed []string)

// followers ask for types on behalf of the agent itself, on the streams of its own proxy. While a
// proxy is replaced it has two streams: the newest one counts.
type followers struct {
	take map[string]Follower

	mu      sync.Mutex
	has     view // what the followers were told
	streams []*following
}

// view are resources by type and name.
type view map[string]map[string]*discoveryv3.Resource

// following is the part of the followers in one stream.
type following struct {
	of  *followers
	has view // what the stream's servers have sent
}

func newFollowers(take map[string]Follower) *followers {
	f := &followers{take: take, has: view{}}
	for url := range take {
		f.has[url] = map[string]*discoveryv3.Resource{}
	}
	return f
}

// begin tells the followers what was kept, by type.
func (f *followers) begin(kept map[string]*discoveryv3.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, url := range slices.Sorted(maps.Keys(f.take)) {
		f.tell(url, kept[url].GetResources(), nil)
	}
}

// join begins with a stream, on which the followers go on from what they have.
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
	resources, ok := s.has[r.GetTypeUrl()]
	if !ok {
		return nil, false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for _, one := range r.GetResources() {
		resources[one.GetName()] = one
	}
	for _, name := range r.GetRemovedResources() {
		delete(resources, name)
	}
	if s.of.streams[len(s.of.streams)-1] == s {
		s.of.tell(r.GetTypeUrl(), r.GetResources(), r.GetRemovedResources())
	}
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}, true
}

// leave ends with a stream. If another one counts then, the followers go over to what that has.
func (s *following) leave() {
	f := s.of
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams = slices.DeleteFunc(f.streams, func(one *following) bool { return one == s })
	if len(f.streams) == 0 {
		return
	}
	next := f.streams[len(f.streams)-1]
	for _, url := range slices.Sorted(maps.Keys(f.take)) {
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
