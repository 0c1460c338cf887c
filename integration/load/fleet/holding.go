package fleet

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/integration/load/raw"
)

// holding is what a proxy has of a type, as far as it matters: the names that it requests
// because of it and, if it states what it has, the versions. Proxies with the same share a
// holding. It is never modified.
type holding struct {
	children map[string][]string // by the name of a resource; only of those with children
	wanted   map[string]int      // each of them, and by how many
	versions map[string]string   // by the name of the resource; nil where they are not stated

	sorting sync.Once
	names   []string // see all

	stating sync.Once
	fields  []byte // see stated
}

var nothing = &holding{}

// all returns all wanted names, in order. A request in state of the world has them.
func (h *holding) all() []string {
	h.sorting.Do(func() { h.names = slices.Sorted(maps.Keys(h.wanted)) })
	return h.names
}

// stated returns the versions as entries of a delta request's field with a number.
func (h *holding) stated(number protowire.Number) []byte {
	h.stating.Do(func() {
		for name, version := range h.versions {
			entry := raw.AppendText(raw.AppendText(nil, 1, name), 2, version)
			h.fields = protowire.AppendBytes(protowire.AppendTag(h.fields, number, protowire.BytesType), entry)
		}
	})
	return h.fields
}

// lacks returns how many wanted names another holding does not have.
func (h *holding) lacks(has *holding) int {
	n := 0
	for name := range h.wanted {
		if _, there := has.versions[name]; !there {
			n++
		}
	}
	return n
}

// step is the effect of a response.
type step struct {
	to          *holding
	more, fewer []string // names newly wanted, and no longer wanted
}

// steps keeps recent steps, since many proxies take the same.
type steps struct {
	seed     maphash.Seed
	versions bool // whether holdings have versions

	mu    sync.Mutex // guards the fields below
	made  map[stepKey]step
	known map[uint64]*holding // by a hash of what they have
}

func newSteps(versions bool) *steps {
	return &steps{seed: maphash.MakeSeed(), versions: versions, known: map[uint64]*holding{}}
}

type stepKey struct {
	from  *holding
	by    *digest
	whole bool
}

// keptSteps and keptHoldings limit how many are kept.
const keptSteps, keptHoldings = 1024, 64

// take returns the step from a holding by a response. whole means that names missing in the
// response are gone.
func (s *steps) take(from *holding, by *digest, whole bool) step {
	key := stepKey{from, by, whole}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.made[key]; ok {
		return known
	}
	made := from.next(by, whole)
	if s.versions {
		made.to.versions = from.nextVersions(by)
	}
	made.to = s.shared(made.to)
	if len(s.made) >= keptSteps || s.made == nil {
		s.made = map[stepKey]step{}
	}
	s.made[key] = made
	return made
}

// shared returns the kept holding with the same content, if there is one.
func (s *steps) shared(h *holding) *holding {
	var sum uint64
	for name, children := range h.children {
		sum += maphash.String(s.seed, name)
		for _, child := range children {
			sum += maphash.String(s.seed, name+"/"+child)
		}
	}
	for name, version := range h.versions {
		sum += maphash.String(s.seed, name+"="+version)
	}
	if known := s.known[sum]; known != nil && len(known.children) == len(h.children) && len(known.versions) == len(h.versions) {
		return known
	}
	if len(s.known) >= keptHoldings {
		clear(s.known)
	}
	s.known[sum] = h
	return h
}

func (h *holding) next(by *digest, whole bool) step {
	to := &holding{}
	if whole || len(h.children) == 0 {
		to.children = make(map[string][]string, len(by.names))
	} else {
		to.children = maps.Clone(h.children)
	}
	for i, name := range by.names {
		if i < len(by.children) && len(by.children[i]) > 0 {
			to.children[name] = by.children[i]
		} else {
			delete(to.children, name)
		}
	}
	for _, name := range by.removed {
		delete(to.children, name)
	}
	to.wanted = make(map[string]int, len(to.children))
	for _, children := range to.children {
		for _, child := range children {
			to.wanted[child]++
		}
	}
	return step{to, missing(to.wanted, h.wanted), missing(h.wanted, to.wanted)}
}

func (h *holding) nextVersions(by *digest) map[string]string {
	out := maps.Clone(h.versions)
	if out == nil {
		out = make(map[string]string, len(by.names))
	}
	for i, name := range by.names {
		out[name] = by.versions[i]
	}
	for _, name := range by.removed {
		delete(out, name)
	}
	return out
}

// missing returns, in order, the names that are in of but not in in.
func missing(of, in map[string]int) []string {
	var out []string
	for name := range of {
		if in[name] == 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
