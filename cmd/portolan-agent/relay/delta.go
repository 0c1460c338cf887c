package relay

import (
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// wildcard is the name that asks for all resources of a type.
const wildcard = "*"

// deltaBook is the book of a client that speaks the delta variant.
type deltaBook struct {
	ledger[deltaType]
	followed map[string]Follower // the types that are the agent's, not the client's
}

// newDeltaBook returns the book of a client; kept is what was last known of it, by type.
func newDeltaBook(kept map[string]*discoveryv3.DeltaDiscoveryResponse, followed map[string]Follower) *deltaBook {
	return &deltaBook{newLedger[deltaType](kept), followed}
}

// deltaType is the bookkeeping of one type.
type deltaType struct {
	url string
	// all says that the client asked for all resources by a first request without names.
	all   bool
	names map[string]struct{} // what it asked for by name, also "*"
	// has are the resources that the client has acknowledged.
	has map[string]held
	// flight are the responses that it has not answered yet, by the nonce that it knows.
	flight map[string]*discoveryv3.DeltaDiscoveryResponse
	// told says that the upstream has been asked for the type.
	told bool
}

// held is a resource that the client has. Without a body the book knows only that the client
// stated the version.
type held struct {
	version string
	body    *discoveryv3.Resource
}

func (b *deltaBook) settled() bool {
	return slices.ContainsFunc(b.order, func(t *deltaType) bool { return len(t.has) > 0 && b.followed[t.url] == nil })
}

func (b *deltaBook) attach() []*discoveryv3.DeltaDiscoveryRequest {
	return attachTo(&b.ledger, b.restate)
}

func (b *deltaBook) detach() {
	b.attached = false
	for _, t := range b.order {
		t.told = false
	}
}

// greet adds the node to the first request of an upstream.
func (b *deltaBook) greet(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryRequest {
	if !b.greeted {
		r.Node, b.greeted = b.client, true
	}
	return r
}

// restate returns the first request of a type for the upstream; false if the client asks for
// nothing of it, since a first request without names would ask for all.
func (b *deltaBook) restate(t *deltaType) (*discoveryv3.DeltaDiscoveryRequest, bool) {
	if t.idle() {
		return nil, false
	}
	return b.greet(t.restate()), true
}

func (b *deltaBook) fromClient(r *discoveryv3.DeltaDiscoveryRequest) (*discoveryv3.DeltaDiscoveryRequest, bool) {
	if b.client == nil {
		b.client = r.GetNode()
	}
	t, known := b.types[r.GetTypeUrl()]
	if !known {
		t = b.begin(r)
	}
	b.answered(t, r) // by what it asked for when the response came
	t.subscribe(r)
	if !b.attached {
		return nil, false
	}
	if !t.told {
		return b.restate(t)
	}
	nonce, current := b.current.unmark(r.GetResponseNonce())
	if !current {
		if len(r.GetResourceNamesSubscribe())+len(r.GetResourceNamesUnsubscribe()) == 0 {
			return nil, false // it answers an upstream that is gone
		}
		nonce, r.ErrorDetail = "", nil
	}
	r.ResponseNonce, r.InitialResourceVersions = nonce, nil
	return b.greet(r), true
}

// begin adds a type at its first request.
func (b *deltaBook) begin(r *discoveryv3.DeltaDiscoveryRequest) *deltaType {
	t := &deltaType{
		url: r.GetTypeUrl(), all: len(r.GetResourceNamesSubscribe()) == 0, names: map[string]struct{}{},
		has: map[string]held{}, flight: map[string]*discoveryv3.DeltaDiscoveryResponse{},
	}
	bodies := map[string]*discoveryv3.Resource{}
	for _, one := range b.kept[t.url].GetResources() {
		bodies[one.GetName()] = one
	}
	for name, version := range r.GetInitialResourceVersions() {
		h := held{version: version}
		if body := bodies[name]; body.GetVersion() == version {
			h.body = body
		}
		t.has[name] = h
	}
	b.add(t.url, t)
	return t
}

// answered takes an answer: what the client accepts it has. What it refuses changes nothing, since
// it then goes on with what it had.
func (b *deltaBook) answered(t *deltaType, r *discoveryv3.DeltaDiscoveryRequest) {
	response, ok := t.flight[r.GetResponseNonce()]
	if !ok {
		return
	}
	delete(t.flight, r.GetResponseNonce())
	if r.GetErrorDetail() != nil {
		return
	}
	for _, one := range response.GetResources() {
		if t.wants(one.GetName(), one.GetAliases()) {
			h := held{version: one.GetVersion()}
			if t.url != resource.SecretType {
				h.body = one
			}
			t.has[one.GetName()] = h
		}
	}
	for _, name := range response.GetRemovedResources() {
		delete(t.has, name)
	}
	b.changed++
}

func (b *deltaBook) fromServer(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryResponse {
	r.Nonce = b.current.mark(r.GetNonce())
	if t := b.types[r.GetTypeUrl()]; t != nil {
		t.flight[r.GetNonce()] = r
	}
	return r
}

// subscribe changes what the client asks for. It forgets what it gives up.
func (t *deltaType) subscribe(r *discoveryv3.DeltaDiscoveryRequest) {
	for _, name := range r.GetResourceNamesSubscribe() {
		t.names[name] = struct{}{}
	}
	if len(r.GetResourceNamesUnsubscribe()) == 0 {
		return
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		if delete(t.names, name); name == wildcard {
			t.all = false
		}
	}
	maps.DeleteFunc(t.has, func(name string, h held) bool { return !t.wants(name, h.body.GetAliases()) })
}

// wants says whether the client asks for a resource.
func (t *deltaType) wants(name string, aliases []string) bool {
	if _, ok := t.names[wildcard]; ok || t.all {
		return true
	}
	_, ok := t.names[name]
	return ok || slices.ContainsFunc(aliases, func(alias string) bool { _, ok := t.names[alias]; return ok })
}

// idle says whether the client asks for nothing of the type.
func (t *deltaType) idle() bool { return !t.all && len(t.names) == 0 }

// restate returns the first request of the type for an upstream: what the client asks for and has.
// What it has not answered yet it may have or not.
func (t *deltaType) restate() *discoveryv3.DeltaDiscoveryRequest {
	t.told = true
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.url, ResourceNamesSubscribe: slices.Sorted(maps.Keys(t.names))}
	if _, explicit := t.names[wildcard]; t.all && len(t.names) > 0 && !explicit {
		out.ResourceNamesSubscribe = append([]string{wildcard}, out.ResourceNamesSubscribe...)
	}
	versions := make(map[string]string, len(t.has))
	for name, h := range t.has {
		if versions[name] = h.version; h.body == nil && t.url != resource.SecretType {
			versions[name] = unknownVersion // so that its body comes again
		}
	}
	for _, response := range t.flight {
		for _, one := range response.GetResources() {
			if t.wants(one.GetName(), one.GetAliases()) {
				versions[one.GetName()] = unknownVersion
			}
		}
		for _, name := range response.GetRemovedResources() {
			if t.wants(name, nil) {
				versions[name] = unknownVersion
			}
		}
	}
	if len(versions) > 0 {
		out.InitialResourceVersions = versions
	}
	return out
}

func (b *deltaBook) state() []*discoveryv3.DeltaDiscoveryResponse {
	var out []*discoveryv3.DeltaDiscoveryResponse
	for _, t := range b.order {
		if t.url == resource.SecretType {
			continue
		}
		response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.url}
		for _, name := range slices.Sorted(maps.Keys(t.has)) {
			if body := t.has[name].body; body != nil {
				response.Resources = append(response.Resources, body)
			}
		}
		out = append(out, response)
	}
	return out
}
