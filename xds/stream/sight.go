package stream

import (
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// sight remembers what kinds of changes were found among what is due, for as long as
// that follows from the same: it is asked again and again between two changes.
type sight struct {
	basis basis
	found [kinds]finding
}

// basis is all that what is due follows from.
type basis struct {
	started, wildcard      bool
	told, offered, refused resource.Set
	names, asked           nameset.Set
	scoped                 int
}

// kind is of the changes that are due.
type kind int

const (
	due     kind = iota // whatever it is
	added               // a resource to be sent
	removed             // a name to be given up
	kinds
)

func (k kind) has(c change) bool { return k == due || c.HasNew == (k == added) }

type finding int

const (
	unlooked finding = iota
	none
	some
)

// sees says whether a change of a kind is due.
func (s *Session) sees(k kind) bool {
	now := basis{s.started, s.wildcard, s.told(), s.offered, s.refused, s.names, s.asked, s.scoped}
	if now.told == now.offered {
		s.sight, s.latest = sight{}, latest{} // which hold on to what was
		return false
	}
	if s.sight.basis != now {
		s.sight = sight{basis: now}
	}
	found := &s.sight.found
	if found[k] == unlooked && found[due] != none {
		found[k] = none
		for c := range s.due() {
			if k.has(c) {
				found[k] = some
				break
			}
		}
	}
	return found[k] == some
}
