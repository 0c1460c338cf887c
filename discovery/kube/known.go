package kube

import (
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// known is all that a Registry knows besides its rows. It is a value: its maps are never modified,
// so changes of a copy do not show in the original.
type known struct {
	objects pmap.Map[lastknown.Item] // by object.path
	// built has the endpoints of slices, by the path of the slice without its kind.
	built pmap.Map[*part]
	// refs has a key for each use of an object by another: see the functions that make them.
	refs pmap.Map[struct{}]
	// workloads are those of other registries, by namespace and name. selected are those of them
	// that a Service selects, by the key of the Service and their name.
	workloads pmap.Map[*discovery.WorkloadInstance]
	selected  pmap.Map[pmap.Map[*discovery.WorkloadInstance]]
	// elsewhere has the Services that an earlier cluster has too. The workloads of other registries
	// are endpoints there.
	elsewhere pmap.Map[*bool]
	exportTo  *[]string // the mesh's default, nil before the first snapshot
	// tellsPods: the cluster tells of its pods. An endpoint whose pod is not known then waits for it.
	tellsPods bool
}

// part are the endpoints of a slice. again has each of them out of use, if the slice is of another
// family than the first of its Service: see known.endpoints. awaited are the pods, each once, whose
// endpoints are left out as they are not known yet.
type part struct {
	endpoints, again []*discovery.Endpoint
	awaited          []string
}

func (p *part) equal(o *part) bool {
	return p != nil && slices.EqualFunc(p.endpoints, o.endpoints, (*discovery.Endpoint).Equal) && (p.again == nil) == (o.again == nil) &&
		slices.Equal(p.awaited, o.awaited)
}

// awaits says whether an endpoint of a slice waits for its pod. (Istio: endpointSliceController.updateEndpointCacheForSlice,
// needResync.)
func (k *known) awaits(s *slice, e *endpoint) bool {
	return k.tellsPods && e.Pod != "" && k.objects.Value(podPrefix+serviceKey(s.Namespace, e.Pod)) == nil
}

// setTellsPods notes whether the cluster tells of its pods, and marks the slices with an endpoint whose pod
// is not known.
func (k *known) setTellsPods(tells bool, m *marks) {
	if k.tellsPods == tells {
		return
	}
	k.tellsPods = true
	for path, item := range k.objects.Prefix(slicePrefix) {
		s, _ := item.(*slice)
		if slices.ContainsFunc(s.Endpoints, func(e endpoint) bool { return k.awaits(s, &e) }) {
			m.slices[strings.TrimPrefix(path, slicePrefix)] = struct{}{}
		}
	}
	k.tellsPods = tells
}

// The keys of refs: the paths of slices by pod, by node, and by an address in their namespace of which
// they do not say the pod; the pods of a node, and the names of the pods at an address in a namespace.
func refOfPod(pod, slice string) string   { return "pod\x00" + pod + "\x00" + slice }
func refOfNode(node, slice string) string { return "node\x00" + node + "\x00" + slice }
func refOfAddress(namespace, address, slice string) string {
	return "ip\x00" + namespace + "\x00" + address + "\x00" + slice
}
func refOnNode(node, pod string) string { return "on\x00" + node + "\x00" + pod }
func refAt(namespace, address, pod string) string {
	return "at\x00" + namespace + "\x00" + address + "\x00" + pod
}

func cutKey(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

func (k *known) defaultExportTo() []string {
	if k.exportTo == nil {
		return nil
	}
	return *k.exportTo
}

// users yields the last part of the refs with a prefix.
func (k *known) users(prefix string) []string {
	var out []string
	for key := range k.refs.Prefix(prefix) {
		out = append(out, strings.TrimPrefix(key, prefix))
	}
	return out
}

// marks are what a change of known makes to be built anew.
type marks struct {
	slices   map[string]struct{} // paths of slices without their kind
	services map[string]struct{} // keys of Services
	pods     []podChange
}

// podChange is a pod as ServiceEntries may select it; nil for none.
type podChange struct{ before, after *discovery.WorkloadInstance }

func newMarks() marks {
	return marks{slices: map[string]struct{}{}, services: map[string]struct{}{}}
}

// set stores an object, nil to remove what is at the path, and marks what depends on it.
func (k *known) set(c converter, path string, curr object, m *marks) {
	before, _ := k.objects.Value(path).(object)
	if before == nil && curr == nil || before != nil && curr != nil && before.equal(curr) {
		return
	}
	kind, rest, _ := strings.Cut(path, "/")
	offered := func() *discovery.WorkloadInstance { return nil }
	if kind+"/" == podPrefix {
		offered = func() *discovery.WorkloadInstance { return k.offer(c, rest) }
	}
	was := offered()
	if curr == nil {
		k.objects = k.objects.Delete(path)
	} else {
		k.objects = k.objects.Set(path, curr)
	}
	switch kind + "/" {
	case servicePrefix:
		before, _ := before.(*service)
		curr, _ := curr.(*service)
		k.setService(rest, before, curr, m)
	case slicePrefix:
		before, _ := before.(*slice)
		curr, _ := curr.(*slice)
		k.setSlice(rest, before, curr)
		m.slices[rest] = struct{}{}
	case podPrefix:
		before, _ := before.(*pod)
		curr, _ := curr.(*pod)
		k.setPod(rest, before, curr, m)
		m.add(was, offered())
	case nodePrefix:
		k.setNode(c, rest, before, m)
	}
}

func (m *marks) add(before, after *discovery.WorkloadInstance) {
	if !before.Equal(after) {
		m.pods = append(m.pods, podChange{before, after})
	}
}

// offer returns a pod as ServiceEntries may select it, nil if they may not.
func (k *known) offer(c converter, key string) *discovery.WorkloadInstance {
	p, _ := k.objects.Value(podPrefix + key).(*pod)
	if p == nil || !p.Ready {
		return nil
	}
	return c.workload(p, k.locality(p.Node))
}

func (k *known) setService(key string, before, curr *service, m *marks) {
	m.services[key] = struct{}{}
	for path := range k.objects.Prefix(slicePrefix + key + "/") {
		if before == nil || curr == nil || before.Family != curr.Family || before.PublishNotReady != curr.PublishNotReady {
			m.slices[strings.TrimPrefix(path, slicePrefix)] = struct{}{}
		}
	}
	if before != nil && curr != nil && (before.Selector == nil) == (curr.Selector == nil) && before.Selector.Equal(curr.Selector) {
		return
	}
	k.selected = k.selected.Delete(key)
	if curr == nil || curr.Selector == nil {
		return
	}
	for _, w := range k.workloads.Prefix(curr.Namespace + "/") {
		if curr.Selector.SubsetOf(w.Endpoint.Labels) {
			k.selected = pmap.Put(k.selected, key, w.Name, w)
		}
	}
}

func (k *known) setSlice(path string, before, curr *slice) {
	refs := func(s *slice) map[string]struct{} {
		out := map[string]struct{}{}
		if s == nil {
			return out
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if e.Pod != "" {
				out[refOfPod(serviceKey(s.Namespace, e.Pod), path)] = struct{}{}
			} else {
				out[refOfAddress(s.Namespace, e.Address, path)] = struct{}{}
			}
			if e.Node != "" {
				out[refOfNode(e.Node, path)] = struct{}{}
			}
		}
		return out
	}
	old, now := refs(before), refs(curr)
	for ref := range old {
		if _, stays := now[ref]; !stays {
			k.refs = k.refs.Delete(ref)
		}
	}
	for ref := range now {
		if _, was := old[ref]; !was {
			k.refs = k.refs.Set(ref, struct{}{})
		}
	}
}

func (k *known) setPod(key string, before, curr *pod, m *marks) {
	k.markUsers(key, curr, m)
	if before != nil && (curr == nil || curr.Node != before.Node) {
		k.refs = k.refs.Delete(refOnNode(before.Node, key))
	}
	if curr != nil && (before == nil || curr.Node != before.Node) {
		k.refs = k.refs.Set(refOnNode(curr.Node, key), struct{}{})
	}
	if before != nil && curr != nil && before.Address == curr.Address && slices.Equal(before.Others, curr.Others) && before.HostNetwork == curr.HostNetwork {
		return
	}
	k.markUsers(key, before, m)
	for address := range before.addresses {
		k.refs = k.refs.Delete(refAt(before.Namespace, address, before.Name))
	}
	for address := range curr.addresses {
		k.refs = k.refs.Set(refAt(curr.Namespace, address, curr.Name), struct{}{})
	}
}

// markUsers marks the slices that name a pod, or have one of its addresses. It may be nil.
func (k *known) markUsers(key string, p *pod, m *marks) {
	for _, path := range k.users(refOfPod(key, "")) {
		m.slices[path] = struct{}{}
	}
	for address := range p.addresses {
		for _, path := range k.users(refOfAddress(p.Namespace, address, "")) {
			m.slices[path] = struct{}{}
		}
	}
}

// podAt returns the name of the one pod of a namespace at an address, empty if there is none or are
// several.
func (k *known) podAt(namespace, address string) string {
	if found := k.users(refAt(namespace, address, "")); len(found) == 1 {
		return found[0]
	}
	return ""
}

// setNode marks what is on a node. The node has its new locality already.
func (k *known) setNode(c converter, name string, before object, m *marks) {
	for _, path := range k.users(refOfNode(name, "")) {
		m.slices[path] = struct{}{}
	}
	old := ""
	if n, _ := before.(*node); n != nil {
		old = n.Locality
	}
	for _, key := range k.users(refOnNode(name, "")) {
		p, _ := k.objects.Value(podPrefix + key).(*pod)
		k.markUsers(key, p, m)
		if p != nil && p.Ready {
			m.add(c.workload(p, old), c.workload(p, k.locality(name)))
		}
	}
}

// build builds the marked slices, and marks their Services.
func (k *known) build(c converter, m *marks) {
	for path := range m.slices {
		before := k.built.Value(path)
		s, _ := k.objects.Value(slicePrefix + path).(*slice)
		if s == nil {
			k.built = k.built.Delete(path)
		} else if after := k.part(c, s); !before.equal(after) {
			k.built = k.built.Set(path, after)
		}
		if k.built.Value(path) != before {
			m.services[path[:strings.LastIndex(path, "/")]] = struct{}{}
		}
	}
	clear(m.slices)
}

// setWorkload stores a workload of another registry, nil to remove it, and marks the Services of
// its namespace that select it.
func (k *known) setWorkload(namespace, name string, curr *discovery.WorkloadInstance, m *marks) {
	key := serviceKey(namespace, name)
	before := k.workloads.Value(key)
	if before.Equal(curr) {
		return
	}
	if curr == nil {
		k.workloads = k.workloads.Delete(key)
	} else {
		k.workloads = k.workloads.Set(key, curr)
	}
	selects := func(s *service, w *discovery.WorkloadInstance) bool {
		return w != nil && s.Selector != nil && s.Selector.SubsetOf(labels.Instance(w.Endpoint.Labels))
	}
	for path, item := range k.objects.Prefix(servicePrefix + namespace + "/") {
		s, of := item.(*service), strings.TrimPrefix(path, servicePrefix)
		had, has := selects(s, before), selects(s, curr)
		switch {
		case has:
			k.selected = pmap.Put(k.selected, of, name, curr)
		case had:
			k.selected = pmap.Remove(k.selected, of, name)
		default:
			continue
		}
		m.services[of] = struct{}{}
	}
}
