package routing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Row holds the VirtualServices that name a host on a gateway, the oldest first. It is
// never modified; nil is empty.
type Row struct {
	VirtualServices []*VirtualService
}

// All returns the VirtualServices of the row.
func (r *Row) All() []*VirtualService {
	if r == nil {
		return nil
	}
	return r.VirtualServices
}

// Replace returns the row without old, and with curr if belongs is true. It is nil if no
// VirtualService is left.
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

// Compare orders VirtualServices that a namespace sees: first those private to it, then
// those exported to it, then public ones. In each group the oldest comes first.
func Compare(a, b *VirtualService, namespace string) int {
	return cmp.Or(cmp.Compare(a.precedence(namespace), b.precedence(namespace)), config.Compare(a.Config, b.Config))
}

// First returns the first VirtualService, in precedence, that the namespace sees and for
// which sees is true; nil for none.
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

// Visible is a row as a namespace sees it. It is comparable by ==. It has a byte for each
// VirtualService, 0 if it is not visible, else its precedence.
type Visible struct {
	row  *Row
	seen string
}

// SeenFrom returns the row as a namespace sees it, the zero Visible if it sees none.
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

// List returns the VirtualServices that the namespace sees, in precedence.
func (v Visible) List() []*VirtualService {
	if v.row == nil || strings.Count(v.seen, v.seen[:1]) == len(v.seen) {
		return v.row.All() // all have one precedence, the oldest first
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

// ListOf returns the list of some VirtualServices.
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

// Each calls do with each VirtualService of the list, in order.
func (l List) Each(do func(*VirtualService)) {
	for some := l.first != nil; some; l, some = l.rest.(List) {
		do(l.first)
	}
}

// All returns the VirtualServices of the list, in order.
func (l List) All() (out []*VirtualService) {
	l.Each(func(vs *VirtualService) { out = append(out, vs) })
	return out
}
