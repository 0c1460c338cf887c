package mesh

import (
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Origins are the objects that recorded answers tell of, each once, in the order of
// their paths: what a resource was made of.
func Origins(reads []Recorded) []config.Key {
	var out []config.Key
	for _, r := range reads {
		out = append(out, originsOf(r.Answer)...)
	}
	slices.SortFunc(out, func(a, b config.Key) int { return strings.Compare(a.Path(), b.Path()) })
	return slices.Compact(out)
}

func originsOf(answer any) []config.Key {
	switch a := answer.(type) {
	case *ServiceRow:
		return a.origins()
	case *Gateway:
		if a != nil {
			return []config.Key{a.Config.Key()}
		}
	case *Sidecar:
		if a != nil {
			return []config.Key{a.Config.Key()}
		}
	case *VirtualService:
		if a != nil {
			return []config.Key{a.Config.Key()}
		}
	case *Rule:
		if a != nil {
			return keysOf(a.Configs)
		}
	}
	return nil
}

// origins are the ServiceEntries of the services; what comes from another registry
// has none.
func (r *ServiceRow) origins() (out []config.Key) {
	if r == nil {
		return nil
	}
	for _, s := range r.Services {
		if a := s.Attributes; a.Provider == discovery.External {
			out = append(out, serviceEntry(a.Namespace, a.Name))
		}
	}
	return out
}

func keysOf(objects []*config.Config) []config.Key {
	out := make([]config.Key, len(objects))
	for i, o := range objects {
		out[i] = o.Key()
	}
	return out
}
