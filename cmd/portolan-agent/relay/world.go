package relay

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// worldBook is the book of a client that speaks the state-of-the-world variant.
type worldBook struct {
	ledger[worldType]
	followed map[string]string // the types that are the agent's, not the client's
}

// newWorldBook returns the book of a client; kept is what was last known of it, by type.
func newWorldBook(kept map[string]*discoveryv3.DeltaDiscoveryResponse, followed map[string]string) *worldBook {
	return &worldBook{newLedger[worldType](kept), followed}
}

// worldType is the bookkeeping of one type.
type worldType struct {
	url   string
	names []string // as the client last asked
	named bool     // it has asked by name
	// version is what the client has, and resources are its bodies. Bodies are unknown where a
	// client has stated a version of which nothing is kept.
	version   string
	resources []*discoveryv3.Resource
	bodies    bool
	flight    map[string]*discoveryv3.DiscoveryResponse // by the nonce that the client knows
	// told are the names that the upstream was last asked for; asked and answered say whether it
	// was asked, and has sent a response.
	told            []string
	asked, answered bool
}

func (b *worldBook) settled() bool {
	return slices.ContainsFunc(b.order, func(t *worldType) bool { return t.version != "" && b.followed[t.url] == "" })
}

func (b *worldBook) attach() []*discoveryv3.DiscoveryRequest { return attachTo(&b.ledger, b.restate) }

func (b *worldBook) detach() {
	b.attached = false
	for _, t := range b.order {
		t.asked, t.answered = false, false
	}
}

func (b *worldBook) greet(r *discoveryv3.DiscoveryRequest) *discoveryv3.DiscoveryRequest {
	if !b.greeted {
		r.Node, b.greeted = b.client, true
	}
	return r
}

// restate returns the first request of a type for the upstream; false if the client asks for
// nothing of it, since a first request without names would ask for all.
func (b *worldBook) restate(t *worldType) (*discoveryv3.DiscoveryRequest, bool) {
	if t.idle() {
		return nil, false
	}
	return b.greet(t.restate()), true
}

func (b *worldBook) fromClient(r *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryRequest, bool) {
	if b.client == nil {
		b.client = r.GetNode()
	}
	t, known := b.types[r.GetTypeUrl()]
	if !known {
		t = b.begin(r)
	}
	t.names = r.GetResourceNames()
	t.named = t.named || len(t.names) > 0
	b.accepted(t, r)
	if !b.attached {
		return nil, false
	}
	if !t.asked {
		return b.restate(t)
	}
	nonce, current := b.current.unmark(r.GetResponseNonce())
	if current {
		t.told, r.ResponseNonce = t.names, nonce
		return b.greet(r), true
	}
	// It answers an upstream that is gone. If this one has sent a response, the answer to that
	// names all that the client asks for.
	if t.answered || slices.Equal(t.told, t.names) {
		return nil, false
	}
	return b.restate(t)
}

func (b *worldBook) begin(r *discoveryv3.DiscoveryRequest) *worldType {
	t := &worldType{url: r.GetTypeUrl(), version: r.GetVersionInfo(), flight: map[string]*discoveryv3.DiscoveryResponse{}}
	if kept := b.kept[t.url]; kept != nil && t.version != "" && kept.GetSystemVersionInfo() == t.version {
		t.resources, t.bodies = kept.GetResources(), true
	}
	b.add(t.url, t)
	return t
}

// accepted takes an answer, if the request is one.
func (b *worldBook) accepted(t *worldType, r *discoveryv3.DiscoveryRequest) {
	response, ok := t.flight[r.GetResponseNonce()]
	if !ok {
		return
	}
	delete(t.flight, r.GetResponseNonce())
	if r.GetErrorDetail() != nil {
		return
	}
	t.version, t.resources, t.bodies = response.GetVersionInfo(), nil, true
	if t.url != resource.SecretType {
		for _, body := range response.GetResources() {
			t.resources = append(t.resources, &discoveryv3.Resource{Resource: body})
		}
	}
	b.changed++
}

func (b *worldBook) fromServer(r *discoveryv3.DiscoveryResponse) *discoveryv3.DiscoveryResponse {
	r.Nonce = b.current.mark(r.GetNonce())
	if t := b.types[r.GetTypeUrl()]; t != nil {
		t.flight[r.GetNonce()], t.answered = r, true
	}
	return r
}

// idle says whether the client asks for nothing of the type: it has given up all names.
func (t *worldType) idle() bool { return t.named && len(t.names) == 0 }

// restate returns the first request of the type for an upstream. Its version is empty if the
// client has not answered something yet, since it may have any version then.
func (t *worldType) restate() *discoveryv3.DiscoveryRequest {
	t.asked, t.told = true, t.names
	out := &discoveryv3.DiscoveryRequest{TypeUrl: t.url, ResourceNames: t.names}
	if len(t.flight) == 0 && (t.bodies || t.url == resource.SecretType) {
		out.VersionInfo = t.version
	}
	return out
}

func (b *worldBook) state() []*discoveryv3.DeltaDiscoveryResponse {
	var out []*discoveryv3.DeltaDiscoveryResponse
	for _, t := range b.order {
		if t.url != resource.SecretType && t.bodies {
			out = append(out, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.url, SystemVersionInfo: t.version, Resources: t.resources})
		}
	}
	return out
}
