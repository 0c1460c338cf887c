package routing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Row is the VirtualServices that name a host on a gateway, the oldest first. It is never
// modified; nil is the row without any.
type Row struct {
	VirtualServices []*VirtualService
}

// All are the VirtualServices of the row.
func (r *Row) All() []*VirtualService {
	if r == nil {
		return nil
	}
	return r.VirtualServices
}

// Replace returns the row with curr, where it belongs, in the place of old; nil where
// none is left.
func (r *Row) Replace(old, curr *VirtualService, belongs bool) *Row {
	var list []*VirtualService
	if r != nil {
		list = slices.DeleteFunc(slices.Clone(r.VirtualServices), func(vs *VirtualService) bool { return vs == old })
	}
	if belongs {
		list = append(list, curr)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b *VirtualService) int { return config.Compare(a.Config, b.Config) })
	return &Row{VirtualServices: list}
}

// The precedence of VirtualServices, as a namespace sees them.
const (
	privateRoutes  = iota + 1 // of the namespace, and not public
	exportedRoutes            // of another namespace, which exports them to this one
	publicRoutes
)

// precedence ranks a VirtualService that the namespace sees. (Istio:
// VirtualServicesForGateway.)
func (vs *VirtualService) precedence(namespace string) byte {
	switch {
	case vs.ExportTo.Public():
		return publicRoutes
	case vs.Config.Namespace == namespace:
		return privateRoutes
	}
	return exportedRoutes
}

// Compare orders VirtualServices that a namespace sees: those private to it, those that
// others export to it, public ones; the oldest first in each.
func Compare(a, b *VirtualService, namespace string) int {
	return cmp.Or(cmp.Compare(a.precedence(namespace), b.precedence(namespace)), config.Compare(a.Config, b.Config))
}

// First is the one that comes first for a namespace of those of the row that it sees and
// that sees says yes to, nil for none.
func (r *Row) First(namespace string, sees func(*VirtualService) bool) *VirtualService {
	var first *VirtualService
	for _, vs := range r.All() {
		if !vs.ExportTo.VisibleTo(namespace) || !sees(vs) {
			continue
		}
		if first == nil || vs.precedence(namespace) < first.precedence(namespace) {
			first = vs
		}
	}
	return first
}

// Visible is a row and how a namespace sees it, as a comparable value: a byte for each
// VirtualService, 0 for unseen, else the precedence.
type Visible struct {
	row  *Row
	seen string
}

// SeenFrom is the row as a namespace sees it; the zero Visible where it sees none.
func (r *Row) SeenFrom(namespace string) Visible {
	seen := make([]byte, len(r.All()))
	some := false
	for i, vs := range r.All() {
		if vs.ExportTo.VisibleTo(namespace) {
			seen[i], some = vs.precedence(namespace), true
		}
	}
	if !some {
		return Visible{}
	}
	return Visible{r, string(seen)}
}

// Each calls do with the VirtualServices that the namespace sees, the oldest first.
func (v Visible) Each(do func(*VirtualService)) {
	for i, vs := range v.row.All() {
		if v.seen[i] != 0 {
			do(vs)
		}
	}
}

// List are the VirtualServices that the namespace sees, in precedence.
func (v Visible) List() []*VirtualService {
	if v.row == nil || strings.Count(v.seen, v.seen[:1]) == len(v.seen) {
		return v.row.All() // all in one place, the oldest first
	}
	var out []*VirtualService
	for p := byte(privateRoutes); p <= publicRoutes; p++ {
		for i, vs := range v.row.VirtualServices {
			if v.seen[i] == p {
				out = append(out, vs)
			}
		}
	}
	return out
}

// List is a list of VirtualServices, comparable by ==. The zero List is empty.
type List struct {
	first *VirtualService
	rest  any // a List, nil at the end
}

// ListOf is the list of some VirtualServices.
func ListOf(some []*VirtualService) List {
	out := List{}
	for _, vs := range slices.Backward(some) {
		if out.first == nil {
			out = List{first: vs}
		} else {
			out = List{vs, out}
		}
	}
	return out
}

// Each calls do with each of the list, in order.
func (l List) Each(do func(*VirtualService)) {
	for some := l.first != nil; some; l, some = l.rest.(List) {
		do(l.first)
	}
}

// All are those of the list, in order.
func (l List) All() (out []*VirtualService) {
	l.Each(func(vs *VirtualService) { out = append(out, vs) })
	return out
}
