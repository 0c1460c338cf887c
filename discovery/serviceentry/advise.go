package serviceentry

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The codes of advice.
const (
	codeHost     = "PTL0105"
	codeAddress  = "PTL0106"
	codePort     = "PTL0107"
	codeSelector = "PTL0108"
	codeNoPort   = "PTL0109"
	codeTaken    = "PTL0129"
	codeOdd      = "PTL0128"
	codeAlone    = "PTL0215"
)

// maxLooked bounds the ServiceEntries that advice reads for one host, port or address.
const maxLooked = 100

var _ discovery.Advisor = (*fork)(nil)

// Advise implements discovery.Advisor. It uses indexes to find what shares a host, an address,
// a port or a label with the object.
func (f *fork) Advise(key config.Key) []discovery.Advice {
	a := &advisor{known: &f.known}
	name := nameKey{key.Namespace, key.Name}
	switch {
	case key.Kind.Group != schema.ServiceEntry.Group:
	case key.Kind.Kind == schema.ServiceEntry.Kind:
		if e := f.known.catalog.entries.Value(name.path()); e != nil {
			a.hosts(e)
			a.addresses(e)
			a.ports(e)
			a.selector(e)
		}
	case key.Kind.Kind == schema.WorkloadEntry.Kind:
		if w := f.known.catalog.workload(name, f.convert.cluster); w != nil {
			a.workload(w)
		}
	}
	return a.found
}

// AdvisedAnew implements discovery.Advisor.
func (f *fork) AdvisedAnew(from discovery.Fork) iter.Seq[config.Key] {
	before, _ := from.(*fork)
	if before == nil {
		before = &fork{}
	}
	return func(yield func(config.Key) bool) {
		old, curr := &before.known.catalog, &f.known.catalog
		_ = inChanged(old.hosts, curr.hosts, yield) && inChanged(old.bare, curr.bare, yield) &&
			sharingAddress(old, curr, yield) && selectionsChanged(old, curr, yield) && workloadsChanged(old, curr, yield) && f.checksChanged(before, yield)
	}
}

// inChanged yields the entries of the sets that differ.
func inChanged(from, to pmap.Map[entrySet], yield func(config.Key) bool) bool {
	for c := range pmap.Diff(from, to) {
		for _, set := range []entrySet{c.Old, c.New} {
			if !eachKey(set.Values(), yield) {
				return false
			}
		}
	}
	return true
}

func eachKey(entries iter.Seq[*entry], yield func(config.Key) bool) bool {
	for e := range entries {
		if !yield(e.object.Key()) {
			return false
		}
	}
	return true
}

// sharingAddress yields the entries that share an address with a changed one.
func sharingAddress(from, to *catalog, yield func(config.Key) bool) bool {
	for c := range pmap.Diff(from.vips.ranges, to.vips.ranges) {
		for _, e := range []*entry{c.Old, c.New} {
			if e == nil {
				continue
			}
			for _, prefix := range e.ranges() {
				more := true
				to.vips.overlapping(prefix, func(o *entry) bool {
					more = yield(o.object.Key())
					return more
				})
				if !more {
					return false
				}
			}
		}
	}
	return true
}

// selectionsChanged yields the entries whose selection of workloads changed, and those
// workloads.
func selectionsChanged(from, to *catalog, yield func(config.Key) bool) bool {
	for c := range pmap.Diff(from.selected, to.selected) {
		for _, catalog := range []*catalog{from, to} {
			if e := catalog.entries.Value(c.Key); e != nil && !yield(e.object.Key()) {
				return false
			}
		}
		for s := range pmap.Diff(c.Old, c.New) {
			for _, selection := range []*selection{s.Old, s.New} {
				if selection != nil && selection.object != nil && !yield(selection.object.Key()) {
					return false
				}
			}
		}
	}
	return true
}

// workloadsChanged yields the WorkloadEntries that came or went. One whose health changes
// comes or goes, too.
func workloadsChanged(from, to *catalog, yield func(config.Key) bool) bool {
	for c := range pmap.Diff(from.workloads, to.workloads) {
		for w := range pmap.Diff(c.Old, c.New) {
			if w.HasOld && w.HasNew {
				continue // the object itself changed, so the caller looks at it anyway
			}
			for _, workload := range []*workload{w.Old, w.New} {
				if workload != nil && workload.object != nil && !yield(workload.object.Key()) {
					return false
				}
			}
		}
	}
	return true
}

// checksChanged yields the entries that select a workload whose health began or ceased to
// matter.
func (f *fork) checksChanged(before *fork, yield func(config.Key) bool) bool {
	for c := range pmap.Diff(before.known.checked, f.known.checked) {
		for _, object := range []*config.Config{c.Old, c.New} {
			if object == nil {
				continue
			}
			if !eachKey(f.known.catalog.selecting(object.Namespace, labelsOf(object)), yield) {
				return false
			}
		}
	}
	return true
}

func labelsOf(object *config.Config) labels.Instance {
	return labels.Instance(object.Spec.(*networking.WorkloadEntry).GetLabels())
}

// advisor collects the advice on one object.
type advisor struct {
	known *known
	found []discovery.Advice
}

func (a *advisor) advise(code, field, message, remedy string, other *entry) {
	advice := discovery.Advice{Code: code, Field: field, Message: message, Remedy: remedy}
	if other != nil {
		advice.Other = other.object.Key()
	}
	a.found = append(a.found, advice)
}

// visibleWith returns the entries of a set, without e, that some proxy can see together with e.
func (a *advisor) visibleWith(e *entry, all entrySet) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		looked := 0
		for o := range all.Values() {
			if looked++; looked > maxLooked || o != e && visibleTogether(e, o) && !yield(o) {
				return
			}
		}
	}
}

// visibleTogether says whether some proxy may see the services of both. It assumes that each
// namespace named by the two has a proxy.
func visibleTogether(a, b *entry) bool {
	va, vb := a.exportTo(), b.exportTo()
	for _, namespace := range slices.Concat([]string{a.object.Namespace, b.object.Namespace}, va, vb) {
		if va.VisibleTo(namespace) && vb.VisibleTo(namespace) {
			return true
		}
	}
	return false
}

func (e *entry) exportTo() discovery.Visibility {
	for _, services := range e.services {
		return services[0].Attributes.ExportTo // the same for all
	}
	return discovery.Visibility{"~"}
}

func (a *advisor) hosts(e *entry) {
	for i, name := range lowerCase(e.spec.GetHosts()) {
		for o := range a.visibleWith(e, a.known.catalog.hosts.Value(name)) {
			what := "proxies that see both use that of their own namespace, else the oldest"
			if o.object.Namespace == e.object.Namespace {
				what = "their endpoints are put together, and the oldest says the rest"
			}
			a.advise(codeHost, fmt.Sprintf("spec.hosts[%d]", i), fmt.Sprintf("%q is a host of %s too: %s", name, o.object.Key(), what), "", o)
			break
		}
	}
}

// addresses warns of another entry with the same port at the same address. It leaves out
// entries with a common service, which hosts reports.
func (a *advisor) addresses(e *entry) {
	for i, prefix := range e.ranges() {
		o := a.overlapping(e, prefix)
		if o == nil {
			continue
		}
		port := sharedPorts(e, o)[0]
		field, shared := fmt.Sprintf("spec.addresses[%d]", i), fmt.Sprintf("%s is an address of %s too, and both have port %d", e.spec.GetAddresses()[i], o.object.Key(), port.number)
		switch {
		case port.mine && port.theirs:
			a.advise(codeAddress, field, shared+": only the host of a request tells them apart", "", o)
		case port.mine:
			a.advise(codeTaken, field, shared+", where that one does not speak HTTP: it gets all that proxies capture on the way to the address",
				"use another address or port, or one protocol", o)
		case port.theirs:
			a.advise(codeAddress, field, shared+", where that one speaks HTTP: its requests come here, too", "", o)
		default:
			a.advise(codeAddress, field, shared+": all connections are the oldest's", "", o)
		}
	}
}

// overlapping returns an entry that has an address in the range and a port in common with e.
func (a *advisor) overlapping(e *entry, prefix netip.Prefix) (found *entry) {
	looked := 0
	a.known.catalog.vips.overlapping(prefix, func(o *entry) bool {
		looked++
		if o != e && !sharesHost(e, o) && len(sharedPorts(e, o)) > 0 && visibleTogether(e, o) {
			found = o
		}
		return found == nil && looked < maxLooked
	})
	return found
}

// sharesHost says whether two entries define the same service: hosts warns of that.
func sharesHost(a, b *entry) bool {
	for hostname := range a.services {
		if _, both := b.services[hostname]; both && a.object.Namespace == b.object.Namespace {
			return true
		}
	}
	return false
}

// sharedPort is a port of two entries, and whether it is HTTP in each.
type sharedPort struct {
	number       uint32
	mine, theirs bool
}

// rank orders shared ports, those that are worst for the first entry first.
func (p sharedPort) rank() int {
	switch {
	case p.mine && p.theirs:
		return 3
	case p.mine:
		return 0
	case p.theirs:
		return 2
	}
	return 1
}

// sharedPorts returns the ports that both entries have, those that are worst for a first.
func sharedPorts(a, b *entry) []sharedPort {
	var out []sharedPort
	for _, p := range a.spec.GetPorts() {
		for _, q := range b.spec.GetPorts() {
			if p.GetNumber() == q.GetNumber() {
				out = append(out, sharedPort{p.GetNumber(), isHTTP(p), isHTTP(q)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b sharedPort) int { return cmp.Compare(a.rank(), b.rank()) })
	return out
}

func isHTTP(p *networking.ServicePort) bool { return protocolOf(p).IsHTTP() }

// portOnlyPorts returns the ports of a ServiceEntry whose connections only the port number
// identifies: the protocol has no host name, and the service has no address and gets none. A headless
// one has the addresses of its workloads.
func (e *entry) portOnlyPorts() []uint32 {
	if e.spec.GetResolution() == networking.ServiceEntry_NONE && e.selector != nil {
		return nil
	}
	if len(e.spec.GetAddresses()) > 0 || len(address.Hosts(e.object)) == len(e.services) || e.spec.GetResolution() == networking.ServiceEntry_DYNAMIC_DNS {
		return nil
	}
	var out []uint32
	for _, p := range e.spec.GetPorts() {
		protocol := protocolOf(p)
		named := protocol.IsHTTP() || protocol == discovery.TLS || protocol == discovery.HTTPS
		if !named && protocol.IsServed() && !slices.Contains(out, p.GetNumber()) {
			out = append(out, p.GetNumber())
		}
	}
	return out
}

func (a *advisor) ports(e *entry) {
	for _, number := range e.portOnlyPorts() {
		for o := range a.visibleWith(e, a.known.catalog.bare.Value(portPath(number))) {
			if sharesHost(e, o) {
				continue
			}
			a.advise(codePort, "spec.ports", fmt.Sprintf("%d is a port of %s too, and neither has an address: all connections are the oldest's", number, o.object.Key()),
				"set addresses, or other ports", o)
			break
		}
	}
}

// selector warns if an entry selects nothing, if the selected workloads have different health
// checks, and if a workload names a port that no ServiceEntry selecting it has.
func (a *advisor) selector(e *entry) {
	if e.selector == nil {
		return
	}
	some, odd := false, map[string]bool{}
	var first, other *selection // two workloads with different checks
	for w := range a.known.catalog.selected.Value(e.key().path()).Values() {
		some = true
		switch check := w.instance.Endpoint.Check; {
		case check == health.Check{}:
		case first == nil:
			first = w
		case other == nil && check != first.instance.Endpoint.Check:
			other = w
		}
		for name := range w.instance.PortMap {
			if !a.serves(w.workload, name) {
				odd[w.instance.Name+"\x00"+name] = true
			}
		}
	}
	if other != nil {
		a.advise(codeOdd, "spec.workloadSelector",
			fmt.Sprintf("selects workloads %s and %s, whose health checks differ: proxies check those alone that ask for the check of %s", first.instance.Name, other.instance.Name, first.instance.Name),
			"give all workloads of the service the same "+health.CheckPathAnnotation+" and "+health.CheckIntervalAnnotation, nil)
	}
	if !some && !a.unhealthy(e) {
		a.advise(codeSelector, "spec.workloadSelector",
			fmt.Sprintf("selects no workload of namespace %s now: there is no endpoint until one has the labels %s", e.object.Namespace, e.selector),
			"apply a WorkloadEntry with these labels, or mend the selector", nil)
	}
	for _, key := range slices.Sorted(maps.Keys(odd))[:min(len(odd), 3)] {
		w, name, _ := strings.Cut(key, "\x00")
		a.advise(codeNoPort, "spec.workloadSelector", fmt.Sprintf("selects workload %s, whose port %q no ServiceEntry that selects it has: it has no effect", w, name), "mend the name in the workload, or add the port", nil)
	}
}

// unhealthy says whether an entry selects a workload that is not healthy now.
func (a *advisor) unhealthy(e *entry) bool {
	for _, object := range a.known.checked.Prefix(e.object.Namespace + "/") {
		if e.selector.SubsetOf(labelsOf(object)) {
			return true
		}
	}
	return false
}

// selecting returns the ServiceEntries that select a workload, in no order.
func (a *advisor) selecting(w *workload) iter.Seq[*entry] {
	return a.known.catalog.selecting(w.instance.Namespace, w.instance.Endpoint.Labels)
}

// serves says whether a ServiceEntry that selects the workload has a port of that name.
func (a *advisor) serves(w *workload, name string) bool {
	for e := range a.selecting(w) {
		if slices.ContainsFunc(e.spec.GetPorts(), func(p *networking.ServicePort) bool { return p.GetName() == name }) {
			return true
		}
	}
	return false
}

// workload warns if no ServiceEntry selects the workload, else of its ports that no such
// ServiceEntry has. Services of another registry that select it may use its ports too.
func (a *advisor) workload(w *workload) {
	defer func(before int) {
		for i := range a.found[before:] {
			a.found[before+i].Unselected = true
		}
	}(len(a.found))
	selected := false
	for range a.selecting(w) {
		selected = true
		break
	}
	switch none := len(w.instance.Endpoint.Labels) == 0; {
	case selected:
	case none:
		a.advise(codeAlone, "spec.labels", "are missing, so no ServiceEntry selects the workload: it is an endpoint of no service",
			"give it the labels of a workloadSelector, or of the selector of a Service of a cluster", nil)
	default:
		a.advise(codeAlone, "spec.labels", fmt.Sprintf("are selected by no ServiceEntry of namespace %s: the workload is an endpoint of no service, and a proxy at its address does not have its labels", w.instance.Namespace),
			"add a ServiceEntry, or a Service of a cluster, whose selector they match, or mend them", nil)
	}
	for _, name := range slices.Sorted(maps.Keys(w.instance.PortMap)) {
		if selected && !a.serves(w, name) {
			a.advise(codeNoPort, "spec.ports["+name+"]", "is a port of no ServiceEntry that selects this workload: it has no effect", "", nil)
		}
	}
}
