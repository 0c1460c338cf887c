package clustersecret

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/seal"
)

// Set is what a Reader knows at one moment. It is never modified, and equal Sets have equal
// content. The zero Set is that of a server that reads no secrets of clusters.
type Set struct {
	secrets pmap.Map[*config.Config]
	faults  pmap.Map[string]
	unread  pmap.Map[bool]
	ring    *seal.Ring
}

// NewSet returns a Set without secrets, whose ring opens those that it will have.
func NewSet(ring *seal.Ring) Set { return Set{ring: ring} }

// With returns the Set with a secret at a key; nil removes the one that is there.
func (s Set) With(key string, object *config.Config) Set {
	switch {
	case object == nil:
		s.secrets = s.secrets.Delete(key)
	case s.secrets.Value(key) != object:
		s.secrets = s.secrets.Set(key, object)
	}
	return s
}

// WithFault returns the Set with another reason why a namespace is not read; empty is for none.
func (s Set) WithFault(namespace, reason string) Set {
	switch {
	case reason == "":
		s.faults = s.faults.Delete(namespace)
	case s.faults.Value(namespace) != reason:
		s.faults = s.faults.Set(namespace, reason)
	}
	return s
}

// WithUnread returns the Set of a Reader that lacks the secrets of a namespace since its start, or has
// them all.
func (s Set) WithUnread(namespace string, unread bool) Set {
	switch {
	case !unread:
		s.unread = s.unread.Delete(namespace)
	case !s.unread.Value(namespace):
		s.unread = s.unread.Set(namespace, true)
	}
	return s
}

// Secrets returns the secrets that proxies can use, by namespace and name as in shop/cert. Their
// specs are sealed.
func (s Set) Secrets() pmap.Map[*config.Config] { return s.secrets }

// Ring returns the keys that open the secrets; nil in the zero Set.
func (s Set) Ring() *seal.Ring { return s.ring }

// Unread has the namespaces whose secrets some cluster has not told since the start. A secret that is
// not in Secrets may exist there.
func (s Set) Unread() pmap.Map[bool] { return s.unread }

// Faults returns, by namespace, why its secrets are not read, with the names of the clusters.
func (s Set) Faults() pmap.Map[string] { return s.faults }
