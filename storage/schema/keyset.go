package schema

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
)

// keySet is a kind that the leader writes.
func keySet() *Schema {
	s := definition[*keyset.Fetched]{
		kind: KeySet, plural: "keysets",
		codec:  config.JSON[keyset.Fetched](),
		served: serve("url", "discover", "keys", "since", "error"),
		check:  checkKeySet,
	}.schema()
	s.Internal = true
	return s
}

func checkKeySet(c checker, f *keyset.Fetched) {
	if name := f.Name(); c.report.object.Name != name {
		c.report.at("metadata").at("name").fail("must be %s for this source: the leading server writes this object", name)
	}
	if f.Keys != "" {
		c.at("keys").inlineKeys(f.Keys)
	}
}

// WrittenByServers says whether objects of a kind are written by servers alone.
func WrittenByServers(kind config.GroupVersionKind) bool { return kind == PeerPhase || kind == KeySet }
