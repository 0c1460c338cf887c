package serve

import (
	"sync"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// keyFaults finds out why the keys of issuers cannot be fetched.
type keyFaults struct {
	root string
	keys *jwks.Fetcher

	mu   sync.Mutex // guards what follows
	last pmap.Map[string]
}

// faultsIn returns the issuers of a snapshot whose keys cannot be fetched, with the reason, by
// their paths. It also makes the fetcher fetch the keys of issuers that nobody has used yet.
func (k *keyFaults) faultsIn(snapshot *cache.Snapshot) pmap.Map[string] {
	if snapshot == nil {
		return pmap.Map[string]{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := pmap.Map[string]{}
	for object := range snapshot.List(schema.TokenIssuer, k.root) {
		spec, ok := object.Spec.(*access.TokenIssuer)
		if !ok {
			continue
		}
		source := oidc.SourceOf(spec)
		k.keys.Follow(source)
		if why := errlist.Cause(k.keys.Problem(source)); why != "" {
			next = next.Set(object.Key().Path(), why)
		}
	}
	if !pmap.Equal(k.last, next) {
		k.last = next
	}
	return k.last
}
