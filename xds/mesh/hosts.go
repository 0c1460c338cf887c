package mesh

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// HostRow is all services of one name, one per namespace, in the order in which
// they were created.
type HostRow struct {
	Hostname host.Name
	Services []*ServiceRow
}

func (r *HostRow) equal(o *HostRow) bool {
	return r != nil && o != nil && slices.Equal(r.Services, o.Services)
}

// hostIndex has the services by host, and the hosts by what they share.
type hostIndex struct {
	hosts  pmap.Map[*HostRow]
	groups hostGroups
	claims claimIndex
	// reversed has the same rows by host read backwards: what ends alike is together.
	reversed pmap.Map[*HostRow]
}

// next follows changed services.
func (x hostIndex) next(from, to pmap.Map[*ServiceRow]) hostIndex {
	changed := map[host.Name][]pmap.Change[*ServiceRow]{}
	var order []host.Name
	for c := range pmap.Diff(from, to) {
		h, _ := splitServiceKey(c.Key)
		if changed[h] == nil {
			order = append(order, h)
		}
		changed[h] = append(changed[h], c)
	}
	for _, h := range order {
		old := x.hosts.Value(string(h))
		x = x.replace(h, old, old.with(h, changed[h]))
	}
	return x
}

// with returns the row after changes to the services of its host, nil where
// none is left.
func (r *HostRow) with(h host.Name, changes []pmap.Change[*ServiceRow]) *HostRow {
	var services []*ServiceRow
	if r != nil {
		services = slices.Clone(r.Services)
	}
	for _, c := range changes {
		services = slices.DeleteFunc(services, func(s *ServiceRow) bool { return s == c.Old })
		if c.HasNew {
			services = append(services, c.New)
		}
	}
	if len(services) == 0 {
		return nil
	}
	slices.SortFunc(services, compareServiceRows)
	row := &HostRow{Hostname: h, Services: services}
	if row.equal(r) {
		return r
	}
	return row
}

func (x hostIndex) replace(h host.Name, old, row *HostRow) hostIndex {
	if old == row {
		return x
	}
	if row == nil {
		x.hosts, x.reversed = x.hosts.Delete(string(h)), x.reversed.Delete(reverse(string(h)))
	} else {
		x.hosts, x.reversed = x.hosts.Set(string(h), row), x.reversed.Set(reverse(string(h)), row)
	}
	x.groups = x.groups.next(h, old, row)
	x.claims = x.claims.next(old, row)
	return x
}

// matching iterates over the hosts that a pattern (or the one name) covers.
func (x hostIndex) matching(pattern host.Name) iter.Seq[*HostRow] {
	return func(yield func(*HostRow) bool) {
		suffix, wild := strings.CutPrefix(string(pattern), "*")
		if !wild {
			if row, ok := x.hosts.Get(string(pattern)); ok {
				yield(row)
			}
			return
		}
		for _, row := range x.reversed.Prefix(reverse(suffix)) {
			if !yield(row) {
				return
			}
		}
	}
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func portKey(port int) string { return strconv.Itoa(port) }

// withMember sets or removes one member of a group, and the group with its last
// member.
func withMember[V comparable](groups pmap.Map[pmap.Map[V]], group, member string, value V, present bool) pmap.Map[pmap.Map[V]] {
	members := groups.Value(group)
	if present {
		members = members.Set(member, value)
	} else {
		members = members.Delete(member)
	}
	if members.Len() == 0 {
		return groups.Delete(group)
	}
	return groups.Set(group, members)
}
