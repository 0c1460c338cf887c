package consul

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// catalog holds what is known of all datacentres, by service. Methods that change it return
// the services whose instances changed.
type catalog struct {
	mu       sync.Mutex // guards all below
	views    map[string]*view
	services map[string]map[reference]*instance
}

// reference names an instance, whose id is unique in its datacentre.
type reference struct{ datacenter, id string }

// view is the part of the catalog for one datacentre.
type view struct {
	parts map[string]*part // by service
	// listed holds the services of the last list, nil before the first. doubted is true if
	// that list does not prove that a missing service is gone.
	listed   map[string]bool
	doubtful bool
	index    uint64 // the index of that list
	// unread holds the listed services that were never read. Once it is empty, the view is
	// whole for ever.
	unread map[string]bool
	whole  bool
	// settled is true once the datacentre is served: it is whole, or the wait for it is over.
	settled bool
	// held is true while instances are kept that Consul lost with its data.
	held bool
	// nodes holds the instances of all answers, by node and id. sick holds those with a check
	// that does not pass, by id.
	nodes map[string]map[string]*instance
	sick  map[string]*instance
	// known holds all instances by service and id, the kept ones too.
	known  pmap.Map[lastknown.Item]
	counts map[string]int // number of instances by service
}

// part is one service of a datacentre.
type part struct {
	read   bool
	answer map[string]*instance
	// kept holds instances that are served although the answer lacks them.
	kept map[string]*instance
	// filtered is true if ACLs hid something from the last trusted answer. doubtful is true if
	// a later answer does not prove that a missing instance is gone.
	filtered, doubtful bool
	index              uint64 // the index of the answer
}

// answer is Consul's answer for a service.
type answer struct {
	instances map[string]*instance
	// filtered is true if ACLs hid something.
	filtered bool
	index    uint64
}

func newCatalog() *catalog {
	return &catalog{views: map[string]*view{}, services: map[string]map[reference]*instance{}}
}

func (c *catalog) view(datacenter string) *view {
	v := c.views[datacenter]
	if v == nil {
		v = &view{parts: map[string]*part{}, nodes: map[string]map[string]*instance{}, sick: map[string]*instance{}, counts: map[string]int{}}
		c.views[datacenter] = v
	}
	return v
}

// restore fills a datacentre with its last known instances.
func (c *catalog) restore(datacenter string, instances []*instance) (changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, out := c.view(datacenter), changes{}
	for _, i := range instances {
		p := v.parts[i.service]
		if p == nil {
			p = &part{kept: map[string]*instance{}}
			v.parts[i.service] = p
		}
		p.kept[i.id] = i
	}
	for name, p := range v.parts {
		c.replace(datacenter, name, nil, p.kept, out)
	}
	return out.list()
}

// setList takes a list of services, and returns the services to read. It removes an unlisted
// service, unless the list is doubtful or older than the answer for the service, the answer is
// doubtful, or instances are kept since Consul lost its data.
func (c *catalog) setList(datacenter string, l list) (wanted map[string]bool, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	v.listed, v.doubtful, v.index = setOf(l.names), l.doubtful, l.index
	if !v.whole {
		v.unread = maps.Clone(v.listed)
		maps.DeleteFunc(v.unread, func(name string, _ bool) bool { return v.parts[name] != nil && v.parts[name].read })
		v.complete()
	}
	return c.trim(datacenter, v)
}

// recheckList repeats setList with the last list; it returns nil before the first.
func (c *catalog) recheckList(datacenter string) (wanted map[string]bool, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	if v.listed == nil {
		return nil, nil
	}
	return c.trim(datacenter, v)
}

// trim removes the unlisted services of a view, with the exceptions of setList.
func (c *catalog) trim(datacenter string, v *view) (wanted map[string]bool, changed []string) {
	wanted = maps.Clone(v.listed)
	gone := changes{}
	for name, p := range v.parts {
		switch {
		case v.listed[name]:
		case v.doubtful, p.doubtful, v.held && len(p.kept) > 0, len(p.answer) > 0 && p.index > v.index: // the answer is newer than the list
			wanted[name] = true
		default:
			c.replace(datacenter, name, p.all(), nil, gone)
			v.updateNodes(p.answer, nil)
			delete(v.parts, name)
		}
	}
	return wanted, gone.list()
}

// wouldWithdraw says whether taking an answer would remove an instance that only the answer before
// had.
func (c *catalog) wouldWithdraw(datacenter, name string, a answer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.view(datacenter).parts[name]
	return p != nil && len(without(p.answer, a.instances)) > 0
}

// unlisted is true if the service is not listed, and so may be gone now.
func (c *catalog) setAnswer(datacenter, name string, a answer) (changed []string, unlisted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	p := v.parts[name]
	if p == nil {
		p = &part{filtered: a.filtered}
		v.parts[name] = p
	}
	before := p.all()
	for id, i := range a.instances {
		if o := before[id]; o != nil && o.equal(i) {
			a.instances[id] = o
		}
	}
	was := p.doubtful
	p.doubtful = a.filtered && len(before) > 0 && (!p.filtered || len(a.instances) == 0)
	switch {
	case p.doubtful:
		p.kept = without(before, a.instances)
	case !was && v.held:
		p.filtered, p.kept = a.filtered, without(p.kept, a.instances)
	default:
		p.filtered, p.kept = a.filtered, nil
	}
	v.updateNodes(p.answer, a.instances)
	p.answer, p.index, p.read = a.instances, a.index, true
	out := changes{}
	c.replace(datacenter, name, before, p.all(), out)
	delete(v.unread, name)
	v.complete()
	return out.list(), !v.listed[name]
}

// complete marks a view as whole if every listed service was read.
func (v *view) complete() {
	if v.listed != nil && len(v.unread) == 0 {
		v.whole, v.settled = true, true
	}
}

// markServed marks a datacentre as served although it is not whole. It returns false if the
// datacentre was served already.
func (c *catalog) markServed(datacenter string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	was := v.settled
	v.settled = true
	return !was
}

// reset handles a loss of Consul's data. It keeps all known instances until an answer has
// them, or expire is called.
func (c *catalog) reset(datacenter string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	v.held = true
	clear(v.nodes)
	clear(v.sick)
	for _, p := range v.parts {
		p.kept, p.answer, p.doubtful, p.index = p.all(), nil, false, 0
	}
}

// withdrawKept withdraws what was kept since reset.
func (c *catalog) withdrawKept(datacenter string) (wanted map[string]bool, changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, out := c.view(datacenter), changes{}
	v.held = false
	for name, p := range v.parts {
		if !p.doubtful {
			before := p.all()
			p.kept = nil
			c.replace(datacenter, name, before, p.answer, out)
		}
	}
	if v.listed == nil {
		return nil, out.list()
	}
	wanted, gone := c.trim(datacenter, v)
	return wanted, append(out.list(), gone...)
}

// replace updates the services after one part has changed from before to after.
func (c *catalog) replace(datacenter, service string, before, after map[string]*instance, out changes) {
	v := c.view(datacenter)
	for id := range before {
		if after[id] == nil {
			delete(c.services[service], reference{datacenter, id})
			v.known = v.known.Delete(service + "/" + id)
			out[service] = true
		}
	}
	for id, i := range after {
		if before[id] == i {
			continue
		}
		if c.services[service] == nil {
			c.services[service] = map[reference]*instance{}
		}
		c.services[service][reference{datacenter, id}] = i
		v.known = v.known.Set(service+"/"+id, i)
		out[service] = true
	}
	if v.counts[service] = len(after); len(after) == 0 {
		delete(v.counts, service)
	}
	if len(c.services[service]) == 0 {
		delete(c.services, service)
	}
}

// updateNodes updates nodes and sick after an answer has changed from before to after.
func (v *view) updateNodes(before, after map[string]*instance) {
	for id, i := range before {
		if of := v.nodes[i.node]; of[id] == i && after[id] != i {
			delete(v.sick, id)
			if delete(of, id); len(of) == 0 {
				delete(v.nodes, i.node)
			}
		}
	}
	for id, i := range after {
		if v.nodes[i.node] == nil {
			v.nodes[i.node] = map[string]*instance{}
		}
		v.nodes[i.node][id] = i
		if len(i.failing) > 0 {
			v.sick[id] = i
		} else {
			delete(v.sick, id)
		}
	}
}

// recovered returns the services that were read with a check in a state, if the newer list of
// checks in that state lacks the check or has a changed one.
func (c *catalog) recovered(datacenter, status string, checks map[checkKey]check) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := changes{}
	for _, i := range c.view(datacenter).sick {
		for _, f := range i.failing {
			if f.status == status && checks[f.key].ModifyIndex != f.modified {
				out[i.service] = true
			}
		}
	}
	return out.list()
}

func (c *catalog) servicesOnNode(datacenter, node string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := changes{}
	for _, i := range c.view(datacenter).nodes[node] {
		out[i.service] = true
	}
	return out.list()
}

// outdated returns the services whose instances on a node differ from the instances read.
func (c *catalog) outdated(datacenter, node string, instances []onNode) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, out, seen := c.view(datacenter), changes{}, make(map[string]bool, len(instances))
	for _, n := range instances {
		id := node + "/" + n.ID
		service := strings.ToLower(n.Service)
		if i := v.nodes[node][id]; i != nil && i.service == service && i.modified == n.ModifyIndex {
			seen[id] = true
			continue
		}
		out[service] = true
	}
	for id, i := range v.nodes[node] {
		if !seen[id] {
			out[i.service] = true
		}
	}
	return out.list()
}

// doubtful returns the services whose last answer is doubtful.
func (c *catalog) doubtful(datacenter string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := changes{}
	for name, p := range c.view(datacenter).parts {
		if p.doubtful {
			out[name] = true
		}
	}
	return out.list()
}

// names returns the services that are listed or have instances.
func (c *catalog) names(datacenter string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	out := setOf(slices.Collect(maps.Keys(v.parts)))
	maps.Copy(out, v.listed)
	return slices.Sorted(maps.Keys(out))
}

// isKnown says whether a service is listed or has instances.
func (c *catalog) isKnown(datacenter, service string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	return v.parts[service] != nil || v.listed[service]
}

// instances returns the instances of a service in all datacentres, in order.
func (c *catalog) instances(service string) []*instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.services[service]
	out := make([]*instance, 0, len(of))
	for _, r := range inOrder(of) {
		out = append(out, of[r])
	}
	return out
}

func inOrder(of map[reference]*instance) []reference {
	return slices.SortedFunc(maps.Keys(of), func(a, b reference) int {
		return strings.Compare(a.datacenter+"\x00"+a.id, b.datacenter+"\x00"+b.id)
	})
}

// areSettled says whether datacentres are served.
func (c *catalog) areSettled(datacenters []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(datacenters, func(name string) bool { return !c.view(name).settled })
}

// isWhole says whether every service of a datacentre was read at least once.
func (c *catalog) isWhole(datacenter string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view(datacenter).whole
}

// size returns the number of services in a datacentre.
func (c *catalog) size(datacenter string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.view(datacenter).counts)
}

// sizes returns the number of instances in a datacentre and how many of them are kept, and
// whether any answer is doubtful.
func (c *catalog) sizes(datacenter string) (instances, kept int, doubtful bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	for _, p := range v.parts {
		kept += len(p.kept)
		doubtful = doubtful || p.doubtful
	}
	return v.known.Len(), kept, doubtful
}

// confirmed returns all instances of a datacentre, and the index of its list. It returns false
// unless Consul's own answers contain all of it.
func (c *catalog) confirmed(datacenter string) (known pmap.Map[lastknown.Item], index uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view(datacenter)
	if !v.whole || v.held || v.doubtful {
		return known, 0, false
	}
	for _, p := range v.parts {
		if p.doubtful || len(p.kept) > 0 {
			return known, 0, false
		}
	}
	return v.known, v.index, true
}

// each calls f for every service, with its instances in order. f must not call the catalog.
func (c *catalog) each(f func(service string, instances []*instance, datacenters []string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		of := c.services[name]
		var instances []*instance
		var datacenters []string
		for _, r := range inOrder(of) {
			instances = append(instances, of[r])
			datacenters = append(datacenters, r.datacenter)
		}
		f(name, instances, datacenters)
	}
}

// all returns the instances of a part, the kept ones too.
func (p *part) all() map[string]*instance {
	if len(p.kept) == 0 {
		return p.answer
	}
	out := maps.Clone(p.kept)
	maps.Copy(out, p.answer)
	return out
}

// without returns the entries of one that other lacks.
func without(one, other map[string]*instance) map[string]*instance {
	out := map[string]*instance{}
	for id, i := range one {
		if other[id] == nil {
			out[id] = i
		}
	}
	return out
}

// changes is the set of services that changed.
type changes map[string]bool

func (c changes) list() []string { return slices.Sorted(maps.Keys(c)) }

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}
