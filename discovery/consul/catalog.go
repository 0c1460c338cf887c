package consul

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// catalog is what is known of all datacentres. A datacentre is known in parts,
// each of which is what one query answers: the instances of a service, or those
// on a node. Its methods return the services that differ.
type catalog struct {
	mu       sync.Mutex // guards all below
	views    map[string]*view
	services map[string]map[reference]*instance
}

// reference names an instance: its id is unique within its datacentre.
type reference struct{ datacenter, id string }

// view is one datacentre.
type view struct {
	parts map[string]*part
	// next are the parts of a new plan, of which wanted have to be there before
	// they replace parts; nil while there is none.
	next   map[string]*part
	wanted map[string]bool
	// listed are the parts of the last list of the plan, nil before the first;
	// keep says that it is not believed in what it lacks.
	listed map[string]bool
	keep   bool
	index  uint64 // of that list
	// whole is true once there were all parts of a plan.
	whole bool
	// counts are the instances by service.
	counts map[string]int
}

// part is what one query answers.
type part struct {
	answer map[string]*instance
	// kept are instances that the answer lacks and that are not gone for that.
	kept map[string]*instance
	// filtered says that the last answer that is believed had something hidden
	// by ACLs; doubtful that a later one is not believed in what it lacks.
	filtered, doubtful bool
	index              uint64 // of the answer
}

// answer is what a query has answered.
type answer struct {
	instances map[string]*instance
	// filtered says that something was hidden by ACLs.
	filtered bool
	// strict says that it is of a service that is listed: that has instances, so
	// that none are seen only where they are hidden.
	strict bool
	index  uint64
}

// keptPart has what is kept of the parts of an earlier plan. No query is called
// so.
const keptPart = ""

func newCatalog() *catalog {
	return &catalog{views: map[string]*view{}, services: map[string]map[reference]*instance{}}
}

func (c *catalog) view(datacenter string) *view {
	v := c.views[datacenter]
	if v == nil {
		v = &view{parts: map[string]*part{}, counts: map[string]int{}}
		c.views[datacenter] = v
	}
	return v
}

// begin starts a plan with other parts. What is known stays until it is whole.
func (c *catalog) begin(datacenter string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	v.next, v.wanted, v.listed, v.keep, v.index = map[string]*part{}, nil, nil, false, 0
}

// want says which parts there are. Those that are gone go, unless something in
// them is kept, or the list is doubtful. It returns the parts that are to be
// asked for.
func (c *catalog) want(datacenter string, l list) (wanted map[string]bool, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	v.listed, v.keep, v.index = setOf(l.names), l.doubtful, l.index
	if v.next != nil {
		v.wanted = maps.Clone(v.listed)
		maps.DeleteFunc(v.next, func(name string, _ *part) bool { return !v.wanted[name] })
		changed = c.complete(datacenter, v)
		return maps.Clone(v.wanted), changed
	}
	return c.trim(datacenter, v)
}

// again is want with the list there was; nil before the first.
func (c *catalog) again(datacenter string) (wanted map[string]bool, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	if v.next != nil || v.listed == nil {
		return maps.Clone(v.listed), nil
	}
	return c.trim(datacenter, v)
}

// trim drops the parts of a view that are not listed, as want says.
func (c *catalog) trim(datacenter string, v *view) (wanted map[string]bool, changed []string) {
	wanted = maps.Clone(v.listed)
	gone := changes{}
	for name, p := range v.parts {
		switch {
		case v.listed[name] || name == keptPart:
		case v.keep, len(p.kept) > 0, len(p.answer) > 0 && p.index > v.index: // the list is older than it
			wanted[name] = true
		default:
			c.replace(datacenter, p.all(), nil, gone)
			delete(v.parts, name)
		}
	}
	return wanted, gone.list()
}

// take takes the answer of a part. It returns whether the part is not listed,
// and so may be gone now.
func (c *catalog) take(datacenter, name string, a answer) (changed []string, unlisted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	if v.next != nil {
		v.next[name] = &part{answer: a.instances, filtered: a.filtered, index: a.index}
		return c.complete(datacenter, v), false
	}
	p := v.parts[name]
	if p == nil {
		p = &part{filtered: a.filtered}
		v.parts[name] = p
	}
	if kept := v.parts[keptPart]; kept != nil {
		kept.kept = without(kept.kept, a.instances)
	}
	before := p.all()
	was := p.doubtful
	p.doubtful = a.filtered && len(before) > 0 && (!p.filtered || a.strict && len(a.instances) == 0)
	switch {
	case p.doubtful:
		p.kept = without(before, a.instances)
	case was:
		p.filtered, p.kept = a.filtered, nil
	default:
		p.filtered, p.kept = a.filtered, without(p.kept, a.instances)
	}
	p.answer, p.index = a.instances, a.index
	out := changes{}
	c.replace(datacenter, before, p.all(), out)
	return out.list(), !v.listed[name]
}

// complete replaces the parts of a view by those of its next plan, once all of
// these are there. What was kept and is in none of them is kept on.
func (c *catalog) complete(datacenter string, v *view) (changed []string) {
	if v.wanted == nil || len(v.next) < len(v.wanted) {
		return nil
	}
	before, after, kept := flatten(v.parts), flatten(v.next), map[string]*instance{}
	for _, p := range v.parts {
		maps.Copy(kept, without(p.kept, after))
	}
	if len(kept) > 0 {
		v.next[keptPart] = &part{kept: kept}
		maps.Copy(after, kept)
	}
	v.parts, v.next, v.wanted, v.whole = v.next, nil, nil, true
	out := changes{}
	c.replace(datacenter, before, after, out)
	return out.list()
}

// reset is called when Consul has lost its data: all that is known is kept until
// an answer has it, or expire is called.
func (c *catalog) reset(datacenter string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.view(datacenter).parts {
		p.kept, p.answer, p.doubtful, p.index = p.all(), nil, false, 0
	}
}

// expire withdraws what is kept since reset.
func (c *catalog) expire(datacenter string) (wanted map[string]bool, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, out := c.view(datacenter), changes{}
	for _, p := range v.parts {
		if !p.doubtful {
			before := p.all()
			p.kept = nil
			c.replace(datacenter, before, p.answer, out)
		}
	}
	delete(v.parts, keptPart)
	if v.next != nil || v.listed == nil {
		return maps.Clone(v.listed), out.list()
	}
	wanted, gone := c.trim(datacenter, v)
	return wanted, append(out.list(), gone...)
}

// replace brings the services up to date with what one part, or the whole view,
// was and is.
func (c *catalog) replace(datacenter string, before, after map[string]*instance, out changes) {
	for id, i := range before {
		if n := after[id]; n == nil || n.service != i.service {
			c.view(datacenter).count(i.service, -1)
			delete(c.services[i.service], reference{datacenter, id})
			if len(c.services[i.service]) == 0 {
				delete(c.services, i.service)
			}
			out[i.service] = true
		}
	}
	for id, i := range after {
		o := before[id]
		if o != nil && o.equal(i) {
			continue
		}
		if o == nil || o.service != i.service {
			c.view(datacenter).count(i.service, 1)
		}
		if c.services[i.service] == nil {
			c.services[i.service] = map[reference]*instance{}
		}
		c.services[i.service][reference{datacenter, id}] = i
		out[i.service] = true
	}
}

// instances are those of a service in all datacentres, in order.
func (c *catalog) instances(service string) []*instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return inOrder(c.services[service])
}

func inOrder(of map[reference]*instance) []*instance {
	references := slices.SortedFunc(maps.Keys(of), func(a, b reference) int {
		return strings.Compare(a.datacenter+"\x00"+a.id, b.datacenter+"\x00"+b.id)
	})
	out := make([]*instance, len(references))
	for n, r := range references {
		out[n] = of[r]
	}
	return out
}

// whole says whether datacentres were read as a whole, once.
func (c *catalog) whole(datacenters []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(datacenters, func(name string) bool { return !c.view(name).whole })
}

// isSettled says whether there is no plan under way.
func (c *catalog) isSettled(datacenter string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	return v.whole && v.next == nil
}

func (v *view) count(service string, by int) {
	if v.counts[service] += by; v.counts[service] == 0 {
		delete(v.counts, service)
	}
}

// size is the number of services of a datacentre.
func (c *catalog) size(datacenter string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.view(datacenter).counts)
}

// sizes are the instances of a datacentre and those that are kept, and whether
// an answer is doubted.
func (c *catalog) sizes(datacenter string) (instances, kept int, doubtful bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	for _, n := range v.counts {
		instances += n
	}
	for _, p := range v.parts {
		kept += len(p.kept)
		doubtful = doubtful || p.doubtful
	}
	return instances, kept, doubtful
}

// each calls f for every service, with its instances in order. It is not to
// call the catalog.
func (c *catalog) each(f func(service string, instances []*instance, datacenters []string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		of := c.services[name]
		instances := inOrder(of)
		var datacenters []string
		for _, r := range slices.SortedFunc(maps.Keys(of), func(a, b reference) int {
			return strings.Compare(a.datacenter+"\x00"+a.id, b.datacenter+"\x00"+b.id)
		}) {
			datacenters = append(datacenters, r.datacenter)
		}
		f(name, instances, datacenters)
	}
}

// all is what there is in a part, kept or not.
func (p *part) all() map[string]*instance {
	if len(p.kept) == 0 {
		return p.answer
	}
	out := maps.Clone(p.kept)
	maps.Copy(out, p.answer)
	return out
}

func flatten(parts map[string]*part) map[string]*instance {
	out := map[string]*instance{}
	for _, p := range parts {
		maps.Copy(out, p.all())
	}
	return out
}

// without is what is in one and not in the other.
func without(one, other map[string]*instance) map[string]*instance {
	out := map[string]*instance{}
	for id, i := range one {
		if other[id] == nil {
			out[id] = i
		}
	}
	return out
}

// changes are services that differ.
type changes map[string]bool

func (c changes) list() []string { return slices.Sorted(maps.Keys(c)) }

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}
