package serve

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage/access"
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
	next, there := k.last, map[string]bool{}
	for object := range snapshot.List(schema.TokenIssuer, k.root) {
		spec, ok := object.Spec.(*access.TokenIssuer)
		if !ok {
			continue
		}
		source, path := oidc.SourceOf(spec), object.Key().Path()
		k.keys.Follow(source)
		there[path] = true
		switch why := causeOf(k.keys.Problem(source)); {
		case why == next.Value(path):
		case why == "":
			next = next.Delete(path)
		default:
			next = next.Set(path, why)
		}
	}
	for path := range k.last.Keys() {
		if !there[path] {
			next = next.Delete(path)
		}
	}
	k.last = next
	return next
}

// causeOf returns the text of an error on one line, without the local port, which differs each
// time.
func causeOf(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Source != nil && op.Addr != nil {
		text = strings.ReplaceAll(text, fmt.Sprintf("%s->%s", op.Source, op.Addr), op.Addr.String())
	}
	return strings.Join(strings.Fields(text), " ")
}
